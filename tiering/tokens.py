"""Token ids of a chat prompt, as the engine will see them: its chat template and tokenizer, run here.

Needs the extra `precise`. Templates come with model files, so they run in jinja2's immutable sandbox. Special tokens
cut a rendered prompt into pieces, encoded on their own and remembered: a further turn costs its new text only.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from backends.contracts import Clock
from tiering.hashing.scheme import Tokens
from tiering.memo import BoundedMemo

# What an engine writes between the text parts of one message when the template expects a single text.
JOINT: Mapping[str, str] = {"vllm": "\n", "sglang": " "}
_MEMO_TOKENS = 2_000_000
_PROBE = "Hello  world,\n\n\tthis is a test: 1234567 äöü 你好 👋🏽\n"


class UntokenizableError(ValueError):
    """The prompt holds what no local tokenizer can turn into ids (images, audio), or the template refuses it."""


class Encoder(Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Any:
        """An encoding with `.ids`."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of `ids`."""
        ...

    def get_added_tokens_decoder(self) -> Mapping[int, Any]:
        """Added tokens by id."""
        ...


class ChatTemplate:
    """A model's chat template."""

    __slots__ = ("_constants", "_joint", "_template")

    def __init__(self, source: str, clock: Clock, *, joint: str = JOINT["vllm"], **constants: str) -> None:
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: time.strftime(form, time.localtime(clock.time()))
        self._template = environment.from_string(source)
        self._joint = joint
        self._constants = constants

    def render(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """The prompt as text. `variables`: tools, add_generation_prompt, and chat_template_kwargs of the request.

        Raises UntokenizableError.
        """
        plain = [_plain(message, self._joint) for message in messages]
        variables = {"add_generation_prompt": True, "tools": None, **self._constants, **variables}
        try:
            return self._template.render(messages=plain, **variables)
        except (UntokenizableError, RecursionError, MemoryError):
            raise
        except Exception as error:
            raise UntokenizableError(f"chat template: {type(error).__name__}") from error


class ChatTokenizer:
    """Tokenizer and chat template of one pool."""

    __slots__ = ("_encoder", "_memo", "_special", "_template")

    def __init__(self, encoder: Encoder, template: ChatTemplate, *, memo_tokens: int = _MEMO_TOKENS) -> None:
        self._encoder = encoder
        self._template = template
        self._memo: BoundedMemo[str, list[int]] = BoundedMemo(memo_tokens)
        self._special = self._cutter()

    @classmethod
    def load(cls, folder: Path, clock: Clock, engine: str = "vllm") -> ChatTokenizer:
        """From a model's files: tokenizer.json, tokenizer_config.json, chat_template.jinja; as `engine` uses them.

        Raises OSError, ValueError, or ImportError without the extra `precise`.
        """
        from tokenizers import Tokenizer

        config = json.loads((folder / "tokenizer_config.json").read_text())
        separate = folder / "chat_template.jinja"
        source = separate.read_text() if separate.exists() else config.get("chat_template")
        if not isinstance(source, str):
            raise ValueError(f"{folder.name} has no single chat template")
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        constants = {name: _content(config[name]) for name in names if config.get(name)}
        joint = "vllm" if engine == "vllm" else "sglang"
        try:
            encoder = Tokenizer.from_file(str(folder / "tokenizer.json"))
            return cls(encoder, ChatTemplate(source, clock, joint=JOINT[joint], **constants))
        except Exception as error:  # the library raises nothing more precise, and jinja2 its own
            raise ValueError(f"{folder.name} cannot be used: {error}") from error

    def chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> Tokens:
        """Ids (n,) of a chat prompt. Raises UntokenizableError."""
        return self.encode(self._template.render(messages, **variables))

    def encode(self, text: str) -> Tokens:
        """Ids (n,) of rendered text; special tokens are recognised, none are added."""
        if self._special is None:
            return np.array(self._encoder.encode(text, add_special_tokens=False).ids, np.uint32)
        ids: list[int] = []
        for piece in self._special.split(text):
            if piece:
                ids += self._piece(piece)
        return np.array(ids, np.uint32)

    def agrees(self, ids: Sequence[int]) -> bool:
        """Whether this tokenizer makes the same ids of the text of `ids`: evidence that it is the engine's own."""
        try:
            text = self._encoder.decode(list(ids), skip_special_tokens=False)
        except (OverflowError, ValueError, TypeError):
            return False
        mine = self._encoder.encode(text, add_special_tokens=False).ids
        # The sample may end within a character or a word: the last ids prove nothing.
        return bool(mine[: max(len(ids) - 8, 1)] == list(ids[: max(len(ids) - 8, 1)]))

    def _piece(self, piece: str) -> list[int]:
        known = self._memo.get(piece)
        if known is None:
            known = self._encoder.encode(piece, add_special_tokens=False).ids
            self._memo.put(piece, known, len(known) + 16)
        return known

    def _cutter(self) -> re.Pattern[str] | None:
        """Cuts text around special tokens; None when pieces do not encode to the same ids as the whole."""
        tokens = self._encoder.get_added_tokens_decoder().values()
        special = sorted((token.content for token in tokens if token.special), key=len, reverse=True)
        if not special or any(token.lstrip or token.rstrip or token.single_word for token in tokens):
            return None
        cutter = re.compile("(" + "|".join(re.escape(content) for content in special) + ")")
        probe = _PROBE + special[0] + _PROBE + special[-1] + " " + _PROBE + special[0]
        whole = self._encoder.encode(probe, add_special_tokens=False).ids
        pieces = [self._encoder.encode(piece, add_special_tokens=False).ids for piece in cutter.split(probe) if piece]
        return cutter if [id_ for ids in pieces for id_ in ids] == whole else None


def _plain(message: Mapping[str, Any], joint: str) -> dict[str, Any]:
    """A message as engines hand it to templates: content as one text, arguments of tool calls as objects."""
    result = dict(message)
    content = result.get("content")
    if isinstance(content, list):
        if any(part.get("type") not in {"text", "input_text", "output_text", "refusal"} for part in content):
            raise UntokenizableError("content that is not text")
        result["content"] = joint.join(part.get("text") or part.get("refusal") or "" for part in content)
    if result.get("tool_calls"):
        result["tool_calls"] = [_call(call) for call in result["tool_calls"]]
    return result


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError as error:
            raise UntokenizableError("arguments of a tool call are no JSON") from error
    return {**call, "function": function}


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise UntokenizableError(f"chat template: {message}")


def _content(token: str | Mapping[str, str]) -> str:
    return token if isinstance(token, str) else token["content"]
