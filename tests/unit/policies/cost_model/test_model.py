"""Learning: wrong priors, replicas that change, newcomers, outliers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from backends.contracts import Expected
from backends.profiles import Profile, load_profile
from policies.cost_model.columns import Col
from policies.cost_model.facts import PoolFacts
from policies.cost_model.model import CostModel
from tests.unit.policies.routing.fleet import of_replicas, snapshot

H200 = load_profile("h200", "vllm").without_tiers()


def slower(profile: Profile, factor: float) -> Profile:
    """The same replica with prefill `factor` times as slow."""
    return replace(
        profile,
        prefill_step_s=profile.prefill_step_s * factor,
        prefill_us=tuple((tokens, us * factor) for tokens, us in profile.prefill_us),
    )


def truth_ms(profile: Profile, prompt: int) -> float:
    steps = -(-prompt // profile.max_step_tokens)
    return 1e3 * (profile.front_end_s(prompt) + profile.prefill_s(0, prompt) + steps * profile.prefill_step_s)


def cold(prompt: int) -> Expected:
    return Expected(prompt, (0, 0, 0, 0), queue_tokens=0.0, wait_ms=0.0, ttft_ms=0.0)


def predicted_ms(model: CostModel, prompt: int, row: int = 0) -> float:
    """Cold, idle: what the columns say."""
    figures = model.columns[:, row]
    curves = model.curves.at(prompt, slice(row, row + 1))
    steps = -(-prompt // int(figures[Col.CHUNK]))
    return float(curves.sum() + figures[Col.PREFILL_FIXED] + steps * figures[Col.CHUNK_STEP])


def model(prior: Profile, pools: dict[str, int]) -> CostModel:
    out = CostModel({pool: PoolFacts(prior) for pool in pools})
    out.align(snapshot(pools), 0.0)
    return out


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_a_prior_four_times_off_is_corrected_within_200_exchanges(factor: float) -> None:
    learner = model(slower(H200, factor), {"a": 1})
    rng = random.Random(3)
    for number in range(200):
        prompt = int(rng.lognormvariate(8.5, 1.0)) + 64
        noise = rng.lognormvariate(0.0, 0.1)
        learner.first_token("a/0", cold(prompt), noise * truth_ms(H200, prompt), float(number))
    for prompt in (1000, 4000, 16000, 60000):
        assert predicted_ms(learner, prompt) == pytest.approx(truth_ms(H200, prompt), rel=0.15), prompt
    (score,) = learner.scores()
    assert (score.pool, score.replica, score.ttft_seen, score.pace_seen) == ("a", "a/0", 200, 0)
    assert score.ttft_error < 0.2
    assert score.pace_error == 0.0


def test_one_outlier_moves_little_and_a_run_of_them_moves_much() -> None:
    learner = model(H200, {"a": 1})
    for number in range(50):
        learner.first_token("a/0", cold(4000), truth_ms(H200, 4000), float(number))
    learner.first_token("a/0", cold(4000), 20 * truth_ms(H200, 4000), 50.0)
    assert predicted_ms(learner, 4000) < 1.25 * truth_ms(H200, 4000)
    for number in range(8):
        learner.first_token("a/0", cold(4000), 3 * truth_ms(H200, 4000), 51.0 + number)
    assert predicted_ms(learner, 4000) > 2.2 * truth_ms(H200, 4000)


def test_a_late_first_token_is_a_hint_until_its_answer_has_ended() -> None:
    learner = model(slower(H200, 0.25), {"a": 1})
    believed, true = predicted_ms(learner, 8000), truth_ms(H200, 8000)
    expected = replace(cold(8000), ttft_ms=believed)
    learner.late("a/0", expected, 1.9 * believed)
    assert predicted_ms(learner, 8000) == believed, "not late"
    learner.late("a/0", expected, true)
    assert 0.6 * true < predicted_ms(learner, 8000) <= true
    assert learner.scores()[0].ttft_seen == 0


def test_hints_move_little_where_much_is_known() -> None:
    learner = model(H200, {"a": 1})
    for number in range(50):
        learner.first_token("a/0", cold(8000), truth_ms(H200, 8000), float(number))
    before = predicted_ms(learner, 8000)
    for _ in range(5):  # as when nothing of what should be cached is
        learner.late("a/0", replace(cold(8000), ttft_ms=0.1 * before), 3 * truth_ms(H200, 8000))
    assert predicted_ms(learner, 8000) < 1.25 * before


def test_a_slow_spell_is_forgiven_when_nobody_asks() -> None:
    learner = model(H200, {"a": 3})
    for number in range(60):
        for row in range(3):
            learner.first_token(f"a/{row}", cold(4000), truth_ms(H200, 4000), float(number))
    for number in range(10):
        learner.first_token("a/0", cold(4000), 3 * truth_ms(H200, 4000), 60.0 + number)
    slow = predicted_ms(learner, 4000)
    for second in range(70, 130):
        learner.tick(float(second))
    assert slow > 2.2 * truth_ms(H200, 4000)
    assert predicted_ms(learner, 4000) < 1.3 * truth_ms(H200, 4000)


def test_a_new_replica_starts_from_what_its_pool_has_learned() -> None:
    learner = model(slower(H200, 4.0), {"a": 2})
    for number in range(100):
        for row in range(2):
            learner.first_token(f"a/{row}", cold(4000), truth_ms(H200, 4000), float(number))
    before = predicted_ms(learner, 4000)
    learner.align(snapshot({"a": 3}), 100.0)
    assert predicted_ms(learner, 4000) == before
    assert predicted_ms(learner, 4000, row=2) == pytest.approx(truth_ms(H200, 4000), rel=0.3)


def test_replicas_keep_what_was_learned_when_rows_move() -> None:
    learner = model(H200, {"a": 2})
    for number in range(50):
        learner.first_token("a/1", cold(4000), 2 * truth_ms(H200, 4000), float(number))
    replicas = snapshot({"a": 2}).replicas
    learner.align(of_replicas(replicas[1:], version=2), 50.0)
    assert predicted_ms(learner, 4000, row=0) == pytest.approx(2 * truth_ms(H200, 4000), rel=0.1)
    assert [score.replica for score in learner.scores()] == ["a/1"]


def test_what_the_engine_says_it_reused_counts_more_than_what_was_expected() -> None:
    learner = model(H200, {"a": 1})
    expected = Expected(8000, (7000, 0, 0, 0), queue_tokens=0.0, wait_ms=0.0, ttft_ms=0.0)
    for number in range(30):
        learner.first_token("a/0", expected, truth_ms(H200, 8000), float(number), cached_tokens=0)
    assert predicted_ms(learner, 8000) == pytest.approx(truth_ms(H200, 8000), rel=0.1)


def test_decode_is_learned_by_batch_and_context() -> None:
    learner = model(H200, {"a": 1})
    rng = random.Random(5)
    for number in range(300):
        streams = rng.randrange(1, 100)
        context = streams * rng.randrange(100, 8000)
        learner.decoded("a/0", 2e3 * H200.decode_s(streams, context), streams, context, float(number))
    figures = learner.columns[:, 0]
    for streams, context in ((1, 500), (32, 32 * 4000), (80, 80 * 1000)):
        step = figures[Col.STEP] + streams * figures[Col.STEP_STREAM] + context * figures[Col.STEP_TOKEN]
        assert step == pytest.approx(2e3 * H200.decode_s(streams, context), rel=0.1)


def test_engine_counters_teach_acceptance_and_restores() -> None:
    learner = CostModel({"a": PoolFacts(load_profile("h200", "vllm"))})
    learner.align(snapshot({"a": 1}), 0.0)
    for _ in range(40):
        learner.accepted("a/0", 2.5)
        learner.restored("a/0", "host", 10_000, 100.0)
    assert learner.columns[Col.PER_STEP, 0] == pytest.approx(2.5, rel=0.01)
    assert learner.columns[Col.RESTORE_TOKEN, 0] * 10_000 == pytest.approx(100.0, rel=0.1)
    assert learner.multipliers("a/0")["host"] > 2.0
    assert [(score.ttft_seen, score.ttft_error) for score in learner.scores()] == [(0, 0.0)]  # no whole time was seen


def test_a_replica_that_left_teaches_nothing() -> None:
    learner = model(H200, {"a": 1})
    before = learner.columns.copy()
    learner.first_token("b/0", cold(100), 5.0, 1.0)
    learner.decoded("b/0", 5.0, 1, 100, 1.0)
    learner.restored("b/0", "fs", 100, 5.0)
    learner.accepted("b/0", 2.0)
    assert (learner.columns == before).all()
