"""The arithmetic of speculation, held against draws and against figures worked out elsewhere."""

from __future__ import annotations

import random

import pytest

from minilab.facts import speculation as spec


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"),
    [(0.6, 2, 1.96), (0.7, 4, 2.773), (0.8, 5, 3.689), (0.9, 7, 5.695), (0.85, 1, 1.85)],
)
def test_tokens_per_step(alpha: float, k: int, tokens: float) -> None:
    """The closed form, the sum and 40,000 draws agree."""
    assert spec.emitted(alpha, k) == pytest.approx(tokens, abs=5e-4)
    assert spec.emitted(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))
    rng = random.Random(k)
    total = 0
    for _ in range(40_000):
        kept = 0
        while kept < k and rng.random() < alpha:
            kept += 1
        total += kept + 1
    assert total / 40_000 == pytest.approx(tokens, abs=0.05)


def test_all_or_nothing() -> None:
    assert spec.emitted(1.0, 4) == 5 and spec.emitted(0.0, 4) == 1


def test_a_tree_is_a_sum_over_its_guesses() -> None:
    """A chain is the formula; a tree agrees with draws of what the target says next."""
    chain = [*range(-1, 3)]
    assert spec.tree_emitted(chain, [0.6] * 4) == pytest.approx(spec.emitted(0.6, 4))
    parents, chances = [-1, -1, 0, 0, 1], [0.6, 0.2, 0.5, 0.3, 0.5]
    rng, total, draws = random.Random(1), 0, 40_000
    for _ in range(draws):
        node, going = -1, True
        while going:
            total += 1  # the target's own token, or the guess that it is
            coin, going = rng.random(), False
            for child, parent in enumerate(parents):
                if parent == node:
                    if coin < chances[child]:
                        node, going = child, True
                        break
                    coin -= chances[child]
    assert spec.tree_emitted(parents, chances) == pytest.approx(total / draws, abs=0.02)


def test_a_rate_is_found_again() -> None:
    assert spec.rate_per_draft(spec.emitted(0.73, 4), 4) == pytest.approx(0.73, abs=1e-9)
    with pytest.raises(ValueError, match="between 1 and 3"):
        spec.rate_per_draft(3.5, 2)


def test_a_vector_tells_more_than_its_mean() -> None:
    """Two drafters of the same rate: only the vector says which k each should have."""
    steady, early = [0.4, 0.4, 0.4, 0.4], [0.9, 0.5, 0.15, 0.05]
    assert spec.acceptance_rate(steady) == pytest.approx(spec.acceptance_rate(early))
    assert spec.acceptance_length(early[:1]) > spec.acceptance_length(steady[:1]) + 0.4


def test_speedup_turns_with_the_cost_of_verifying() -> None:
    """(.8, 5) at c = .05 and .2 by hand: 3.689 / 1.25 and 3.689 / 2."""
    assert spec.speedup(3.689, 5, 0.05) == pytest.approx(2.951, abs=1e-3)
    assert spec.speedup(3.689, 5, 0.2) == pytest.approx(1.845, abs=1e-3)
    assert spec.speedup(3.689, 5, 0.05, verify=6) < 1


def test_the_line_goes_through_its_points() -> None:
    line = spec.StepTime.through((2, 10.0), (6, 14.0))
    assert line == (8.0, 1.0) and line.at(4) == 12.0
    assert line.per_token({2: 2.0, 4: 3.0}) == {2: 5.0, 4: 4.0}
