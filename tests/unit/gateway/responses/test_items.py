"""Input items as they are listed."""

from typing import Any

import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from gateway.errors import GatewayError
from gateway.responses.items import listed, page

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"role": "assistant", "content": "Hello"},
    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "42"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
]


def test_every_item_is_one_that_the_sdk_knows() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseItem)
    shown = listed(ITEMS, "resp_1")
    for item in shown[:2] + shown[3:]:
        adapter.validate_python(item)
    assert shown[2]["content"] == [{"type": "output_text", "annotations": [], "text": "Hello"}]


def test_ids_are_stable_distinct_and_kept() -> None:
    shown = listed(ITEMS, "resp_1")
    assert shown == listed(ITEMS, "resp_1")
    assert len({item["id"] for item in shown}) == len(ITEMS)
    assert shown[5]["id"] == "rs_1"
    assert shown[0]["id"] != listed(ITEMS, "resp_2")[0]["id"]


def test_the_stored_items_are_not_changed() -> None:
    listed(ITEMS, "resp_1")
    assert ITEMS[0] == {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("query", "shown", "more"),
    [
        ({}, "edcba", False),
        ({"order": "asc"}, "abcde", False),
        ({"limit": "2"}, "ed", True),
        ({"limit": "2", "after": "d"}, "cb", True),
        ({"limit": "2", "after": "b"}, "a", False),
        ({"order": "asc", "after": "e"}, "", False),
    ],
)
def test_pages(query: dict[str, str], shown: str, more: bool) -> None:
    items = [{"id": name} for name in "abcde"]
    answer = page(items, query)
    assert "".join(item["id"] for item in answer["data"]) == shown
    assert answer["has_more"] is more
    assert answer["first_id"] == (shown[0] if shown else None)
    assert answer["last_id"] == (shown[-1] if shown else None)


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "-1"}, {"limit": "1e2"}, {"order": "x"}, {"after": "z"}])
def test_a_bad_query_is_named(query: dict[str, str]) -> None:
    with pytest.raises(GatewayError) as caught:
        page([{"id": "a"}], query)
    assert caught.value.param == next(iter(query))
