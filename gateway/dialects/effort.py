"""Reasoning effort: what the client asked, what the pool's model really has, and what the client is told."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from gateway.dialects.fields import invalid
from gateway.dialects.target import Target

SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_SYNONYMS = {"ultra": "max"}


@dataclass(frozen=True, slots=True)
class Choice:
    """The effort to send (None: nothing) and whether reasoning must be kept from the client."""

    effective: str | float | None
    hide: bool = False
    header: str | None = None  # value of x-gateway-reasoning-effort, when the client got something else than asked


def validated(value: Any, param: str) -> str | float:
    """An effort the gateway knows. Raises GatewayError naming `param`."""
    if isinstance(value, bool) or not isinstance(value, str | float | int):
        raise invalid(param, "expected a name")
    if isinstance(value, str) and value not in SCALE and value not in _SYNONYMS:
        known = ", ".join(SCALE)
        raise invalid(param, f"{value!r} is not one of {known}")
    if not isinstance(value, str) and not 0 <= value <= 1:
        raise invalid(param, "a number must be between 0 and 1")
    return value


def choose(asked: str | float | None, target: Target) -> Choice:
    """Map an effort to the nearest one that is real on the pool: the next stronger one, else the strongest."""
    if asked is None:
        return Choice(target.default_effort)
    if not target.efforts:
        return Choice(asked)
    effective, hide = _nearest(asked, target)
    header = None if effective == asked else f"{effective};requested={asked}"
    return Choice(effective, hide, header)


def _nearest(asked: str | float, target: Target) -> tuple[str, bool]:
    if not isinstance(asked, str):
        name = "low" if asked < 0.34 else "high" if asked < 0.67 else "max"
    else:
        name = _SYNONYMS.get(asked, asked)
    if name in target.efforts:
        return name, False
    if name == "none" and target.reasoning_optional:
        return name, False
    stronger = [effort for effort in target.efforts if SCALE.index(effort) > SCALE.index(name)]
    return (stronger[0] if stronger else target.efforts[-1]), name == "none"


class StickyEfforts:
    """The effort of each session, for requests that name none: it stands at the very front of the prompt, so that
    another one would leave nothing of the prefix cache. Holds the `cap` sessions used last.
    """

    __slots__ = ("_by_session", "_cap")

    def __init__(self, cap: int = 10_000) -> None:
        self._by_session: OrderedDict[str, str | float] = OrderedDict()
        self._cap = cap

    def settle(self, session: str, asked: str | float | None) -> str | float | None:
        """What a session's request runs at: what it asks, else what the session asked last."""
        effort = self._by_session.pop(session, None) if asked is None else asked
        if effort is not None:
            self._by_session[session] = effort
            self._by_session.move_to_end(session)
            if len(self._by_session) > self._cap:
                self._by_session.popitem(last=False)
        return effort
