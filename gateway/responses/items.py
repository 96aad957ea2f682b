"""`/input_items`: what a response was asked, as items with ids, page by page."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gateway.errors import Cause, GatewayError
from gateway.responses.record import Item

_PREFIX = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "compaction": "cmp_",
}
_STATUS = {"message", "function_call", "function_call_output", "custom_tool_call_output"}
_TEXT = {"assistant": {"type": "output_text", "annotations": []}}


def listed(items: list[Item], response_id: str) -> list[Item]:
    """Items as the API shows them: typed, with content in parts, a status where there is one, and a stable id."""
    return [_item(item, position, response_id) for position, item in enumerate(items)]


def page(items: list[Item], query: Mapping[str, str]) -> dict[str, Any]:
    """One page by `order` (default desc), `after` (an item's id) and `limit` (1 to 100, default 20)."""
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise _invalid("order", "expected asc or desc")
    limit = query.get("limit", "20")
    if len(limit) > 3 or not limit.isdecimal() or not 1 <= int(limit) <= 100:
        raise _invalid("limit", "expected 1 to 100")
    items = items if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after is not None:
        positions = [position for position, item in enumerate(items) if item["id"] == after]
        if not positions:
            raise _invalid("after", "no such item")
        items = items[positions[0] + 1 :]
    shown = items[: int(limit)]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(items) > len(shown),
    }


def _invalid(param: str, detail: str) -> GatewayError:
    return GatewayError(Cause.BAD_REQUEST, f"{param}: {detail}", param=param, code="invalid_value")


def _item(item: Item, position: int, response_id: str) -> Item:
    kind = item.get("type") or "message"
    shown = {**item, "type": kind}
    if not isinstance(shown.get("id"), str) or not shown["id"]:
        digest = hashlib.sha256(f"{response_id} {position}".encode()).hexdigest()
        shown["id"] = _PREFIX.get(kind, "item_") + digest[:48]
    if kind in _STATUS and shown.get("status") is None:
        shown["status"] = "completed"
    if kind == "message" and isinstance(shown.get("content"), str):
        part = _TEXT.get(shown["role"], {"type": "input_text"})
        shown["content"] = [part | {"text": shown["content"]}]
    return shown
