"""Routes that exist but do not serve, and whether the engine keeps responses."""

from __future__ import annotations

from typing import Any, Final

from backends.engines.jsonfacts import decoded
from backends.probing.session import PROMPT, Session

_MESSAGES: Final = [{"role": "user", "content": PROMPT}]
# The smallest body that a working endpoint answers with 200.
_WORKING: Final[dict[str, dict[str, Any]]] = {
    "/v1/embeddings": {"input": "a"},
    "/v1/rerank": {"query": "a", "documents": ["a"]},
    "/v1/chat/completions/render": {"messages": _MESSAGES},
    "/v1/completions/render": {"prompt": "a"},
    "/inference/v1/generate": {"token_ids": [1], "sampling_params": {"max_tokens": 1}},
}


async def probe_endpoints(session: Session) -> None:
    """Ask each endpoint that may be switched off (or is for another sort of model) for its smallest answer."""
    routed: frozenset[str] | None = session.value("endpoints")
    if routed is None:
        return
    gone: list[str] = []
    for path, body in _WORKING.items():
        if path in routed:
            answer = await session.post(path, {"model": session.model, **body})
            if answer.status in (400, 403, 404, 405, 422, 501):
                gone.append(f"{path} {answer.status}")
    dead = {entry.partition(" ")[0] for entry in gone}
    evidence = session.found["endpoints"].evidence if "endpoints" in session.found else "declared"
    if gone:
        session.learn("endpoints", routed - dead, f"{evidence}, less {', '.join(gone)}")
    session.check("endpoints", True, f"{len(routed) - len(dead)} serve, {len(dead)} only have a route")


async def probe_storage(session: Session) -> None:
    """Store a response and get it back."""
    routed = session.value("endpoints")
    if routed is not None and "/v1/responses" not in routed:
        session.learn("storage", False, "no /v1/responses")
        return
    body = {"model": session.model, "input": PROMPT, "store": True, "max_output_tokens": 16}
    made = await session.post("/v1/responses", body)
    name = decoded(made.body).get("id")
    if made.status in (404, 405):
        session.learn("storage", False, f"POST /v1/responses: {made.status}")
    elif made.status != 200 or not isinstance(name, str):
        session.check("storage", None, f"POST /v1/responses: {made.status}")
        return
    else:
        kept = await session.get(f"/v1/responses/{name}")
        if kept.status == 0 or kept.status >= 500:
            session.check("storage", None, f"GET /v1/responses/ID: {kept.status}")
            return
        session.learn("storage", kept.status == 200, f"stored, then GET /v1/responses/ID: {kept.status}")
    session.check("storage", True, session.found["storage"].evidence)
