from __future__ import annotations

import pytest
from rich.console import Console

from gateway.cli.output import UserError
from gateway.cli.top import Sample, render, totals

METRICS = """
# TYPE headrace_exchanges counter
headrace_exchanges_total{model="m",status="2xx"} 3.0
headrace_exchanges_total{model="m",status="5xx"} 1.0
# TYPE headrace_tokens counter
headrace_tokens_total{model="m",kind="prompt"} 100.0
headrace_tokens_total{model="m",kind="cached"} 60.0
headrace_tokens_total{model="m",kind="completion"} 7.0
# TYPE other counter
other_total 9.0
"""
REPLICA = {
    "id": "a/0",
    "url": "http://127.0.0.1:9101",
    "state": "ready",
    "version": "",
    "reason": "",
    "in_flight": 2,
    "engine": {"running": 3, "waiting": 4, "kv_used": 0.5},
}
EXCHANGE = {
    "request_id": "r-1",
    "tenant": "[bold]t",
    "model": "m",
    "status": 200,
    "replicas": ["a/0", "a/1"],
    "ttft_ms": 1.5,
    "duration_ms": None,
    "prompt_tokens": 10,
    "cached_tokens": 5,
    "completion_tokens": 2,
}


def _sample(at_s: float = 0.0, exchanges: float = 0.0) -> Sample:
    return Sample(at_s, [], [REPLICA], [EXCHANGE], 1, {"exchanges": exchanges})


def test_totals() -> None:
    assert totals(METRICS) == {"exchanges": 4, "retries": 0, "prompt tokens": 100, "output tokens": 7}
    assert totals("")["exchanges"] == 0
    with pytest.raises(UserError, match="/metrics"):
        totals("{{{ not metrics")


def test_rates() -> None:
    assert _sample(3.0, 30.0).rates(_sample(1.0, 10.0)) == {"exchanges": 10.0}
    assert _sample(3.0, 1.0).rates(_sample(1.0, 10.0)) == {"exchanges": 0.0}  # the gateway was restarted
    assert _sample(3.0).rates(None) == {}
    assert _sample(3.0).rates(_sample(3.0)) == {}


def test_the_screen_shows_what_was_said_and_reads_no_markup() -> None:
    console = Console(width=160, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(render(_sample(), {"exchanges": 2.0}))
    text = capture.get()
    assert "in flight 1   exchanges/s 2.0" in text
    assert "a/0" in text
    assert "50%" in text
    assert "a/0 > a/1" in text
    assert "[bold]t" in text
