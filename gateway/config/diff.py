"""What differs between two configurations, by path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.config.model import Config
from gateway.config.node import Node
from gateway.config.references import MASK, mask_url

# What is made once: sockets and their limits, stores and tables. A new value takes effect at the next start.
_BOUND_AT_START = (
    "listen.host",
    "listen.port",
    "listen.admin_host",
    "listen.admin_port",
    "listen.tls",
    "listen.body_limit_bytes",
    "listen.request_timeout_s",
    "retry.budget",
    "retry.budget_min",
    "state.url",
    "state.memory_limit_bytes",
    "kv_index.blocks",
)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. Entries of lists are matched by name, so that a new order alone is a change of the list only."""

    path: str  # e.g. pools[a].timeouts.idle_s
    old: Any = None  # None: the entry is new
    new: Any = None  # None: the entry is gone

    @property
    def needs_restart(self) -> bool:
        """Whether a running gateway keeps the old value."""
        return self.path in _BOUND_AT_START or self.path.startswith("listen.tls.")

    def __str__(self) -> str:
        """One line without secrets."""
        if self.path.endswith(".sha256"):
            return f"{self.path}: {MASK} -> {MASK}"
        return f"{self.path}: {_show(self.old)} -> {_show(self.new)}"


def diff(old: Config, new: Config) -> tuple[Change, ...]:
    """Every difference, in the order of the tree."""
    return tuple(_nodes("", old, new))


def _nodes(path: str, old: Node, new: Node) -> Iterator[Change]:
    for name in type(old).model_fields:
        yield from _values(f"{path}.{name}" if path else name, getattr(old, name), getattr(new, name))


def _values(path: str, old: Any, new: Any) -> Iterator[Change]:
    if old == new:
        return
    if isinstance(old, Node) and isinstance(new, Node):
        yield from _nodes(path, old, new)
        return
    before, after = _by_name(old), _by_name(new)
    if before is None or after is None:
        yield Change(path, old, new)
        return
    kept = [name for name in before if name in after]
    for name in kept:
        yield from _values(f"{path}[{name}]", before[name], after[name])
    yield from (Change(f"{path}[{name}]", old=before[name]) for name in before if name not in after)
    yield from (Change(f"{path}[{name}]", new=after[name]) for name in after if name not in before)
    if kept != [name for name in after if name in before]:
        yield Change(path, tuple(before), tuple(after))


def _by_name(value: Any) -> dict[str, Node] | None:
    """Entries of a list of named nodes by their name; None for any other value."""
    if not isinstance(value, tuple) or not all(isinstance(entry, Node) for entry in value):
        return None
    return {str(getattr(entry, "name", None) or getattr(entry, "id", "")): entry for entry in value}


def _show(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Node):
        return "{...}"
    return mask_url(repr(value) if isinstance(value, str | tuple) else str(value))
