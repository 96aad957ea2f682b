"""SGLang (0.5.17 and later): OpenAI server on uvicorn. Facts seen on 0.5.23."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from backends.contracts import EngineFailure, Fault, Load
from backends.counters import Copies, Counters
from backends.engines.base import EngineSpec
from backends.engines.errors import classify, opaque, read_error
from backends.engines.handover import Handover, Link, read, written
from backends.engines.jsonfacts import decoded, known, number_format
from backends.engines.prometheus import Gauges

_RUNNING = "sglang:num_running_reqs"
_WAITING = "sglang:num_queue_reqs"
_KV_USED = "sglang:token_usage"
_CAPACITY = "sglang:max_total_num_tokens"
_GAUGES = Gauges(_RUNNING, _WAITING, _KV_USED, _CAPACITY)
_GENERATED = "sglang:generation_tokens_total"
_PER_STEP = "sglang:spec_accept_length"
_LOADED = "sglang:load_back_tokens_total"
_LOADS, _LOAD_S = "sglang:load_back_duration_seconds_count", "sglang:load_back_duration_seconds_sum"
_READ = "sglang:prefetched_tokens_total"
# Only storage that measures itself (3FS, Mooncake) fills these.
_READS, _READ_RATES = "sglang:prefetch_bandwidth_count", "sglang:prefetch_bandwidth_sum"
_COUNTERS = Gauges(_GENERATED, _PER_STEP, _LOADED, _LOADS, _LOAD_S, _READ, _READS, _READ_RATES)
_RATE_UNIT = float(1 << 30)  # what the bandwidths are in, bytes per second
# Fields only the gateway sets: an engine that refuses one is not refusing the client.
_STEERING = re.compile(r"dp_rank|X-Data-Parallel-Rank|bootstrap|Duplicate request ID")
_ABORTED = b'"finish_reason":"abort"'
_PAIRED_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})


class SglangHandover:
    """Both servers get the same request at once and meet in a room of the prefill server's bootstrap server."""

    together = True
    alone = False  # refused without a room

    def divides(self, path: str, body: bytes) -> bool:  # noqa: ARG002
        """Everything that generates: a decode server cannot do without a partner."""
        return path in _PAIRED_PATHS

    def prefill(self, body: bytes, link: Link) -> bytes:
        """The whole request: the first token of the answer is sampled here."""
        fields = _meeting(body, link)
        fields.pop("stream_options", None)
        return written({**fields, "stream": False})

    def decode(self, body: bytes, link: Link, answer: bytes) -> bytes:  # noqa: ARG002
        """The request as it is, and where to meet."""
        return written(_meeting(body, link))


def _meeting(body: bytes, link: Link) -> dict[str, Any]:
    return {
        **read(body),
        "bootstrap_host": link.host,
        "bootstrap_port": link.port,
        "bootstrap_room": link.room,
    }


