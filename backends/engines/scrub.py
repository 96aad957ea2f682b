"""Engine messages made fit for a client: no file paths, addresses, request ids, inputs or stack traces."""

from __future__ import annotations

import re
from typing import Final

_LIMIT: Final = 400  # characters of a message that reach a client
_ENTRY = re.compile(
    r"'loc': (?P<loc>\([^)]*\)|\[[^\]]*\]|'[^']*'), 'msg': (?P<msg>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")",
)
_HEADING = re.compile(r"^\d+ validation errors?[^\n]*\n?\s*")
_PYDANTIC = re.compile(r"\s*\[type=.*?input_type=\w+\]|\s*For further information visit \S+", re.DOTALL)
_STACK = re.compile(r"\s*(?:Traceback \(most recent|\n\s*File \"|See stack trace).*", re.DOTALL)
_SUFFIX = re.compile(r"\s*\(parameter=(\w+)(?:, value=.*)?\)\s*$", re.DOTALL)
_ALIASES = re.compile(r"\s*Valid aliases:.*", re.DOTALL)
_SECRETS: Final = (
    (re.compile(r"\b[a-z][a-z+.-]*://[^\s'\"]+"), "<url>"),
    (re.compile(r"(?<![\w./])/(?!v1/)[\w.@+-]+(?:/[\w.@+-]+)+/?"), "<path>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (
        re.compile(r"\[[0-9a-fA-F.]*:[0-9a-fA-F:.]*\](?::\d+)?|(?<![\w:])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]+"),
        "<address>",
    ),
    (re.compile(r"\b0x[0-9a-fA-F]{4,}\b"), "<address>"),
    (re.compile(r"'input': (?:'(?:[^'\\]|\\.)*'|\{.*?\}|\[.*?\]|[^,}]*)"), "'input': <hidden>"),
    (re.compile(r"\b(?:\w+\.)*(?:rid|request_id)\s*=\s*'?[\w-]+'?"), "<request>"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "<id>"),
    (re.compile(r"'[^']{65,}'|\"[^\"]{65,}\""), "<hidden>"),
)


def validation(message: str) -> tuple[str, str | None] | None:
    """A schema error as `field: reason; field: reason` and its first field; None when it is none.

    Engines print pydantic's error dicts with the input and, SGLang, the source file: only place and reason are kept.
    """
    entries = dict.fromkeys((_place(entry["loc"]), entry["msg"][1:-1]) for entry in _ENTRY.finditer(message))
    if not entries:
        return None
    lines = [f"{place}: {reason}" if place else reason for place, reason in entries]
    return _cut(_mask("; ".join(lines))), next(iter(entries))[0] or None


def scrub(message: str) -> str:
    """One line of at most 400 characters without anything that tells of the host or of the request's content."""
    text = _STACK.sub("", message)
    text = _PYDANTIC.sub("", _HEADING.sub("", text))
    text = _SUFFIX.sub("", _ALIASES.sub("", text))
    return _cut(_mask(" ".join(text.split())))


def parameter(message: str) -> str | None:
    """The field in vLLM's suffix `(parameter=max_tokens, value=0)`."""
    found = _SUFFIX.search(message)
    return found[1] if found else None


def tidy_param(param: str | None) -> str | None:
    """The engine's `param` as the client knows the field: without `body.`/`header.` and offsets into the bytes."""
    if not param:
        return None
    text = param.removeprefix("body").removeprefix("header").removeprefix(".")
    return None if not text or text.isdecimal() else text


def _place(loc: str) -> str:
    if loc.startswith("'"):
        return tidy_param(loc[1:-1]) or ""
    parts = [part.strip().strip("'\"") for part in loc[1:-1].split(",")]
    parts = [part for part in parts if part]
    return tidy_param(".".join(parts)) or ""


def _mask(text: str) -> str:
    for pattern, stand_in in _SECRETS:
        text = pattern.sub(stand_in, text)
    return text


def _cut(text: str) -> str:
    return text if len(text) <= _LIMIT else text[: _LIMIT - 1] + "…"
