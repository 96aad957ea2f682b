from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from gateway.telemetry.lines import LineWriter
from gateway.telemetry.operations import mask_secrets, set_up_logging

Emitted = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def emitted() -> Iterator[Emitted]:
    """Set logging up, and return what came out once asked. Leaves logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out: list[bytes] = []
    writer = LineWriter(out.append)
    writer.start()
    set_up_logging(writer)

    def close_and_read() -> list[dict[str, Any]]:
        writer.close()
        return [json.loads(line) for line in b"".join(out).splitlines()]

    yield close_and_read
    writer.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_structlog_and_logging_speak_alike(emitted: Emitted) -> None:
    structlog.get_logger("gateway.x").warning("replica down", replica="a/0")
    logging.getLogger("aiohttp.server").error("broken %s", "pipe")
    ours, theirs = emitted()
    assert (ours["event"], ours["replica"], ours["level"], ours["logger"]) == (
        "replica down",
        "a/0",
        "warning",
        "gateway.x",
    )
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("broken pipe", "error", "aiohttp.server")
    assert {"ts"} <= set(ours) & set(theirs)


def test_details_below_the_level_are_left_out(emitted: Emitted) -> None:
    structlog.get_logger("gateway.x").debug("detail")
    logging.getLogger("other").debug("detail")
    assert emitted() == []


def test_an_exception_is_one_line_with_its_traceback(emitted: Emitted) -> None:
    try:
        raise LookupError("no such pool")
    except LookupError:
        structlog.get_logger("gateway.x").exception("reload failed")
    (line,) = emitted()
    assert line["event"] == "reload failed"
    assert "LookupError: no such pool" in line["exception"]


def test_secrets_are_masked_in_values_and_tracebacks(emitted: Emitted) -> None:
    try:
        raise ValueError("redis://user:hunter2@cache/0 refused")
    except ValueError:
        structlog.get_logger("gateway.x").exception("state", api_key="hunter2", note="Bearer hunter2")
    (line,) = emitted()
    assert "hunter2" not in json.dumps(line)
    assert "cache/0 refused" in line["exception"]


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("Authorization", "Basic abc", "***"),
        ("x-api-key", "abc", "***"),
        ("admin_token", "abc", "***"),
        ("set-cookie", "a=b", "***"),
        ("url", "https://u:p@host/x", "https://***@host/x"),
        ("event", "key hr_0123456789abcdefghij was used", "key *** was used"),
        ("event", "key sk-0123456789abcdefghij was used", "key *** was used"),
        ("prompt_tokens", 12, 12),
        ("event", "nothing secret", "nothing secret"),
    ],
)
def test_masking(name: str, value: object, masked: object) -> None:
    assert mask_secrets(None, "info", {name: value}) == {name: masked}
