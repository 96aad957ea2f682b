from __future__ import annotations

import pytest

from tiering.truth.accuracy import Change, Prediction, Reported, TruthLoop, is_correct
from tiering.truth.causes import Cause, Evidence

SEED = Evidence(hash_ratio=0.0)


def prediction(cached: int, *, pool: str = "p", tenant: str = "t", tokens: int | None = 1000) -> Prediction:
    return Prediction(pool, f"{pool}/0", tenant, "chat", {"gpu": cached}, tokens, block=16)


def run(loop: TruthLoop, right: int, wrong: int) -> list[Change]:
    verdicts = [loop.observe(prediction(160), Reported(160, 1000), Evidence) for _ in range(right)]
    verdicts += [loop.observe(prediction(0), Reported(160, 1000), lambda: SEED) for _ in range(wrong)]
    return [verdict.change for verdict in verdicts if verdict.change]


@pytest.mark.parametrize(
    ("predicted", "reported", "tokens", "correct"),
    [(160, 160, 1000, True), (160, 176, 1000, True), (160, 177, 1000, False), (0, 0, 1000, True),
     (600, 500, None, True), (600, 300, None, False)],
)  # fmt: skip
def test_a_prediction_holds_within_a_block_or_a_fifth(
    predicted: int, reported: int, tokens: int | None, correct: bool
) -> None:
    assert is_correct(prediction(predicted, tokens=tokens), Reported(reported, 1000)) is correct


@pytest.mark.parametrize(
    ("predicted", "reported", "tokens", "correct"),
    [
        (0, 32, 35, True),  # what the template puts before every prompt: one engine block, far above a fifth
        (0, 288, 300, True),  # the engine block and the text block that no text was whole of
        (0, 340, 360, False),
        (256, 224, 300, True),  # a text block ends within an engine block
        (256, 0, 300, False),
        (2048, 3000, 3100, True),
        (2048, 0, 3100, False),
    ],
)
def test_a_prediction_by_text_denies_nothing_within_a_block(
    predicted: int, reported: int, tokens: int, correct: bool
) -> None:
    unseen = 256 if predicted < 2048 else 1024
    made = Prediction("p", "p/0", "t", "chat", {"gpu": predicted}, block=32, unseen=unseen)
    assert is_correct(made, Reported(reported, tokens)) is correct


def test_totals_are_kept_per_pool_tenant_and_dialect() -> None:
    loop = TruthLoop()
    loop.observe(prediction(160), Reported(160, 1000), Evidence)
    loop.observe(prediction(0, tenant="u"), Reported(160, 1000), lambda: SEED)
    series = loop.series()
    assert series["p", "t", "chat"].correct == 1
    assert series["p", "u", "chat"].wrong_tokens == 160
    assert series["p", "u", "chat"].causes == {Cause.HASH_SEED: 1}
    loop.forget("p")
    assert not loop.series()
    assert loop.accuracy("p") is None


def test_a_failing_pool_is_demoted_with_its_cause_and_restored_later() -> None:
    loop = TruthLoop()
    assert run(loop, right=15, wrong=0) == []
    (down,) = run(loop, right=0, wrong=20)
    assert (down.to, down.cause) == ("load_only", Cause.HASH_SEED)
    assert loop.demoted("p")
    assert not loop.demoted("q")
    (up,) = run(loop, right=60, wrong=0)
    assert (up.to, up.cause) == ("cache", None)
    assert not loop.demoted("p")


def test_between_the_two_limits_nothing_changes() -> None:
    loop = TruthLoop()
    run(loop, right=0, wrong=30)
    for _ in range(30):
        assert run(loop, right=8, wrong=2) == []
    assert loop.demoted("p")


def test_few_exchanges_decide_nothing() -> None:
    loop = TruthLoop()
    assert run(loop, right=0, wrong=19) == []
    assert len(run(loop, right=0, wrong=1)) == 1


def test_evidence_is_not_gathered_for_a_prediction_that_held() -> None:
    def refuse() -> Evidence:
        raise AssertionError("asked for evidence")

    assert TruthLoop().observe(prediction(160), Reported(160, 1000), refuse).correct


def test_the_number_of_series_has_a_cap_and_nothing_is_lost_over_it() -> None:
    loop = TruthLoop()
    for number in range(5000):
        loop.observe(prediction(0, tenant=str(number)), Reported(0, 10), Evidence)
    series = loop.series()
    assert len(series) == 1025
    assert sum(totals.exchanges for totals in series.values()) == 5000
    assert series["other", "other", "chat"].exchanges == 5000 - 1024
