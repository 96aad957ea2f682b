"""Sample traffic of the demo: a few streamed questions over one long, shared beginning."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import typer

from gateway.cli.output import UserError, print_table

_BEGINNING = "You answer questions about rivers, dams and turbines, briefly and in plain words. " * 20
_QUESTIONS = ("What is a headrace?", "What is a tailrace?", "Why does head matter more than flow?")
_MAX_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one question. Times in milliseconds."""

    model: str
    pool: str
    first_ms: float
    total_ms: float
    prompt_tokens: int
    cached_tokens: int
    text: str


def send_samples(base: str, models: Sequence[str]) -> None:
    """Ask each model each question and print what came back. Raises UserError when an answer fails."""
    answers = [ask(base, model, question) for question in _QUESTIONS for model in models]
    head = ("MODEL", "POOL", "FIRST MS", "TOTAL MS", "PROMPT", "CACHED", "TEXT")
    rows = (
        (a.model, a.pool, f"{a.first_ms:.1f}", f"{a.total_ms:.1f}", a.prompt_tokens, a.cached_tokens, a.text[:60])
        for a in answers
    )
    typer.echo()
    print_table(head, rows)


def ask(base: str, model: str, question: str) -> Answer:
    """One streamed chat completion. Raises UserError when it is refused or breaks off."""
    messages = [{"role": "system", "content": _BEGINNING}, {"role": "user", "content": question}]
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": _MAX_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=120)
    start = time.monotonic()
    try:
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise UserError(f"sample request: status {response.status}: {response.read(500)!r}")
        return _read(response, model, start)
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"sample request: {error!r}") from None
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse, model: str, start: float) -> Answer:
    text, first = "", 0.0
    usage: dict[str, Any] = {}
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line.removeprefix(b"data: "))
        if "error" in chunk:
            raise UserError(f"sample request: {chunk['error'].get('message')}")
        delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
        text += delta.get("content") or ""
        first = first or (time.monotonic() if text else 0.0)
        usage = chunk.get("usage") or usage
    end = time.monotonic()
    details = usage.get("prompt_tokens_details") or {}
    return Answer(
        model=model,
        pool=response.headers.get("x-gateway-pool", "-"),
        first_ms=((first or end) - start) * 1000,
        total_ms=(end - start) * 1000,
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=details.get("cached_tokens") or 0,
        text=" ".join(text.split()),
    )
