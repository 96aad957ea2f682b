from __future__ import annotations

import pytest

from gateway.dialects.turns import split_thinking
from tests.unit.gateway.dialects.support import SGLANG, sent


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("plain", ("", "plain")),
        ("<think>\nHm.\n</think>\n\nYes.", ("Hm.", "Yes.")),
        ("Hm.</think>Yes.", ("Hm.", "Yes.")),
        ("<think>no end", ("", "<think>no end")),
        ("<think></think>a</think>b", ("", "a</think>b")),
    ],
)
def test_reasoning_in_the_text_is_told_apart(text, parts):
    assert split_thinking(text) == parts


def test_reasoning_that_a_client_kept_in_the_text_is_reasoning_in_every_dialect():
    kept = {"role": "assistant", "content": "<think>\nHm.\n</think>"}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    responses = sent("responses", {"input": [kept, {"role": "assistant", "content": "Next."}, call]}, SGLANG)
    messages = sent("messages", {"messages": [kept | {"content": kept["content"] + "Next."}]}, SGLANG)
    chat = sent("chat", {"messages": [kept | {"content": kept["content"] + "Next."}]}, SGLANG)
    for body in (responses, messages, chat):
        (message,) = body["messages"]
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Next.")


def test_reasoning_of_its_own_goes_before_that_in_the_text():
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "First."}]},
        {"role": "assistant", "content": "<think>Second.</think>Yes."},
    ]
    (message,) = sent("responses", {"input": items}, SGLANG)["messages"]
    assert (message["reasoning_content"], message["content"]) == ("First.", "Yes.")
