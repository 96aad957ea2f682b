"""Made-up but stable log probabilities, in the shapes both engines share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backends.simulator.answers import Token
from backends.simulator.tokenizer import WORDS


def logprob(token: int) -> float:
    """A stable value in (-2, 0] for a token id."""
    return -((token * 2_654_435_761) % 1999) / 1000


def chat_logprobs(tokens: Sequence[Token], top: int) -> dict[str, Any]:
    """`logprobs` of a chat choice or chunk."""
    return {"content": [{**_entry(t.text, logprob(t.id)), "top_logprobs": _top(t, top)} for t in tokens]}


def completion_logprobs(tokens: Sequence[Token], top: int, offset: int) -> dict[str, Any]:
    """`logprobs` of a completions choice or chunk; `offset` is where the first token begins in the text."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "text_offset": offsets,
        "token_logprobs": [logprob(t.id) for t in tokens],
        "tokens": [t.text for t in tokens],
        "top_logprobs": [{e["token"]: e["logprob"] for e in _top(t, top)} for t in tokens],
    }


def _top(token: Token, count: int) -> list[dict[str, Any]]:
    best = logprob(token.id)
    others = (WORDS[(token.id + i) % len(WORDS)] for i in range(1, count))
    entries = [_entry(token.text, best)] + [_entry(f" {word}", best - i) for i, word in enumerate(others, 1)]
    return entries[:count]


def _entry(text: str, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": list(text.encode())}
