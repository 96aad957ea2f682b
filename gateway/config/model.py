"""The configuration as one frozen tree. Units are in the names; unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from gateway.config.contracts import Contract, Media
from gateway.config.node import Name, Node, Positive
from gateway.config.references import FilePath, Secret, SecretUrl


class Tls(Node):
    """Certificate files of the data listener, relative to the configuration file; read again when they change."""

    cert_file: FilePath
    key_file: FilePath


class Cors(Node):
    """Browsers that may call the data port. Empty `origins` answers no preflight."""

    origins: tuple[str, ...] = ()
    max_age_s: int = Field(600, ge=0)


class Listen(Node):
    """The two listeners. The admin port carries metrics, admin API and console."""

    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    admin_host: str = "127.0.0.1"
    admin_port: int = Field(9090, ge=0, le=65535)
    tls: Tls | None = None
    cors: Cors = Cors()
    body_limit_bytes: int = Field(32 * 1024 * 1024, gt=0)
    decompress_ratio_limit: int = Field(100, ge=1)
    drain_s: float = Field(5.0, ge=0)  # /readyz says 503 while the listener still accepts
    shutdown_deadline_s: float = Field(600.0, gt=0)  # then exchanges still in flight are cut
    request_timeout_s: Positive = 60.0  # for a client to send its head, and again its body
    heartbeat_after_s: Positive = 15.0  # of silence on a stream, in the dialect's own form
    websockets: bool = True  # on /v1/responses; clients are told to use plain HTTP otherwise


class Auth(Node):
    """`open` lets everybody in and is refused unless every listener is on loopback."""

    mode: Literal["keys", "open"] = "keys"


class Admin(Node):
    """Bearer token of the admin API: `${ENV}` or `file:PATH`. Without one the admin API answers 401."""

    token: Secret | None = None


class ApiKey(Node):
    """One API key, stored as the SHA-256 of its text (`headrace keys create` makes both)."""

    id: Name
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Tenant(Node):
    """The owner of keys, limits and policy."""

    name: Name
    keys: tuple[ApiKey, ...] = ()
    grants: frozenset[str] = frozenset()  # engine-steering request fields this tenant may send
    models: tuple[str, ...] = ("*",)  # model names it may use; `*` at the end is a wildcard
    show_replica: bool = False  # x-gateway-replica on responses
    routing: str | None = None


class Timeouts(Node):
    """Limits of one attempt. A long prefill is allowed: `first_byte_s` is per pool."""

    connect_s: Positive = 3.0
    first_byte_s: Positive = 300.0
    idle_s: Positive = 120.0
    total_s: Positive = 3600.0


class Breaker(Node):
    """Takes a replica out after failures in a row of live traffic; tried again after `open_s`."""

    enabled: bool = True
    failures: int = Field(5, ge=1)
    open_s: Positive = 10.0
    silent_s: Positive = 60.0  # busy, yet no byte for any exchange for so long: no new exchanges


class Probe(Node):
    """How a replica is watched. `golden` sends tiny generations to learn the pool's contract."""

    interval_s: Positive = 2.0
    timeout_s: Positive = 2.0
    golden: bool = True
    golden_interval_s: Positive = 3600.0
    golden_requests: int = Field(64, ge=1)  # a round ends when it has used these
    golden_tokens: int = Field(16_384, ge=1)
    quiet_exchanges: int = Field(2, ge=0)  # per replica; a round waits while more are in flight, at most one interval
    # A probe that contradicts `contract`: use what was probed, or hold the pool out until somebody decides.
    on_contradiction: Literal["trust", "hold"] = "trust"


class Parallelism(Node):
    """How the deployment is spread over GPUs."""

    tensor: int = Field(1, ge=1)
    data: int = Field(1, ge=1)
    pipeline: int = Field(1, ge=1)
    expert: int = Field(1, ge=1)


class KvEvents(Node):
    """KV-cache events of the engines. Where a replica publishes them is discovered; `kv_events: off` ignores them."""

    enabled: bool = True


class Prefill(Node):
    """The pool whose replicas compute the prompts of a decode pool: their KV is handed over."""

    pool: Name
    bootstrap_port: int = Field(8998, ge=1, le=65535)  # of its replicas, where an engine kind meets through one


