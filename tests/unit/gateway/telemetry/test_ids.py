from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.ids import IdSource, TraceContext, format_traceparent, parse_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_ids_have_the_asked_length_and_differ() -> None:
    ids = IdSource()
    seen = [ids.hex(digits) for _ in range(2000) for digits in (16, 32)]
    assert len(set(seen)) == len(seen)
    assert {len(one) for one in seen} == {16, 32}
    assert all(int(one, 16) >= 0 and one == one.lower() for one in seen)


def test_one_call_for_entropy_serves_many_ids() -> None:
    calls: list[int] = []

    def entropy(size: int) -> bytes:
        calls.append(size)
        return bytes(range(256)) * (size // 256)

    ids = IdSource(entropy)
    for _ in range(200):
        ids.hex(32)
    assert len(calls) == 1


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("03", True), ("02", False)])
def test_a_caller_and_its_sampling_are_read(flags: str, sampled: bool) -> None:
    assert parse_context(f"00-{TRACE}-{SPAN}-{flags}", "v=1") == TraceContext(TRACE, SPAN, sampled, "v=1")


def test_fields_of_a_later_version_are_ignored() -> None:
    assert parse_context(f"01-{TRACE}-{SPAN}-01-more") == TraceContext(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "junk",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
    ],
)
def test_a_malformed_caller_is_no_caller(header: str | None) -> None:
    assert parse_context(header, "v=1") is None


def test_an_oversized_state_is_dropped_and_the_caller_kept() -> None:
    assert parse_context(f"00-{TRACE}-{SPAN}-01", "v=" + "1" * 600) == TraceContext(TRACE, SPAN, True, "")


@given(st.text(max_size=80))
def test_any_text_is_read_without_raising(text: str) -> None:
    context = parse_context(text)
    assert context is None or len(context.trace_id) == 32


@given(st.binary(min_size=16, max_size=16).filter(any), st.binary(min_size=8, max_size=8).filter(any), st.booleans())
def test_what_is_written_is_read_back(trace: bytes, span: bytes, sampled: bool) -> None:
    header = format_traceparent(trace.hex(), span.hex(), sampled=sampled)
    assert parse_context(header) == TraceContext(trace.hex(), span.hex(), sampled)
