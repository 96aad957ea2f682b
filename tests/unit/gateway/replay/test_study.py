"""From a file and a configuration to a report in three forms."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from gateway.replay import Options, ReplayError, Study, render_html, render_table, run
from gateway.replay.trace import Exported, Trace
from tests.unit.gateway.replay.traffic import config, conversations


def export(path: Path, trace: Trace, *, replica: str = "") -> Path:
    """Write a trace in our own format."""
    lines = [
        msgspec.json.encode(
            Exported(
                a.at_s, a.prompt_tokens, a.output_tokens, a.blocks, tenant=a.tenant, session=a.session, replica=replica
            )
        )
        for a in trace.arrivals
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    path = export(tmp_path_factory.mktemp("traces") / "t.jsonl", conversations(20, 4))
    return run(path, config(), ("round_robin", "latency"))


def test_one_result_per_policy_in_the_order_asked(study: Study) -> None:
    assert [result.policy for result in study.results] == ["round_robin", "latency"]
    plain, knowing = study.results
    assert plain.exchanges == knowing.exchanges == study.exchanges == 80
    assert (plain.moved, plain.baseline) == (0.0, "round_robin")
    assert 0.2 < knowing.moved <= 1.0
    assert knowing.hits.total > plain.hits.total
    assert sum(knowing.by_replica.values()) == 80
    assert set(knowing.by_tenant) == {"x", "y"}
    assert sum(part.exchanges for part in knowing.by_tenant.values()) == 80
    assert knowing.ttft.p50 <= knowing.ttft.p90 <= knowing.ttft.p95 <= knowing.ttft.p99 <= knowing.ttft_curve[-1]
    assert knowing.gpu_seconds > 0
    assert 0 < knowing.prediction_error < 0.5
    assert plain.prediction_error == 0.0


def test_misses_are_those_above_the_objective(tmp_path: Path) -> None:
    path = export(tmp_path / "t.jsonl", conversations(10, 3))
    strict = run(path, config(), ("p2c",), Options(slo_ttft_s=0.0)).results[0]
    lax = run(path, config(), ("p2c",), Options(slo_ttft_s=1e6)).results[0]
    assert (strict.slo_misses, lax.slo_misses) == (30, 0)


def test_a_trace_that_knows_who_served_is_the_baseline(tmp_path: Path) -> None:
    path = export(tmp_path / "t.jsonl", conversations(10, 3), replica="elsewhere/0")
    result = run(path, config(), ("p2c",)).results[0]
    assert (result.baseline, result.moved) == ("the trace", 1.0)


def test_equal_replays_give_equal_json(tmp_path: Path) -> None:
    path = export(tmp_path / "t.jsonl", conversations(10, 3))
    first, again = (json.dumps(run(path, config(), ("latency",)).as_dict()) for _ in range(2))
    assert first == again


def test_limit_rate_and_progress(tmp_path: Path) -> None:
    path = export(tmp_path / "t.jsonl", conversations(40, 4))
    seen: list[tuple[str, int, int]] = []
    study = run(path, config(), ("p2c",), Options(limit=100, rate=2.0), lambda *step: seen.append(step))
    assert study.exchanges == 100
    assert seen[0] == ("p2c", 0, 100)
    assert seen[-1] == ("p2c", 100, 100)


def test_the_page_stands_alone_and_the_table_has_all_policies(study: Study) -> None:
    page = render_html(study)
    assert page.count("<polyline") == 4
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page
    console = Console(width=240)
    with console.capture() as captured:
        console.print(render_table(study))
    for policy in ("round_robin", "latency"):
        assert f"</span>{policy}</td>" in page
        assert captured.get().count(policy) == 3, "once in all and once per tenant"


def test_names_in_a_report_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"start_s": 0, "prompt_tokens": 9, "output_tokens": 1, "tenant": "<b>x"}\n', "utf-8")
    assert "&lt;b&gt;x" in render_html(run(path, config(), ("p2c",)))


@pytest.mark.parametrize(
    ("change", "policies", "options", "message"),
    [
        ({}, ("best",), Options(), "unknown policy 'best'; known: round_robin"),
        ({}, ("p2c",), Options(model="gpt"), "no model 'gpt' in the configuration; it has glm"),
        ({}, ("p2c",), Options(rate=0.0), "rate must be above 0"),
        ({"hardware": "abacus"}, ("p2c",), Options(), "pool 'a': unknown profile 'abacus'"),
        ({"engine": "abacus"}, ("p2c",), Options(), "pool 'a': no simulator for engine 'abacus'"),
    ],
)
def test_what_cannot_be_replayed(
    tmp_path: Path, change: dict[str, str], policies: tuple[str, ...], options: Options, message: str
) -> None:
    path = export(tmp_path / "t.jsonl", conversations(2, 1))
    with pytest.raises(ReplayError, match=message.replace("?", r"\?")):
        run(path, config(**change), policies, options)


def test_an_alias_names_its_model(tmp_path: Path) -> None:
    path = export(tmp_path / "t.jsonl", conversations(2, 1))
    assert run(path, config(), ("p2c",), Options(model="glm-latest")).exchanges == 2
