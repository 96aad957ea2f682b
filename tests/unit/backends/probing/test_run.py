"""Probed contracts against the truth, written by hand, field by field."""

import pytest

from backends.contract import Source
from backends.engines import builtin
from backends.probing import Budget, Target, probe_pool, unprobed
from backends.probing.client import Answer
from backends.probing.reasoning import _piece
from tests.unit.backends.probing.fake import FakeEngine

ALL = frozenset({"auto", "required", "named"})
FORMATS = frozenset({"json_object", "json_schema", "regex", "grammar"})
COMMON = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"}
COMMON |= {"/tokenize", "/detokenize"}


class At:
    """A clock that stands."""

    def time(self):
        return 1_800_000_000.0

    def monotonic(self):
        return 5.0


async def probe(engine, declared=None, **options):
    hold = options.pop("hold", False)
    target = Target("a", builtin()[engine.kind], engine.model, declared or {}, hold_on_contradiction=hold)
    return await probe_pool(target, engine, clock=At(), **options)


GLM_VLLM_RUST = (
    FakeEngine("vllm", frontend="rust", image=False),
    {
        "endpoints": frozenset(
            COMMON
            | {
                "/inference/v1/generate",
                "/generative_scoring",
                "/v1/chat/completions/render",
                "/v1/completions/render",
            },
        ),
        "dialects": frozenset({"chat", "completions", "responses", "messages"}),
        "frontend": "rust",
        "modalities": frozenset({"text"}),
        "reasoning": True,
        "reasoning_field": "reasoning",
        "reasoning_off": False,
        "efforts": ("low", "high", "max"),
        "default_effort": "max",
        "stop_scope": "everything",
        "tool_modes": ALL,
        "formats": FORMATS,
        "logprobs": 20,
        "storage": False,
        "max_context": 1_048_576,
        "loras": frozenset({"sql"}),
        "cached_tokens": True,
        "cached_tokens_flag": "",
        "abort_path": "",
        "health_cost": "flag",
        "model": "glm",
        "version": "0.32.0",
        "kv_dtype": "fp8",
        "block_size": 16,
        "kv_layout": "HND",
        "hash_algorithm": "sha256_cbor",
    },
)
GLM_NIM = (
    FakeEngine("nim", cached=False),
    {
        "endpoints": frozenset(COMMON),
        "dialects": frozenset({"chat", "completions", "responses", "messages"}),
        "modalities": frozenset({"text", "image"}),
        "reasoning": True,
        "reasoning_field": "reasoning_content",
        "reasoning_off": False,
        "efforts": ("low", "high", "max"),
        "default_effort": "max",
        "stop_scope": "everything",
        "tool_modes": ALL,
        "formats": FORMATS,
        "logprobs": 20,
        "storage": False,
        "max_context": 1_048_576,
        "loras": frozenset({"sql"}),
        "cached_tokens": False,
        "cached_tokens_flag": "--enable-cache-report",
        "abort_path": "",
        "health_cost": "flag",
        "model": "glm",
        "precision": "nvfp4",
    },
)
SMALL_SGLANG = (
    FakeEngine(
        "sglang",
        efforts="none",
        reasoning="never",
        image=False,
        storage=True,
        tools=frozenset({"auto"}),
        max_logprobs=5,
        context=4096,
    ),
    {
        "endpoints": frozenset(COMMON | {"/v1/tokenize", "/v1/detokenize"}),
        "dialects": frozenset({"chat", "completions", "responses", "messages"}),
        "frontend": "python",
        "modalities": frozenset({"text"}),
        "reasoning": False,
        "reasoning_field": "reasoning_content",
        "efforts": (),
        "stop_scope": "answer",
        "tool_parser": "glm47",
        "tool_modes": frozenset({"auto"}),
        "formats": FORMATS,
        "logprobs": 5,
        "storage": True,
        "max_context": 4096,
        "loras": frozenset({"sql"}),
        "cached_tokens": True,
        "cached_tokens_flag": "",
        "priority": False,
        "abort_path": "/abort_request",
        "health_cost": "flag",
        "model": "glm",
        "version": "0.5.23",
        "block_size": 64,
        "spec_method": "",
        "spec_tokens": 0,
    },
)


@pytest.mark.parametrize(("engine", "truth"), [GLM_VLLM_RUST, GLM_NIM, SMALL_SGLANG], ids=["rust", "nim", "sglang"])
async def test_probed_contract_is_the_truth(engine, truth):
    report = await probe(engine)
    probed = {term: fact.value for term, fact in report.contract.facts.items() if term != "tokenizer"}
    assert probed == truth
    assert report.complete
    assert report.incidents == ()
    assert not [check for check in report.checks if check.passed is None]


async def test_probed_values_carry_time_and_evidence():
    contract = (await probe(FakeEngine())).contract
    fact = contract.facts["max_context"]
    assert (fact.source, fact.at_s) == (Source.PROBED, 1_800_000_000.0)
    assert fact.evidence == "GET /v1/models: max_model_len 1048576"
    assert "stop 'seven' in the reasoning" in contract.facts["stop_scope"].evidence


async def test_a_wrong_declaration_is_an_incident_and_the_probe_wins():
    report = await probe(FakeEngine(), {"storage": True, "max_context": 1_048_576, "precision": "fp8"})
    assert [(entry.term, entry.declared, entry.probed) for entry in report.incidents] == [("storage", True, False)]
    assert report.contract.terms.storage is False
    assert report.contract.terms.precision == "fp8"
    assert not report.contract.held


