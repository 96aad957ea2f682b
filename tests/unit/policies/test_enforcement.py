"""The matrix: what a request needs x which pools there are -> verdict and pools."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.enforcement import Outcome, enforce
from policies.traits import RequestTraits, bounds, needs
from tests.unit.policies.contracts_of_glm import NIM, OFFABLE, PYTHON, RUST, SMALL, UNKNOWN

POOLS = {pool.pool: pool for pool in (NIM, OFFABLE, PYTHON, RUST, SMALL, UNKNOWN)}


def ask(dialect="chat", *, endpoint="/v1/chat/completions", size=10, **wants):
    rest = {key: wants.pop(key) for key in ("effort", "lora", "top_logprobs", "max_output") if key in wants}
    least, most = size if isinstance(size, tuple) else (size, size)
    return RequestTraits(dialect, endpoint, needs(**wants), prompt_min=least, prompt_max=most, **rest)


S, A, R, X = Outcome.SERVE, Outcome.ADAPT, Outcome.REROUTE, Outcome.REFUSE
PLAIN = ask()
IMAGE, VIDEO, AUDIO = (ask(modalities=[kind]) for kind in ("image", "video", "audio"))
AUTO, REQUIRED, NAMED = (ask(tools=True, tool_choice=mode) for mode in ("auto", "required", "named"))
STOP, OFF = ask(stop=True), ask(effort="none", reasoning_off=True)
MEDIUM, LOW, MINIMAL, XHIGH = (ask(effort=effort) for effort in ("medium", "low", "minimal", "xhigh"))
RENDER = ask(endpoint="/v1/chat/completions/render")
GENERATE = ask(endpoint="/inference/v1/generate")
SCORE = ask(endpoint="/generative_scoring")
EMBED = ask(endpoint="/v1/embeddings")
SCHEMA, OBJECT = ask(output_format="json_schema"), ask(output_format="json_object")
REGEX, GRAMMAR = ask(output_format="regex"), ask(output_format="grammar")
LOGPROBS, TOP_20 = ask(logprobs=True), ask(logprobs=True, top_logprobs=20)
STORED, BUDGET, PRIORITY = ask(storage=True), ask(thinking_budget=True), ask(priority=True)
LORA = ask(lora="sql")

# request, pools by preference, verdict, eligible, spare, and the field named or the first pool's adaptations
MATRIX = [
    (PLAIN, "nim", S, "nim", "", ""),
    (PLAIN, "nim rust python", S, "nim rust python", "", ""),
    (PLAIN, "unknown", S, "unknown", "", ""),
    # modality by frontend
    (IMAGE, "nim", S, "nim", "", ""),
    (IMAGE, "rust", X, "", "", "messages"),
    (IMAGE, "rust python", R, "python", "", ""),
    (IMAGE, "rust nim python", R, "nim python", "", ""),
    (IMAGE, "small", X, "", "", "messages"),
    (IMAGE, "unknown", S, "unknown", "", ""),
    (VIDEO, "nim", X, "", "", "messages"),
    (VIDEO, "nim python", R, "python", "", ""),
    (VIDEO, "python nim", S, "python", "", ""),
    (VIDEO, "unknown", X, "", "", "messages"),
    (VIDEO, "rust unknown python", R, "python", "", ""),
    (AUDIO, "nim", X, "", "", "messages"),
    (AUDIO, "nim offable", R, "offable", "", ""),
    (ask("responses", modalities=["image"]), "rust", X, "", "", "input"),
    (ask(modalities=["image", "video"]), "nim rust", X, "", "", "messages"),
    # endpoints
    (RENDER, "nim", X, "", "", "model"),
    (RENDER, "nim python", R, "python", "", ""),
    (GENERATE, "python", S, "python", "", ""),
    (GENERATE, "nim small", X, "", "", "model"),
    (SCORE, "small rust", R, "rust", "", ""),
    (EMBED, "nim", X, "", "", "model"),
    (EMBED, "nim small", R, "small", "", ""),
    (ask(endpoint="/v1/completions"), "nim", S, "nim", "", ""),
    (RENDER, "unknown", S, "unknown", "", ""),
    # tools
    (AUTO, "small", S, "small", "", ""),
    (REQUIRED, "small", X, "", "", "tool_choice"),
    (REQUIRED, "small nim", R, "nim", "", ""),
    (NAMED, "small", X, "", "", "tool_choice"),
    (NAMED, "nim", S, "nim", "", ""),
    (ask(tools=True, tool_choice="none"), "small", S, "small", "", ""),
    # structured output
    (OBJECT, "small", S, "small", "", ""),
    (SCHEMA, "small", X, "", "", "response_format"),
    (ask("responses", output_format="json_schema"), "small", X, "", "", "text.format"),
    (ask("messages", output_format="json_schema"), "small", X, "", "", "output_config.format"),
    (SCHEMA, "small nim", R, "nim", "", ""),
    (REGEX, "small", X, "", "", "regex"),
    (GRAMMAR, "small offable", R, "offable", "", ""),
    # logprobs, storage, adapters
    (LOGPROBS, "small", X, "", "", "logprobs"),
    (LOGPROBS, "small nim", R, "nim", "", ""),
    (TOP_20, "offable", X, "", "", "top_logprobs"),
    (TOP_20, "offable nim", R, "nim", "", ""),
    (STORED, "nim", X, "", "", "previous_response_id"),
    (STORED, "nim small", R, "small", "", ""),
    (LORA, "small", S, "small", "", ""),
    (LORA, "nim", X, "", "", "model"),
    (LORA, "nim small", R, "small", "", ""),
    (LORA, "unknown", S, "unknown", "", ""),
    # efforts
    (LOW, "nim", S, "nim", "", ""),
    (MEDIUM, "nim", A, "nim", "", "reasoning_effort=high;requested=medium"),
    (MINIMAL, "nim", A, "nim", "", "reasoning_effort=low;requested=minimal"),
    (XHIGH, "nim", A, "nim", "", "reasoning_effort=max;requested=xhigh"),
    (ask("responses", effort="medium"), "nim", A, "nim", "", "reasoning.effort=high;requested=medium"),
    (ask("messages", effort="medium"), "nim", A, "nim", "", "output_config.effort=high;requested=medium"),
    (ask(effort="max"), "offable", A, "offable", "", "reasoning_effort=high;requested=max"),
    (MEDIUM, "nim offable", R, "offable", "nim", ""),
    (MEDIUM, "nim python", A, "nim python", "", "reasoning_effort=high;requested=medium"),
    (ask(effort="high"), "small", A, "small", "", "reasoning_effort=ignored;requested=high"),
    (MEDIUM, "unknown", S, "unknown", "", ""),
    (OFF, "nim", A, "nim", "", "reasoning_effort=low;requested=none"),
    (OFF, "offable", S, "offable", "", ""),
    (OFF, "small", S, "small", "", ""),
    (OFF, "nim offable", R, "offable", "nim", ""),
    # changes that leave the answer as asked do not make a pool second choice
    (STOP, "nim", A, "nim", "", "stop=gateway;requested=engine"),
    (STOP, "nim small", A, "nim small", "", "stop=gateway;requested=engine"),
    (STOP, "small", S, "small", "", ""),
    (ask("messages", stop=True), "nim", A, "nim", "", "stop_sequences=gateway;requested=engine"),
    (PRIORITY, "nim", A, "nim", "", "priority=dropped;requested=set"),
    (PRIORITY, "rust", S, "rust", "", ""),
    (BUDGET, "nim", A, "nim", "", "thinking_token_budget=dropped;requested=set"),
    (BUDGET, "python", S, "python", "", ""),
    # length: prompt and requested output
    (ask(size=4095), "small", S, "small", "", ""),
    (ask(size=4096), "small", X, "", "", "messages"),
    (ask(size=4000, max_output=96), "small", S, "small", "", ""),
    (ask(size=4000, max_output=97), "small", X, "", "", "max_completion_tokens"),
    (ask("messages", size=4000, max_output=97), "small", X, "", "", "max_tokens"),
    (ask("completions", size=5000, endpoint="/v1/completions"), "small", X, "", "", "prompt"),
    (ask(size=5000), "small nim", R, "nim", "", ""),
    (ask(size=5000), "nim small", S, "nim", "", ""),
    (ask(size=200_000), "small offable nim", R, "nim", "", ""),
    (ask(size=2_000_000), "small nim", X, "", "", "messages"),
    (ask(size=10, max_output=1025), "small", X, "", "", "max_completion_tokens"),
    (ask(size=10, max_output=1025), "small nim", R, "nim", "", ""),
    (ask(size=9_000_000), "unknown", S, "unknown", "", ""),
    (ask(size=(3000, 9000)), "small nim", R, "nim", "", ""),
    (ask(size=(3000, 9000)), "small", S, "small", "", ""),
    (ask(size=(3000, 200_000)), "small offable", R, "offable", "", ""),
    (ask(size=(3000, 200_000)), "offable small", S, "offable", "", ""),
    (ask(size=(3000, 9000), effort="high"), "small", A, "small", "", "reasoning_effort=ignored;requested=high"),
    (ask(size=(4096, 9000)), "small", X, "", "", "messages"),
    # several at once
    (ask(modalities=["image"], stop=True, effort="medium"), "rust nim", R, "nim", "", ""),
    (ask(modalities=["image"], tools=True, tool_choice="required"), "small rust", X, "", "", "messages"),
    (ask(size=5000, output_format="json_schema"), "small offable", R, "offable", "", ""),
]


@pytest.mark.parametrize("row", range(len(MATRIX)))
def test_matrix(row):
    traits, pools, outcome, eligible, spare, said = MATRIX[row]
    verdict = enforce(traits, [POOLS[name] for name in pools.split()])
    assert verdict.outcome is outcome
    assert (verdict.eligible, verdict.spare) == (tuple(eligible.split()), tuple(spare.split()))
    if outcome is Outcome.REFUSE:
        assert len(verdict.refusals) == len(pools.split())
        reason = verdict.reason()
        assert reason is not None
        assert reason.field == said
        return
    assert verdict.reason() is None
    if outcome is Outcome.ADAPT:
        assert ", ".join(str(change) for change in verdict.adaptations[verdict.eligible[0]]) == said
    elif outcome is Outcome.SERVE:
        assert verdict.eligible[0] not in verdict.adaptations


def test_the_matrix_is_large_enough():
    assert len(MATRIX) >= 60


def test_refusals_name_the_pools_reasons():
    verdict = enforce(ask(modalities=["video"]), [NIM, RUST])
    assert [str(refusal) for refusal in verdict.refusals] == [
        "nim: video input is not validated by its python frontend",
        "rust: video input is not validated by its rust frontend",
    ]


def test_the_pool_that_came_closest_speaks():
    too_long = enforce(ask(size=2_000_000), [SMALL, OFFABLE, NIM]).reason()
    assert too_long is not None
    assert (too_long.pool, too_long.numbers, too_long.code) == (
        "nim",
        (2_000_000, 1_048_576),
        "context_length_exceeded",
    )
    near = enforce(ask(modalities=["video"], logprobs=True), [SMALL, NIM]).reason()
    assert near is not None
    assert near.pool == "nim"


def test_an_estimate_that_may_not_fit_asks_for_a_count():
    traits = ask(size=(3000, 9000))
    unsure = enforce(traits, [SMALL, NIM])
    assert unsure.count
    assert unsure.eligible == ("nim",)
    counted = enforce(traits.counted(3500), [SMALL, NIM])
    assert not counted.count
    assert counted.eligible == ("small", "nim")
    assert enforce(traits.counted(4200), [SMALL, NIM]).eligible == ("nim",)
    assert enforce(traits, [SMALL]).count


def test_a_held_pool_takes_nothing():
    held = POOLS["nim"].__class__(
        **{name: getattr(NIM, name) for name in NIM.__slots__ if name != "held"},
        held=True,
    )
    assert enforce(PLAIN, [held]).outcome is Outcome.REFUSE
    assert enforce(PLAIN, [held, RUST]).eligible == ("rust",)


def test_bounds_hold_for_any_text():
    assert bounds(0)[0] == 0
    assert bounds(1600, media=16_384) == (25, 1600 + 64 + 16_384)


@given(
    st.lists(st.sampled_from(sorted(POOLS)), min_size=1, max_size=4, unique=True),
    st.sampled_from([row[0] for row in MATRIX]),
)
def test_every_pool_is_accounted_for_once(names, traits):
    verdict = enforce(traits, [POOLS[name] for name in names])
    seen = [*verdict.eligible, *verdict.spare, *(refusal.pool for refusal in verdict.refusals)]
    assert sorted(seen) == sorted(names)
    order = {name: place for place, name in enumerate(names)}
    assert sorted(verdict.eligible, key=order.__getitem__) == list(verdict.eligible)
    assert set(verdict.adaptations) <= {*verdict.eligible, *verdict.spare}
