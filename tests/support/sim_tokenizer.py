"""The simulator's tokenizer and chat template in the form that exact look-ups want of a pool's."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from backends.contracts import Clock
from backends.simulator.tokenizer import Tokenizer
from tiering.tokens import ChatTemplate, ChatTokenizer

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)


class _Encoder:
    """`tokenizers.Tokenizer` as far as `ChatTokenizer` uses it."""

    def __init__(self) -> None:
        self._inner = Tokenizer()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> Any:
        return SimpleNamespace(ids=self._inner.encode(text))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return self._inner.decode(ids)

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        return {}


def sim_tokenizer(clock: Clock, template: str = TEMPLATE) -> ChatTokenizer:
    """What a gateway would load for a pool of simulators."""
    return ChatTokenizer(_Encoder(), ChatTemplate(template, clock))
