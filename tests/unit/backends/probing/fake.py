"""An engine in memory that answers as its switches say. One token is one word."""

import json
from dataclasses import dataclass, field

from backends.probing.client import Answer

NUMBERS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
WORDS = tuple(NUMBERS.split())
GLM_NAMES = {"low": "Low", "high": "High"}
OPENAPI = {
    "vllm": (
        "/v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/messages/count_tokens /tokenize "
        "/detokenize /inference/v1/generate /generative_scoring /v1/chat/completions/render /v1/completions/render"
    ),
    "sglang": (
        "/v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/messages/count_tokens /v1/embeddings "
        "/v1/rerank /v1/tokenize /v1/detokenize"
    ),
    "nim": "",
}
HIDDEN = {"sglang": {"/tokenize", "/detokenize"}, "vllm": set()}
HIDDEN["nim"] = set(OPENAPI["vllm"].split()) - {
    "/inference/v1/generate",
    "/generative_scoring",
    "/v1/chat/completions/render",
    "/v1/completions/render",
}


@dataclass
class FakeEngine:
    """Switches of the engine, and `asked`: every request it got."""

    kind: str = "vllm"
    model: str = "glm"
    frontend: str = "python"
    efforts: str = "glm"  # glm, none, verbatim
    reasoning: str = "always"  # always, offable, never
    stop_in_reasoning: bool = True
    image: bool = True
    storage: bool = False
    cached: bool = True
    tools: frozenset = frozenset({"auto", "required", "named"})
    obeys: bool = True
    scale_out: bool = True
    max_logprobs: int = 20
    context: int = 1_048_576
    version: str = "0.32.0"
    broken: frozenset = frozenset()  # paths that answer 500
    asked: list = field(default_factory=list)
    seen: set = field(default_factory=set)

    async def get(self, path):
        self.asked.append(("GET", path))
        if path in self.broken:
            return self._error(500, "broken")
        return self._get(path.partition("?")[0])

    async def post(self, path, body):
        self.asked.append(("POST", path, body))
        if path in self.broken:
            return self._error(500, "broken")
        if path not in {*OPENAPI[self.kind].split(), *HIDDEN[self.kind]}:
            return self._json(404, {"detail": "Not Found"})
        if not body:
            return self._error(400, "1 validation error: nothing")
        name = path.removeprefix("/v1").strip("/").replace("/", "_")
        return getattr(self, f"_{name}", self._gated)(body)

    # --- facts ---

    def _get(self, path):
        if path == "/v1/models":
            card = {"id": self.model, "object": "model", "parent": None, "max_model_len": self.context}
            return self._json(200, {"data": [card, {"id": "sql", "parent": self.model, "max_model_len": self.context}]})
        if path == "/openapi.json" and self.kind != "nim":
            return self._json(200, {"paths": {route: {"post": {}} for route in OPENAPI[self.kind].split()}})
        if path == "/version" and self.kind == "vllm":
            server = {"server": "uvicorn"} if self.frontend == "python" else {}
            return Answer(
                200, {"content-type": "application/json", **server}, b'{"version":"%b"}' % self.version.encode()
            )
        if path == "/metrics" and self.kind == "vllm":
            labels = 'block_size="16",cache_dtype="fp8",prefix_caching_hash_algo="sha256_cbor",kv_cache_layout="HND"'
            return Answer(200, {}, f"vllm:cache_config_info{{{labels}}} 1.0\n".encode())
        if path == "/server_info" and self.kind == "sglang":
            return self._json(
                200, {"page_size": 64, "version": "0.5.23", "frontend": "python", "tool_call_parser": "glm47"}
            )
        if path == "/v1/metadata" and self.kind == "nim":
            return self._json(200, {"profile_name": "sglang-gb200-nvfp4-tp4-pp1-throughput"})
        if path.startswith("/v1/responses/") and self.storage:
            return self._json(200, {"id": path.rpartition("/")[2]})
        return self._json(404, {"detail": "Not Found"})

    # --- the prompt ---

    def _render(self, body):
        effort = (body.get("chat_template_kwargs") or {}).get("reasoning_effort", body.get("reasoning_effort"))
        head = {
            "glm": f"Reasoning Effort: {GLM_NAMES.get(effort, 'Max')}\n",
            "verbatim": f"Reasoning: {effort or 'medium'}\n",
            "none": "",
        }[self.efforts]
        return head + "".join(str(message["content"]) for message in body["messages"]) + "<think>"

    def _tokenize(self, body):
        text = body["prompt"] if "prompt" in body else self._render(body)
        tokens = [ord(letter) for letter in text]
        return self._json(200, {"count": len(tokens), "tokens": tokens, "max_model_len": self.context})

    def _detokenize(self, body):
        return self._json(200, {"prompt": "".join(chr(token) for token in body["tokens"])})

    # --- generation ---

    def _chat_completions(self, body):
        refusal = self._refusal(body)
        if refusal:
            return self._error(400, refusal)
        prompt = self._render(body)
        off = self.reasoning == "offable" and (body.get("chat_template_kwargs") or {}).get("enable_thinking") is False
        thinks = self.reasoning != "never" and not off
        message, finish = self._say(body, thinks=thinks)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 12, "total_tokens": 24}
        if self.cached:
            usage["prompt_tokens_details"] = {"cached_tokens": 32 if prompt in self.seen else 0}
        self.seen.add(prompt)
        if body.get("stream"):
            frames = [{"choices": [{"index": 0, "delta": message}]}, {"choices": [], "usage": usage}]
            text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames) + "data: [DONE]\n\n"
            return Answer(200, {"content-type": "text/event-stream"}, text.encode())
        choice = {"index": 0, "message": message, "finish_reason": finish}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": "one", "logprob": -0.1}]}
        return self._json(200, {"id": "c", "choices": [choice], "usage": usage})

    def _refusal(self, body):
        choice = body.get("tool_choice")
        mode = "named" if isinstance(choice, dict) else choice
        if mode and mode not in self.tools:
            return f"{mode} is not supported"
        if body.get("top_logprobs", 0) > self.max_logprobs:
            return f"Requested sample logprobs of 20, which is greater than max allowed: {self.max_logprobs}"
        if not self.image and isinstance(body["messages"][0]["content"], list):
            return "glm is not a multimodal model"
        return ""

    def _say(self, body, *, thinks):
        content = self._bound(body) if self.obeys else ""
        if body.get("tool_choice") not in (None, "auto") and self.obeys:
            call = {"id": "call_1", "type": "function", "function": {"name": "report", "arguments": '{"word":"one"}'}}
            return {"role": "assistant", "content": "", "tool_calls": [call], **self._reason("so")}, "tool_calls"
        if content:
            return {"role": "assistant", "content": content, **self._reason("so" if thinks else "")}, "stop"
        said = WORDS[: body["max_tokens"]]
        stops = body.get("stop") or []
        if stops and stops[0] in said and (self.stop_in_reasoning or not thinks):
            said, finish = said[: said.index(stops[0])], "stop"
        else:
            finish = "length"
        text = " ".join(said)
        if thinks:
            return {"role": "assistant", "content": None, **self._reason(text)}, finish
        return {"role": "assistant", "content": text, **self._reason("")}, finish

    def _bound(self, body):
        kind = (body.get("response_format") or {}).get("type")
        if kind:
            return '{"ok":true}'
        return "yes" if {"regex", "ebnf", "structured_outputs"} & set(body) else ""

    def _reason(self, text):
        return {"reasoning" if self.kind == "vllm" else "reasoning_content": text or None}

    # --- the rest ---

    def _responses(self, body):
        return self._json(200, {"id": "resp_1", "status": "completed"})

    def _embeddings(self, body):
        return self._error(400, "This model does not appear to be an embedding model by default.")

    _rerank = _embeddings

    def _gated(self, body):
        return self._json(200, {}) if self.scale_out else self._error(403, "Scale-out endpoints are disabled.")

    def _error(self, status, message):
        return self._json(status, {"error": {"message": message, "type": "BadRequestError", "code": status}})

    def _json(self, status, data):
        return Answer(status, {"content-type": "application/json"}, json.dumps(data).encode())
