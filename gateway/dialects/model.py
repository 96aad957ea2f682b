"""The canonical request: turns, parts, tools, limits, and what a contract filter asks about it.

Chat is the hub: engines are driven in it. So requests in Chat and Completions keep their messages or prompt as the
bytes the client sent (`raw`), while Responses and Messages are read into `turns`. Order is sacred: one list, and
system turns stay where they were.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from backends.contracts import DialectName

Role = Literal["system", "developer", "user", "assistant", "tool"]
Visible = Literal["full", "none", "unasked"]  # unasked: shown only where a pool is set to show it always


class TextPart(msgspec.Struct):
    """Plain text."""

    text: str


class ImagePart(msgspec.Struct):
    """An image: `url` is http(s) or a data URL."""

    url: str
    detail: str | None = None


class MediaPart(msgspec.Struct):
    """Audio or video as the Chat content part that carries it."""

    part: dict[str, Any]


class ReasoningPart(msgspec.Struct):
    """Reasoning of an earlier assistant turn. `family` is the model it was sealed for; None: not out of our seal."""

    text: str
    family: str | None = None


class ToolCallPart(msgspec.Struct):
    """A call the model made. `arguments` is the exact string; `name` is the engine's (flattened) name."""

    call_id: str
    name: str
    arguments: str


class ToolResultPart(msgspec.Struct):
    """What a tool returned; text and images in order."""

    call_id: str
    parts: list[TextPart | ImagePart | MediaPart]


Part = TextPart | ImagePart | MediaPart | ReasoningPart | ToolCallPart | ToolResultPart


class Turn(msgspec.Struct):
    """One turn at its place. A tool turn holds one `ToolResultPart`."""

    role: Role
    parts: list[Part]
    name: str | None = None


class Tool(msgspec.Struct):
    """A tool the model may call, under the name the engine sees (see `tools.Names` for the way back)."""

    name: str
    description: str | None
    schema: Any  # JSON schema of the arguments
    strict: bool | None = None
    defer: bool = False


class ToolChoice(msgspec.Struct):
    """`named` lists one name (the engine's); `allowed` was already applied to the tool list."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool | None = None


class Format(msgspec.Struct):
    """Form of the answer. `schema` and the rest only with `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "response"
    schema: Any = None
    strict: bool | None = None
    description: str | None = None


class Reasoning(msgspec.Struct):
    """What the client asked of reasoning. `effort` is a name or, SGLang's extension, a float in 0..1."""

    effort: str | float | None = None
    budget: int | None = None
    visible: Visible = "full"
    omitted: bool = False  # Messages display "omitted": a block with its signature but without text
    encrypted: bool = False  # Responses: sealed reasoning in each reasoning item
    clear: bool | None = None  # clear_thinking of the chat template


class Traits(msgspec.Struct, frozen=True):
    """What the contract filter and admission ask: all of it known before a pool is chosen."""

    modalities: frozenset[str] = frozenset()  # of image, audio, video, document: beyond text
    tools: bool = False
    tool_choice: Literal["auto", "none", "required", "named"] = "auto"
    format: Literal["text", "json_object", "json_schema"] = "text"
    grammar: Literal["regex", "grammar"] | None = None  # a constraint beyond `format`
    logprobs: bool = False
    top_logprobs: int = 0
    n: int = 1
    effort: str | float | None = None
    stops: int = 0
    max_output: int | None = None
    stream: bool = False
    prompt_bytes: int = 0  # size of the request body: an upper bound for estimates


class Scan(msgspec.Struct):
    """What one look at Chat messages found."""

    modalities: set[str] = msgspec.field(default_factory=set)
    edits: bool = False  # some message must be rewritten for every engine
    developer: bool = False  # some message has the role `developer`
    reasoning: bool = False  # some message spells its reasoning `reasoning`
    thinking: bool = False  # the body contains `</think>`


class Request(msgspec.Struct, kw_only=True):
    """One request, understood. Made by a dialect's `decode_request`; nothing in it depends on the pool."""

    dialect: DialectName
    model: str  # as the client sent it; echoed
    stream: bool
    traits: Traits
    body: bytes  # the client's bytes
    raw: dict[str, msgspec.Raw]  # the client's top-level fields
    engine_path: str = "/v1/chat/completions"  # what a pool must have to serve it
    turns: list[Turn] = []
    tools: list[Tool] = []
    tool_choice: ToolChoice = msgspec.field(default_factory=ToolChoice)
    format: Format = msgspec.field(default_factory=Format)
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    stops: tuple[str, ...] = ()
    max_output: int | None = None
    forward: dict[str, msgspec.Raw] = {}  # fields the engine understands as they are
    names: dict[str, Any] = {}  # engine tool name -> tools.Origin, for tools that were renamed or wrapped
    include_usage: bool = False
    echo: dict[str, Any] = {}  # what a Responses resource repeats of the request
    items: list[dict[str, Any]] = []  # Responses: the input items, for a store
    previous_response_id: str | None = None
    store: bool = False
    background: bool = False
    context_stop: bool = False  # Messages: the client knows the stop reason of a full window
    referring: bool = False  # some input item only names a stored one: whoever has the store calls `extend`
    cache_salt: str | None = None  # the client's own; the pool's salt is derived from it and the tenant
    cache_key: str | None = None  # affinity hint
    session: str | None = None  # affinity hint: a conversation id named by the client
    end_user: str | None = None
    ignored: list[str] = []  # -> x-gateway-ignored-params
    dropped_tools: list[str] = []  # -> x-gateway-dropped-tools
    warnings: list[str] = []  # for the trace
    direct: bool = False  # Chat: `direct.encode_direct` may write it; `raw` is empty then
    legacy_functions: bool = False  # Chat: the deprecated `functions`, answered in kind
    plain_tools: bool = False  # Chat: the client's `tools` can go on as they are
    referenced: set[str] = msgspec.field(default_factory=set)  # deferred tools that the history made known
    template_kwargs: dict[str, Any] | None = None  # chat_template_kwargs without those that steer reasoning
    messages: Scan = msgspec.field(default_factory=Scan)  # Chat