class Sglang:
    """The `sglang` kind."""

    handover: Handover | None = SglangHandover()
    spec = EngineSpec(
        name="sglang",
        ready_path="/ready",  # a flag; /health generates a token and takes a second
        load_path="/v1/loads",
        counters_path="/metrics",  # only with --enable-metrics
        abort_path="/abort_request",
        rid_field="rid",
        reasoning_field="reasoning_content",
        idle_limit_s=4.0,  # SGLANG_TIMEOUT_KEEP_ALIVE is 5 s
        lower_priority_first=False,
        fact_paths=("/server_info", "/model_info"),
        cached_tokens_flag="--enable-cache-report",
        paths=frozenset(
            {
                "/v1/chat/completions",
                "/v1/completions",
                "/v1/responses",
                "/v1/messages",
                "/v1/messages/count_tokens",
                "/v1/embeddings",
                "/v1/rerank",
                "/v1/tokenize",
                "/v1/detokenize",
                "/tokenize",
                "/detokenize",
            },
        ),
    )

    def parse_load(self, body: bytes, now_s: float) -> Load:
        """Sum `/v1/loads` over the DP ranks; `kv_used` is their mean. Prometheus text is read too."""
        return _from_json(body, now_s) if body.lstrip()[:1] == b"{" else _from_metrics(body, now_s)

    def parse_counters(self, body: bytes) -> Counters:
        """Sum `/metrics` over the DP ranks, of whose TP ranks each says the same of itself."""
        totals: dict[str, float] = {}
        speculating = 0
        for name, labels, value in _COUNTERS.samples(body):
            # Hybrid models restore their states from pools of their own.
            if value > 0.0 and _is_first(labels) and labels.get("pool", "kv") == "kv":
                totals[name] = totals.get(name, 0.0) + value
                speculating += name == _PER_STEP
        get = totals.get
        return Counters(
            generated=get(_GENERATED, 0.0),
            per_step=get(_PER_STEP, 0.0) / max(speculating, 1),
            host=Copies(count=get(_LOADS, 0.0), tokens=get(_LOADED, 0.0), seconds=get(_LOAD_S, 0.0)),
            fs=Copies(count=get(_READS, 0.0), tokens=get(_READ, 0.0), rates=_RATE_UNIT * get(_READ_RATES, 0.0)),
        )

    def failure(self, status: int, content_type: str, body: bytes, retry_after: str = "") -> EngineFailure:
        """Flat errors on Chat and Completions, nested on Responses, Anthropic's on Messages, `detail` from routes."""
        error = read_error(body)
        if error is None:
            return opaque(status, content_type, retry_after)
        return classify(error, status, steering=_STEERING, retry_after=retry_after)

    def frame_failure(self, payload: bytes) -> EngineFailure | None:
        """A refusal sent with status 200 (a full queue comes so on streams), or an answer that the engine aborted."""
        if b'"error"' in payload or b'"meta_info"' in payload:
            error = read_error(payload)
            if error is not None:
                return classify(error, 200, steering=_STEERING)
        if _ABORTED in payload:
            return EngineFailure(Fault.TRUNCATED, "the engine aborted the answer", status=200)
        return None

    def facts(self, path: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:  # noqa: ARG002
        """Resolved flags from /server_info, weights and model from /model_info."""
        data = decoded(body)
        if path == "/server_info":
            return _server(data)
        if path == "/model_info":
            version = data.get("weight_version")
            return known(revision=version if version != "default" else None, tool_parser=data.get("tool_call_parser"))
        return {}

    def constrained(self, form: Literal["regex", "grammar"], text: str) -> Mapping[str, Any]:
        """`regex` and `ebnf` at the top of the body."""
        return {"regex" if form == "regex" else "ebnf": text}


def _server(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Terms of /server_info, which holds every resolved flag."""
    if "page_size" not in info:
        return {}
    draft = info.get("speculative_algorithm")
    return known(
        version=info.get("version"),
        frontend=info.get("frontend"),
        # Unset for checkpoints that are quantised already, so that silence says nothing.
        precision=number_format(info.get("quantization")),
        kv_dtype=number_format(info.get("kv_cache_dtype")),
        block_size=info.get("page_size"),
        kv_layout=info.get("hicache_mem_layout") if info.get("enable_hierarchical_cache") else None,
        spec_method=str(draft or "").lower(),
        spec_tokens=info.get("speculative_num_draft_tokens") or 0,
        priority=bool(info.get("enable_priority_scheduling")),
        tool_parser=info.get("tool_call_parser") or "",
    )


def _from_json(body: bytes, now_s: float) -> Load:
    ranks = decoded(body).get("loads")
    ranks = [rank for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []
    if not ranks:
        return Load(at_s=now_s)
    return Load(
        running=sum(int(_number(rank, "num_running_reqs")) for rank in ranks),
        waiting=sum(int(_number(rank, "num_waiting_reqs")) for rank in ranks),
        waiting_uncached_tokens=sum(int(_number(rank, "num_waiting_uncached_tokens")) for rank in ranks),
        kv_used=sum(_number(rank, "token_usage") for rank in ranks) / len(ranks),
        kv_capacity_tokens=sum(int(_number(rank, "max_total_num_tokens")) for rank in ranks),
        at_s=now_s,
    )


def _from_metrics(body: bytes, now_s: float) -> Load:
    # Every TP rank reports the same figures: only rank 0 of each DP rank counts.
    totals = dict.fromkeys((_RUNNING, _WAITING, _KV_USED, _CAPACITY), 0.0)
    ranks = 0
    for name, labels, value in _GAUGES.samples(body):
        if _is_first(labels):
            totals[name] += value
            ranks += name == _KV_USED
    return Load(
        running=int(totals[_RUNNING]),
        waiting=int(totals[_WAITING]),
        kv_used=totals[_KV_USED] / max(ranks, 1),
        kv_capacity_tokens=int(totals[_CAPACITY]),
        at_s=now_s,
    )


def _is_first(labels: Mapping[str, str]) -> bool:
    """Whether a sample is of the first rank of its DP rank, or of no rank."""
    return labels.get("tp_rank", "0") == "0" and labels.get("pp_rank", "0") == "0"


def _number(rank: Mapping[str, object], key: str) -> float:
    value = rank.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
