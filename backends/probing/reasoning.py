"""Golden probes of plain answers and reasoning: the field, whether it can be off, the stop scope, the real efforts."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from backends.contract import EFFORTS
from backends.engines.jsonfacts import decoded
from backends.probing.session import CHAT, PROMPT, ChatAnswer, Session, json_of

_TRIES: Final = 3
_SHORT: Final = 12  # tokens of an answer that only has to show its shape
_BOGUS: Final = "headrace"  # an effort that no template knows
_FINGERPRINT: Final = "The quick brown fox, 12345 jumps; naïve façade 東京 🙂\n\tdef f(x): return x**2"
_WORD: Final = re.compile(r"[A-Za-z]{3,}")


async def probe_plain(session: Session) -> None:
    """Where the text goes: message field of the reasoning, and whether the pool reasons at all."""
    answer = await session.chat(_SHORT, ignore_eos=True)
    session.check("plain", answer.status == 200 and bool(answer.choice), _shape(answer))
    if answer.status != 200:
        return
    fields = [name for name in ("reasoning_content", "reasoning") if name in answer.message]
    reasons = answer.reasoning
    if not reasons:  # models that think only when asked to
        asked = await session.chat(_SHORT, ignore_eos=True, chat_template_kwargs=_thinking(on=True))
        reasons = asked.reasoning
        if reasons:
            session.learn("reasoning_off", True, "reasons only with enable_thinking")
    session.learn("reasoning", bool(reasons), _shape(answer))
    if fields:
        session.learn("reasoning_field", fields[0], f"POST {CHAT}: message.{fields[0]}")


async def probe_stream(session: Session) -> None:
    """A stream ends with usage and [DONE]; its deltas carry the same reasoning field."""
    body = {
        "model": session.model,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": _SHORT,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    answer = await session.post(CHAT, body)
    lines = [line.removeprefix("data:").strip() for line in answer.body.decode(errors="replace").splitlines()]
    frames = [frame for frame in map(json_of, lines) if isinstance(frame, dict)]
    usage = [frame["usage"] for frame in frames if frame.get("usage")]
    ended = bool(lines) and "[DONE]" in lines
    session.check(
        "stream",
        None if answer.status != 200 else ended and bool(usage),
        f"{answer.status}, {len(frames)} frames, usage {'seen' if usage else 'missing'}, [DONE] {ended}",
    )


async def probe_reasoning_off(session: Session) -> None:
    """Whether `enable_thinking: false` leads to an answer without reasoning."""
    if session.value("reasoning") is not True or session.value("reasoning_off") is True:
        return
    answer = await session.chat(_SHORT, ignore_eos=True, chat_template_kwargs=_thinking(on=False))
    if answer.status == 200 and (answer.reasoning or answer.content):
        session.learn("reasoning_off", not answer.reasoning, f"enable_thinking false: {_shape(answer)}")
        session.check("reasoning off", True, _shape(answer))
    else:
        session.check("reasoning off", None, _shape(answer))


async def probe_stop(session: Session) -> None:
    """Let it say something, then ask again with a word of that as the stop string."""
    passed, evidence = None, ""
    for _ in range(_TRIES):
        passed, evidence = await _stopped(session)
        if passed is not None:
            break
    session.check("stop", passed, evidence)


async def _stopped(session: Session) -> tuple[bool | None, str]:
    """One try. None: it said something else the second time, which even greedy engines do beside other requests."""
    said = await session.chat(_SHORT, ignore_eos=True)
    word = _piece(said.reasoning or said.content)
    if said.status != 200 or not word:
        return None, _shape(said)
    again = await session.chat(_SHORT, ignore_eos=True, stop=[word])
    stopped = again.choice.get("finish_reason") == "stop"
    where = "reasoning" if said.reasoning else "answer"
    evidence = f"stop {word!r} in the {where}: {_shape(again)}"
    if again.status != 200 or (not stopped and word not in (again.reasoning or again.content)):
        return None, evidence
    if said.reasoning:
        session.learn("stop_scope", "everything" if stopped else "answer", evidence)
    elif stopped:
        session.learn("stop_scope", "answer", evidence)
    return stopped or bool(said.reasoning), evidence


async def probe_tokenizer(session: Session) -> None:
    """/tokenize agrees with what a chat counts; the ids of a fixed text are the tokenizer's fingerprint."""
    messages = [{"role": "user", "content": PROMPT}]
    counted = decoded((await session.post("/tokenize", {"model": session.model, "messages": messages})).body).get(
        "count"
    )
    used = (await session.chat(1)).usage.get("prompt_tokens")
    if not isinstance(counted, int) or not isinstance(used, int):
        session.check("tokenize", None, f"/tokenize {counted}, usage {used}")
        return
    session.check("tokenize", counted == used, f"/tokenize {counted}, usage {used}")
    ids = await _ids(session, {"prompt": _FINGERPRINT, "add_special_tokens": False})
    if ids and counted == used:
        print_ = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]
        session.learn("tokenizer", print_, f"{len(ids)} ids of a fixed text")


