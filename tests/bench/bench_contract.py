"""Cost of the contract filter per exchange. Prints one line: PASS or FAIL, then the figures."""

from __future__ import annotations

import sys
import timeit
from collections.abc import Sequence

from backends.capabilities import Capabilities
from policies.enforcement import enforce
from policies.traits import RequestTraits, needs
from tests.unit.policies.contracts_of_glm import NIM, OFFABLE, PYTHON, RUST, SMALL

BAR_US = 5.0
POOLS = (NIM, RUST, PYTHON)
PLAIN = RequestTraits(prompt_min=20_000, prompt_max=60_000, max_output=4096, needs=needs(tools=True))
CASES = {
    "served": (PLAIN, POOLS),
    "stop": (RequestTraits(prompt_max=60_000, needs=needs(tools=True, stop=True)), POOLS),
    "rerouted": (RequestTraits(prompt_max=60_000, needs=needs(modalities=["image"])), (RUST, NIM, PYTHON)),
    "effort": (RequestTraits(prompt_max=60_000, effort="medium"), (NIM, OFFABLE, PYTHON)),
    "refused": (RequestTraits(prompt_max=60_000, needs=needs(modalities=["video"])), (NIM, RUST, SMALL)),
}


def best_us(traits: RequestTraits, pools: Sequence[Capabilities], rounds: int = 500) -> float:
    """Microseconds of one call: the best of many short rounds, so that some fall between what others do here."""
    return min(timeit.repeat(lambda: enforce(traits, pools), number=rounds, repeat=400)) / rounds * 1e6


def main() -> int:
    """Measure all cases; the bar holds for the typical one, where three pools of one model all serve."""
    figures = {name: best_us(*case) for name, case in CASES.items()}
    passed = figures["served"] <= BAR_US
    shown = ", ".join(f"{name} {figure:.2f}" for name, figure in figures.items())
    print(f"{'PASS' if passed else 'FAIL'} contract-filter: {shown} us per exchange of 3 pools (bar {BAR_US:g} served)")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