async def test_or_the_pool_is_held():
    report = await probe(FakeEngine(), {"storage": True}, hold=True)
    assert report.contract.held
    assert report.contract.terms.storage is True


async def test_gated_endpoints_do_not_count():
    contract = (await probe(FakeEngine(scale_out=False))).contract
    assert contract.terms.endpoints == frozenset(COMMON | {"/generative_scoring"})
    assert "less /v1/chat/completions/render 403" in contract.facts["endpoints"].evidence


async def test_reasoning_that_can_be_off_and_stops_in_the_answer_only():
    terms = (await probe(FakeEngine(reasoning="offable", stop_in_reasoning=False))).contract.terms
    assert (terms.reasoning, terms.reasoning_off, terms.stop_scope) == (True, True, "answer")


async def test_a_template_that_prints_any_effort_tells_nothing():
    report = await probe(FakeEngine(efforts="verbatim"), {"efforts": ("low", "medium", "high")})
    assert report.contract.terms.efforts == ("low", "medium", "high")
    assert report.contract.source("efforts") is Source.DECLARED


async def test_declared_video_is_not_contradicted_by_the_image_probe():
    report = await probe(FakeEngine(), {"modalities": frozenset({"text", "image", "video"})})
    assert report.incidents == ()
    assert report.contract.terms.modalities == {"text", "image", "video"}
    refused = await probe(FakeEngine(image=False), {"modalities": frozenset({"text", "image"})})
    assert [entry.term for entry in refused.incidents] == ["modalities"]


async def test_an_answer_that_never_came_is_no_evidence():
    """A model that uses all its tokens to think shows nothing of tools and formats."""
    declared = {"tool_modes": ALL, "formats": frozenset({"json_schema"})}
    report = await probe(FakeEngine(obeys=False), declared)
    assert report.incidents == ()
    assert report.contract.terms.tool_modes == ALL
    assert report.contract.terms.formats == {"json_schema"}


async def test_without_golden_probes_only_facts_are_read():
    engine = FakeEngine()
    report = await probe(engine, golden=False)
    assert report.contract.terms.max_context == 1_048_576
    assert report.contract.terms.stop_scope is None
    assert not [request for request in engine.asked if request[1] == "/v1/chat/completions" and request[2:] != ({},)]


@pytest.mark.parametrize("budget", [Budget(requests=1), Budget(requests=12), Budget(tokens=100)])
async def test_the_budget_is_kept(budget):
    engine = FakeEngine()
    report = await probe(engine, budget=budget)
    assert not report.complete
    assert len(engine.asked) <= budget.requests
    assert report.tokens < budget.tokens + 50


async def test_a_whole_run_is_small():
    report = await probe(FakeEngine())
    assert report.requests <= 64
    assert report.tokens < 2000


@pytest.mark.parametrize(
    ("path", "term", "wrong"),
    [
        ("/v1/chat/completions", "stop_scope", "answer"),
        ("/v1/chat/completions", "tool_modes", frozenset({"auto"})),
        ("/tokenize", "efforts", ("low",)),
        ("/v1/responses", "storage", True),
        ("/v1/models", "max_context", 17),
    ],
)
async def test_an_engine_error_is_no_evidence(path, term, wrong):
    report = await probe(FakeEngine(broken=frozenset({path})), {term: wrong})
    assert report.incidents == ()
    assert report.contract.source(term) is Source.DECLARED
    working = await probe(FakeEngine(), {term: wrong})
    assert [entry.term for entry in working.incidents] == [term]


@pytest.mark.parametrize(
    ("text", "piece"), [("1234567890", "678"), ("12 4", ""), ("", ""), ("a bb", ""), ("ab one two", "two")]
)
def test_a_stop_string_from_the_middle(text, piece):
    assert _piece(text) == piece


class Wrong:
    """Answers everything with one body."""

    def __init__(self, body, status=200):
        self.answer = Answer(status, {}, body)

    async def get(self, path):
        return self.answer

    async def post(self, path, json):
        return self.answer


BODIES = [b"", b"[]", b"{}", b"\xff", b'{"data":3,"paths":[],"choices":7,"usage":[],"tokens":"x","count":null,"id":4}']
BODIES += [
    b'{"data":[1,{}],"paths":{"/v1/completions":1},"choices":[{"message":1,"logprobs":2}],"vllm_config":{"model_config":1}}'
]
BODIES += [b'{"choices":[{"message":{"tool_calls":[1,{"function":2}],"content":5}}],"page_size":1,"tokens":[]}']


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("status", [0, 200, 400, 500])
@pytest.mark.parametrize("kind", ["vllm", "sglang", "nim"])
async def test_nonsense_never_raises(kind, status, body):
    target = Target("a", builtin()[kind], "m")
    report = await probe_pool(target, Wrong(body, status), clock=At())
    assert report.contract.pool == "a"
    assert not report.complete


def test_before_any_probe_the_kind_speaks():
    contract = unprobed(Target("a", builtin()["nim"], "m", {"max_context": 10}, {"max_context": 5, "storage": False}))
    assert contract.terms.max_context == 10
    assert contract.source("storage") is Source.RECIPE
    assert contract.source("endpoints") is Source.DEFAULT
    assert "/inference/v1/generate" not in contract.terms.endpoints
