"""What an engine says of itself: model card, version, routes, flags. Costs no tokens."""

from __future__ import annotations

from typing import Any, Final

from backends.contracts import DialectName
from backends.engines.jsonfacts import decoded, objects
from backends.probing.session import Session

_DIALECTS: Final[dict[str, DialectName]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}


async def read_facts(session: Session) -> None:
    """All fact endpoints of the kind. One that answers with an error tells nothing."""
    await _models(session)
    await _version(session)
    for path in session.kind.spec.fact_paths:
        answer = await session.get(path)
        if answer.status == 200:
            for term, value in session.kind.facts(path, answer.headers, answer.body).items():
                session.learn(term, value, f"GET {path.partition('?')[0]}")
    await _routes(session)


async def _models(session: Session) -> None:
    answer = await session.get("/v1/models")
    if answer.status != 200:
        return
    cards = objects(decoded(answer.body).get("data"))
    own = next((card for card in cards if card.get("id") == session.model), None)
    session.check("model", own is not None, f"GET /v1/models: {', '.join(str(card.get('id')) for card in cards)}")
    # A LoRA adapter is a card with a parent.
    adapters = frozenset(str(card["id"]) for card in cards if card.get("parent"))
    session.learn("loras", adapters, "GET /v1/models: cards with a parent")
    if own is not None and isinstance(own.get("max_model_len"), int):
        session.learn("max_context", own["max_model_len"], f"GET /v1/models: max_model_len {own['max_model_len']}")


async def _version(session: Session) -> None:
    answer = await session.get("/version")
    if answer.status != 200:
        return
    version = decoded(answer.body).get("version")
    if isinstance(version, str):
        session.learn("version", version, "GET /version")
    for term, value in session.kind.facts("/version", answer.headers, answer.body).items():
        session.learn(term, value, f"GET /version: server {answer.headers.get('server', 'not named')}")


async def _routes(session: Session) -> None:
    """The kind's endpoints that this server has a route for."""
    answer = await session.get("/openapi.json")
    routes = decoded(answer.body).get("paths") if answer.status == 200 else None
    routes = routes if isinstance(routes, dict) else {}
    listed = {path for path, methods in routes.items() if isinstance(methods, dict) and "post" in methods}
    # Aliases are left out of the listing: what it lacks is tried.
    hidden = [path for path in sorted(session.kind.spec.paths - listed) if await _routed(session, path)]
    here = session.kind.spec.paths & listed | frozenset(hidden)
    evidence = "GET /openapi.json" if listed else "POST of an empty body to each"
    if here:
        session.learn("endpoints", here, evidence)
        session.learn("dialects", frozenset(_DIALECTS[path] for path in here if path in _DIALECTS), evidence)


async def _routed(session: Session, path: str) -> bool:
    answer = await session.post(path, {})
    detail: Any = decoded(answer.body).get("detail")
    return answer.status not in (0, 401, 403, 405) and not (answer.status == 404 and detail == "Not Found")