async def probe_efforts(session: Session) -> None:
    """An effort is real when the template renders it unlike one that nobody knows."""
    base = await _rendered(session, None)
    unknown = await _rendered(session, _BOGUS)
    if base is None or unknown is None:
        session.check("efforts", None, "the prompt cannot be rendered through /tokenize")
        return
    rendered = {effort: await _rendered(session, effort) for effort in EFFORTS if effort != "none"}
    real = {effort: ids for effort, ids in rendered.items() if ids is not None and ids != unknown}
    if not real and unknown == base:
        session.learn("efforts", (), "the template renders every effort alike")
        session.check("efforts", True, "no effort control")
        return
    if unknown != base:  # printed as it comes: whether the model knows it cannot be seen
        session.check("efforts", None, "the template prints any effort as it is")
        return
    same = [effort for effort, ids in rendered.items() if ids == base]
    default = await _named(session, base, same)
    names = {default, *[await _named(session, ids, _alike(real, ids)) for ids in set(real.values())]} - {None}
    efforts = tuple(effort for effort in EFFORTS if effort in names)
    session.learn("efforts", efforts, f"rendered unlike the default: {', '.join(real)}")
    if default is not None:
        session.learn("default_effort", default, f"rendered like no effort: {', '.join(same)}")
    session.check("efforts", True, ", ".join(efforts))


def _piece(text: str) -> str:
    """Something said in the middle: at the end the token limit and the stop string would meet."""
    pieces = _WORD.findall(text) or [piece for piece in (text[len(text) // 2 :][:3].strip(),) if len(piece) == 3]
    return pieces[len(pieces) // 2] if pieces else ""


def _alike(rendered: dict[str, tuple[int, ...]], ids: tuple[int, ...]) -> list[str]:
    return [effort for effort, other in rendered.items() if other == ids]


async def _named(session: Session, ids: tuple[int, ...], names: list[str]) -> str | None:
    """Which of several efforts that render alike it is: the one named in the rendered text, else the strongest."""
    if len(names) < 2:
        return names[0] if names else None
    data = decoded((await session.post("/detokenize", {"model": session.model, "tokens": list(ids)})).body)
    text = str(data.get("prompt") or data.get("text") or "").lower()
    shown = [name for name in names if re.search(rf"\b{name}\b", text)]
    return (shown or names)[-1]


async def _rendered(session: Session, effort: str | None) -> tuple[int, ...] | None:
    kwargs = {} if effort is None else {"chat_template_kwargs": {"reasoning_effort": effort}}
    return await _ids(session, {"messages": [{"role": "user", "content": PROMPT}], **kwargs})


async def _ids(session: Session, body: dict[str, Any]) -> tuple[int, ...] | None:
    answer = await session.post("/tokenize", {"model": session.model, **body})
    tokens = decoded(answer.body).get("tokens") if answer.status == 200 else None
    return tuple(tokens) if isinstance(tokens, list) and tokens else None


def _thinking(*, on: bool) -> dict[str, bool]:
    return {"enable_thinking": on, "thinking": on}


def _shape(answer: ChatAnswer) -> str:
    if answer.status != 200:
        return f"{answer.status} {answer.error}"
    return (
        f"{len(answer.reasoning)} characters of reasoning, {len(answer.content)} of answer, "
        f"finish {answer.choice.get('finish_reason')}"
    )
