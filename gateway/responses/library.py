"""Stored responses by tenant, over the state store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
import structlog

from gateway.config.model import State
from gateway.dialects.responses import previous_not_found
from gateway.errors import Cause, GatewayError
from gateway.responses.record import CONTINUABLE, Item, Record, decode, encode, is_response_id
from gateway.state.base import Quota, StateStore, StateTooLarge

log = structlog.get_logger("headrace.responses")

_CHAIN_LIMIT = 1000  # turns


class Library:
    """What one tenant has stored; cheap to make. Calls raise StateUnavailable as the store does.

    No key can be made to name another tenant's entry: ids are checked before they are part of one.
    """

    __slots__ = ("_config", "_quota", "_store", "_tenant")

    def __init__(self, store: StateStore, config: State, tenant: str) -> None:
        self._store = store
        self._config = config
        self._tenant = tenant
        self._quota = Quota(f"responses:{tenant}", config.responses_bytes_per_tenant)

    @property
    def enabled(self) -> bool:
        """Whether responses are stored at all."""
        return self._config.store_responses

    async def ready(self) -> bool:
        """Whether they would be now."""
        return self.enabled and await self._store.ready()

    async def find(self, response_id: str) -> Record | None:
        """The record; None for one that was never stored here, was deleted, or has ended."""
        if not self.enabled or not is_response_id(response_id):
            return None
        entry = await self._store.get(self._key(response_id))
        return decode(entry.value) if entry else None

    async def save(self, record: Record) -> bool:
        """Store a record and its output items by name; False when it is too large."""
        try:
            await self._put(self._key(record.id), encode(record))
            named = [item for item in record.response["output"] if item.get("id")]
            await asyncio.gather(*(self._put(self._item_key(item["id"]), msgspec.json.encode(item)) for item in named))
        except StateTooLarge:
            log.warning("response too large to store", response=record.id)
            return False
        if record.chain:  # a conversation that goes on stays whole
            await self._store.touch([self._key(earlier) for earlier in record.chain], self._config.responses_ttl_s)
        return True

    async def delete(self, record: Record) -> None:
        """Remove a record with its items and events."""
        await self._store.delete(self._key(record.id))
        for item in record.response["output"]:
            await self._store.delete(self._item_key(str(item.get("id"))))
        for number in range(record.batches):
            await self._store.delete(self._events_key(record.id, number))

    async def previous(self, response_id: str) -> Record:
        """The finished turn that a request continues. Raises GatewayError when there is none."""
        record = await self.find(response_id)
        if record is None:
            raise previous_not_found(response_id)
        if record.status not in CONTINUABLE:
            raise GatewayError(
                Cause.BAD_REQUEST,
                f"The response {response_id!r} is {record.status}: it cannot be continued.",
                param="previous_response_id",
                code="previous_response_not_completed",
            )
        if len(record.chain) >= _CHAIN_LIMIT:
            raise GatewayError(
                Cause.BAD_REQUEST,
                f"The conversation has {_CHAIN_LIMIT} turns already.",
                param="previous_response_id",
                code="conversation_too_long",
            )
        return record

    async def history(self, record: Record, limit_bytes: int) -> list[Item]:
        """All items up to and with this turn, oldest first. Raises as `input_of` does."""
        return [*await self.input_of(record, limit_bytes), *record.response["output"]]

    async def input_of(self, record: Record, limit_bytes: int) -> list[Item]:
        """All items that this turn answered, oldest first.

        Raises GatewayError when an earlier turn is gone, or when all of them are larger than `limit_bytes`.
        """
        entries = await self._store.get_many([self._key(earlier) for earlier in record.chain])
        if sum(len(entry.value) for entry in entries if entry is not None) > limit_bytes:
            raise GatewayError(
                Cause.TOO_LARGE, "the stored conversation is too large to go on", param="previous_response_id"
            )
        turns = [decode(entry.value).turn for entry in entries if entry is not None]
        if len(turns) < len(record.chain):
            gone = next(name for name, entry in zip(record.chain, entries, strict=True) if entry is None)
            raise previous_not_found(gone)
        return [item for turn in [*turns, record.items] for item in turn]

    async def items(self, names: Sequence[str]) -> list[Item | None]:
        """Output items of stored responses by their ids."""
        if not self.enabled:
            return [None] * len(names)
        entries = await self._store.get_many([self._item_key(name) for name in names])
        return [msgspec.json.decode(entry.value) if entry else None for entry in entries]

    # --- what runs in the background ---

    async def add_events(self, response_id: str, number: int, events: bytes) -> bool:
        """Keep batch `number` (from 0) of a response's event stream; False when it is too large."""
        try:
            await self._put(self._events_key(response_id, number), events)
        except StateTooLarge:
            return False
        return True

    async def events(self, response_id: str, number: int) -> bytes | None:
        """Batch `number`; None when it is not there (yet)."""
        entry = await self._store.get(self._events_key(response_id, number))
        return entry.value if entry else None

    async def still_running(self, response_id: str, life_s: float) -> None:
        """Say that some gateway works on it, for `life_s` seconds."""
        await self._store.put(self._mark("alive", response_id), b"", life_s)

    async def is_running(self, response_id: str) -> bool:
        """Whether some gateway works on it."""
        return await self._store.get(self._mark("alive", response_id)) is not None

    async def ask_to_stop(self, response_id: str, life_s: float) -> None:
        """Ask the gateway that works on it to stop."""
        await self._store.put(self._mark("stop", response_id), b"", life_s)

    async def asked_to_stop(self, response_id: str) -> bool:
        """Whether somebody asked that."""
        return await self._store.get(self._mark("stop", response_id)) is not None

    async def _put(self, key: str, value: bytes) -> None:
        if len(value) > self._config.response_limit_bytes:
            raise StateTooLarge
        await self._store.put(key, value, self._config.responses_ttl_s, quota=self._quota)

    def _key(self, response_id: str) -> str:
        return f"response:{response_id}:{self._tenant}"

    def _item_key(self, item_id: str) -> str:
        # Ids of items come from clients: nothing in them may end the id early.
        return f"item:{item_id.replace(':', '_')[:128]}:{self._tenant}"

    def _events_key(self, response_id: str, number: int) -> str:
        return f"events:{response_id}:{number}:{self._tenant}"

    def _mark(self, what: str, response_id: str) -> str:
        return f"{what}:{response_id}:{self._tenant}"


def references(items: Iterable[Item]) -> list[str]:
    """The ids of all `item_reference` items."""
    return [str(item.get("id")) for item in items if item.get("type") == "item_reference"]
