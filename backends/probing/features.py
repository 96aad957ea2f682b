"""Golden probes of single features: tools, structured output, log probabilities, images, cached tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backends.engines.jsonfacts import inner, objects
from backends.probing.session import ChatAnswer, Session, json_of

_NAME: Final = "report"
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Report one word.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "maxLength": 8}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
_ANSWER: Final = 64  # tokens that any of these answers needs
_THOUGHT: Final = 512  # more, for a pool that cannot be kept from reasoning first
_NO_THINKING: Final = {"enable_thinking": False, "thinking": False}
_TOP: Final = 20  # the most that OpenAI's dialect allows
_RED_PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
_PIXEL: Final = f"data:image/png;base64,{_RED_PIXEL}"


async def probe_tools(session: Session) -> None:
    """`auto` is taken, `required` and a named tool lead to a call with arguments by the schema."""
    plain = await session.chat(1, tools=[_TOOL], tool_choice="auto")
    # Without a parser the engine takes `auto` and leaves the call in the text.
    auto = session.value("tool_parser") != "" if plain.status == 200 else False if plain.refused else None
    named = {"type": "function", "function": {"name": _NAME}}
    shown = {
        "auto": auto,
        "required": _called(await _answer(session, tools=[_TOOL], tool_choice="required")),
        "named": _called(await _answer(session, tools=[_TOOL], tool_choice=named)),
    }
    _conclude(session, "tools", "tool_modes", shown)


async def probe_formats(session: Session) -> None:
    """Each way to bind the answer's form is taken and obeyed."""
    schema = {"type": "json_schema", "json_schema": {"name": "ok", "strict": True, "schema": _SCHEMA}}
    tries: dict[str, dict[str, Any]] = {
        "json_object": {"response_format": {"type": "json_object"}},
        "json_schema": {"response_format": schema},
        "regex": dict(session.kind.constrained("regex", "yes|no")),
        "grammar": dict(session.kind.constrained("grammar", 'root ::= "yes" | "no"')),
    }
    shown = {name: _obeyed(name, await _answer(session, **fields)) for name, fields in tries.items()}
    _conclude(session, "formats", "formats", shown)


async def probe_logprobs(session: Session) -> None:
    """Twenty alternatives of one token; an engine with a lower limit names it."""
    off: dict[str, Any] = {"chat_template_kwargs": _NO_THINKING} if session.value("reasoning_off") else {}
    answer = await session.chat(1, logprobs=True, top_logprobs=_TOP, **off)
    content = objects(inner(answer.choice.get("logprobs")).get("content"))
    if answer.refused:
        limit = [int(word) for word in answer.error.replace(".", " ").split() if word.isdecimal() and int(word) < _TOP]
        session.learn("logprobs", limit[-1] if limit else 0, answer.error)
    elif content or answer.content:
        session.learn("logprobs", _TOP if content else 0, f"{len(content)} tokens with log probabilities")
    else:  # an engine error, or a token of reasoning, which need not have any
        session.check("logprobs", None, answer.error or "no token of the answer came")
        return
    session.check("logprobs", session.value("logprobs") > 0, session.found["logprobs"].evidence)


async def probe_image(session: Session) -> None:
    """A 1x1 image is taken or refused. Video and audio are not probed: what was declared of them stays."""
    parts = [{"type": "image_url", "image_url": {"url": _PIXEL}}, {"type": "text", "text": "What colour?"}]
    body = {"model": session.model, "messages": [{"role": "user", "content": parts}], "max_tokens": 1}
    answer = session.read(await session.post("/v1/chat/completions", body))
    if answer.status != 200 and not answer.refused:
        session.check("image", None, f"{answer.status} {answer.error}")
        return
    takes = answer.status == 200
    others = (session.declared.modalities or frozenset()) - {"image", "text"}
    value = frozenset({"text", "image"} | others) if takes else frozenset({"text"} | others)
    session.learn("modalities", value, "a 1x1 image is taken" if takes else f"a 1x1 image: {answer.error}")
    session.check("image", True, session.found["modalities"].evidence)


async def probe_cached_tokens(session: Session) -> None:
    """The same prompt, longer than two blocks, twice: usage has to tell what was cached."""
    words = min(2 * (session.value("block_size") or 64) + 16, 2048)
    text = "Repeat: " + "blue " * words
    first = await session.chat(1, text)
    second = await session.chat(1, text)
    if first.status != 200 or second.status != 200:
        session.check("cached tokens", None, second.error or first.error)
        return
    cached = inner(second.usage.get("prompt_tokens_details")).get("cached_tokens")
    flag = session.kind.spec.cached_tokens_flag
    told = cached is not None
    evidence = f"the same {second.usage.get('prompt_tokens')} prompt tokens again: cached_tokens {cached}"
    session.learn("cached_tokens", told, evidence)
    session.learn("cached_tokens_flag", "" if told else flag, evidence if told else f"{evidence}; {flag} is missing")
    session.check("cached tokens", True, evidence)


async def _answer(session: Session, **fields: Any) -> ChatAnswer:
    """A chat that should reach its answer: without reasoning where that can be, else at the weakest effort."""
    if session.value("reasoning") is not True:
        return await session.chat(_ANSWER, **fields)
    if session.value("reasoning_off"):
        return await session.chat(_ANSWER, chat_template_kwargs=_NO_THINKING, **fields)
    efforts = session.value("efforts")
    weakest = {"reasoning_effort": efforts[0]} if efforts else {}
    return await session.chat(_THOUGHT, **weakest, **fields)


def _called(answer: ChatAnswer) -> bool | None:
    """True: a call as asked; False: refused, or an answer without one; None: cut short or an engine error."""
    if answer.status != 200:
        return False if answer.refused else None
    call = next(iter(objects(answer.message.get("tool_calls"))), {})
    arguments = json_of(str(inner(call.get("function")).get("arguments", "")))
    if isinstance(arguments, dict) and isinstance(arguments.get("word"), str):
        return True
    return None if answer.cut else False


def _obeyed(name: str, answer: ChatAnswer) -> bool | None:
    if answer.status != 200:
        return False if answer.refused else None
    value = json_of(answer.content)
    obeyed = {
        "json_object": isinstance(value, dict),
        "json_schema": isinstance(value, dict) and isinstance(value.get("ok"), bool) and len(value) == 1,
    }.get(name, answer.content.strip() in ("yes", "no"))
    # A small model may run on inside its JSON: only what ended on its own is proof against.
    return True if obeyed else None if answer.cut else False


def _conclude(session: Session, check: str, term: str, shown: Mapping[str, bool | None]) -> None:
    """Learn a set of features. One that showed nothing stays as declared; undeclared it counts as there."""
    seen = {name for name, there in shown.items() if there}
    unsure = sorted(name for name, there in shown.items() if there is None)
    if len(unsure) == len(shown):
        session.check(check, None, f"nothing shown for {', '.join(unsure)}")
        return
    declared = getattr(session.declared, term)
    kept = seen | {name for name in unsure if declared is None or name in declared}
    evidence = f"probed: {', '.join(sorted(seen)) or 'none'}"
    evidence += f"; not shown, left as they were: {', '.join(unsure)}" if unsure else ""
    session.learn(term, frozenset(kept), evidence)
    session.check(check, bool(seen), evidence)
