"""Every translation vector, as given and with the engine's bytes cut in other ways."""

from __future__ import annotations

import json

import pytest

from tests.conformance import offline

VECTORS = offline.load()
STREAMED = [v for v in VECTORS if "upstream_sse" in v and v["request"]["body"].get("stream")]
_names = {"ids": lambda vector: vector["id"]}


@pytest.mark.parametrize("vector", VECTORS, **_names)
def test_vector(vector):
    assert offline.problems(vector, offline.exchange(vector)) == []


@pytest.mark.parametrize("step", [1, 2, 7, 64])
@pytest.mark.parametrize("vector", VECTORS, **_names)
def test_pieces_change_nothing(vector, step):
    assert offline.problems(vector, offline.exchange(vector, step=step)) == []


@pytest.mark.parametrize("quirks", [{"crlf": True}, {"no_space": True}, {"comments": True}, {"bom": True}], ids=str)
@pytest.mark.parametrize("vector", STREAMED, **_names)
def test_transport_changes_nothing(vector, quirks):
    altered = vector | {"transport": (vector.get("transport") or {}) | quirks}
    assert offline.problems(altered, offline.exchange(altered, step=11)) == []


@pytest.mark.parametrize("vector", STREAMED, **_names)
def test_a_cut_is_never_a_normal_end(vector):
    """Cut every stream after each of its chunks: an answer without its finish reason must end in an error."""
    chunks = vector["upstream_sse"]
    finish = next((i for i, c in enumerate(chunks) if '"finish_reason": "' in json.dumps(c)), len(chunks))
    for length in range(1, finish + 1):
        got = offline.exchange(vector | {"upstream_sse": chunks[:length]})
        text = got.body.decode()
        matched = vector["request"]["body"].get("stop") or vector["request"]["body"].get("stop_sequences")
        if got.status == 200 and not matched:
            assert '"error"' in text
            assert "message_stop" not in text
            assert "response.completed" not in text