def _switch(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


class Pool(Node):
    """Replicas of one deployment: interchangeable with each other, not with another pool."""

    name: Name
    engine: str
    model: str  # the name the engine serves
    replicas: Annotated[tuple[str, ...], Field(min_length=1)]
    api_key: Secret | None = None  # sent to the engine as Bearer: `${ENV}` or `file:PATH`
    revision: str | None = None
    hardware: str | None = None  # hardware profile, e.g. h100-fp8
    gpus: int | None = Field(None, ge=1)  # per replica
    precision: str | None = None
    kv_dtype: str | None = None
    contract: Contract = Contract()  # what else it is said to be able to do
    recipe: str | None = None  # the support matrix it has to be in; by default the one of its served model
    unlisted: bool = False  # serve although the recipe's matrix does not list this GPU, count and precision
    media: Media = Media()
    parallelism: Parallelism = Parallelism()
    timeouts: Timeouts = Timeouts()
    breaker: Breaker = Breaker()
    probe: Probe = Probe()
    kv_events: Annotated[KvEvents, BeforeValidator(_switch, json_schema_input_type=bool | KvEvents)] = KvEvents()
    prefill: Prefill | None = None  # this pool decodes what another one has prefilled
    tokenizer: FilePath | None = None  # folder with tokenizer.json, tokenizer_config.json and the chat template
    obeys_load_tiers: bool = False  # the engine takes kv_transfer_params.kv_load_tiers
    price_per_gpu_hour: Positive = 1.0  # in any unit of money; for the routing profile `cost`
    weight: Positive = 1.0


class Model(Node):
    """A name clients send. `pools` is in order of preference; aliases may end in `*`."""

    name: Name
    aliases: tuple[str, ...] = ()
    pools: Annotated[tuple[str, ...], Field(min_length=1)]
    routing: str | None = None
    spill_after_ms: float = Field(0.0, ge=0)  # the first pool is kept until it costs this much more; 0: no preference
    spill_back_ms: float = Field(0.0, ge=0)  # and taken back once it is within this


class Retry(Node):
    """Retries before the first byte: at most `attempts` per exchange, and `budget` of all exchanges."""

    attempts: int = Field(3, ge=1, le=10)
    budget: float = Field(0.2, ge=0, le=1)
    budget_min: int = Field(10, ge=0)  # always allowed within ten seconds, however little traffic there is


class Limits(Node):
    """What one gateway process accepts at all."""

    exchanges: int = Field(10_000, ge=1)  # in flight; more are refused as overloaded
    choices: int = Field(16, ge=1)  # the largest `n`


class State(Node):
    """Where state that outlives an exchange is kept: memory:// or redis://. A password only as `${ENV}`."""

    url: SecretUrl = Field("memory://", repr=False)
    memory_limit_bytes: int = Field(256 * 1024 * 1024, gt=0)  # of memory://
    store_responses: bool = True  # `store`, `previous_response_id` and `background` of Responses
    responses_ttl_s: Positive = 30 * 86_400.0  # from the last turn that continued them
    response_limit_bytes: int = Field(8 * 1024 * 1024, gt=0)  # of one stored response with its input
    responses_bytes_per_tenant: int = Field(1024 * 1024 * 1024, gt=0)  # then the oldest go
    background_responses: int = Field(256, ge=0)  # at once, per gateway process


class Telemetry(Node):
    """Traces and logs. Errors and slow exchanges are always kept, others by `sample_ratio`."""

    otlp_endpoint: str | None = None  # OTLP/HTTP base, e.g. http://collector:4318
    sample_ratio: float = Field(0.01, ge=0, le=1)
    slow_s: Positive = 30.0
    access_log: bool = True


class Reasoning(Node):
    """How reasoning is shown, and sealed so that clients can bring it back.

    `seal_keys`: secrets shared by all gateways, the current one first; without any, a gateway opens only what it
    sealed itself since it started.
    """

    seal_keys: tuple[Secret, ...] = ()
    messages_show_thinking: Literal["asked", "always"] = "asked"
    responses_reasoning: Literal["summary", "raw", "hidden"] = "summary"
    vault: bool = False  # keep reasoning under the ids of its tool calls, for clients that do not bring it back
    vault_ttl_s: Positive = 3600.0
    vault_bytes_per_tenant: int = Field(64 * 1024 * 1024, gt=0)


class KvIndex(Node):
    """The prefix index. About 25 bytes a block; when it is full, the blocks not stored for longest go."""

    blocks: int = Field(1_000_000, ge=1_000, le=100_000_000)


class Config(Node):
    """The whole configuration."""

    listen: Listen = Listen()
    auth: Auth = Auth()
    admin: Admin = Admin()
    tenants: tuple[Tenant, ...] = ()
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    models: Annotated[tuple[Model, ...], Field(min_length=1)]
    retry: Retry = Retry()
    limits: Limits = Limits()
    reasoning: Reasoning = Reasoning()
    kv_index: KvIndex = KvIndex()
    state: State = State()
    telemetry: Telemetry = Telemetry()
