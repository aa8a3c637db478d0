"""Lab 06: its references are the package's own."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import pytest

from minilab.facts.all_to_all import AllToAll, Fabric
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.lab.check import evaluate
from minilab.lab.exercises.lab06 import turn
from minilab.lab.exercises.lab06.balancer import place
from minilab.lab.exercises.lab06.cache import cache_bytes
from minilab.lab.exercises.lab06.exchange import exchange_bytes
from minilab.lab.exercises.lab06.mtp import mtp_gain
from minilab.lab.exercises.lab06.turn import turning_batch


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-235b-a22b", "llama-3.1-70b"])
def test_cache_is_the_models(name: str) -> None:
    m = get_model(name)
    shape = (m.layers, m.kv_heads, m.head_dim, m.kv_lora, m.rope_dim)
    for gpus, ranks in ((8, 8), (8, 1), (16, 4)):
        tp = gpus // ranks
        assert cache_bytes(shape, gpus, ranks) == m.kv_bytes_per_token("bf16", tp) * tp


def test_exchange_is_the_cost_models() -> None:
    """On a large EP nearly every copy leaves: the package's bytes, less the one that stays."""
    for dtype, fp8 in (("fp8", True), ("bf16", False)):
        wires = AllToAll(256, 7168, 8, Fabric.of(get_gpu("h100")), dtype)
        ours = exchange_bytes(128, 7168, 8, 58, 256, fp8)
        assert ours == pytest.approx(128 * 58 * wires.token_bytes * 255 / 256, rel=1e-12)


def test_placed_experts_fill_every_gpu() -> None:
    rng = random.Random(0)
    for _ in range(50):
        gpus, size = rng.randint(1, 5), rng.randint(1, 5)
        where = place([rng.random() for _ in range(gpus * size)], gpus)
        assert sorted(where) == sorted(list(range(gpus)) * size)


def test_turning_batch_is_where_the_sign_changes() -> None:
    rng = random.Random(1)
    for _ in range(200):
        lines = [(rng.uniform(1, 30), rng.uniform(0.01, 0.5)) for _ in range(2)]
        found = turning_batch(*lines)

        def ahead(n: int, lines: list[tuple[float, float]] = lines) -> bool:
            return lines[1][0] + n * lines[1][1] < lines[0][0] + n * lines[0][1]

        if found is None:
            assert not any(ahead(n) for n in (1, 10, 1000, 10**6))
        else:
            assert ahead(found) and (found == 1 or not ahead(found - 1))


def milli(*seconds: float) -> list[int]:
    """Exact: the exercise's numbers have three decimals at the most."""
    return [round(1000 * one) for one in seconds]


def first_ahead(
    slices: turn.Line, ranks: turn.Line, ahead: Callable[[int, int], bool]
) -> int | None:
    """By trying batch after batch, in whole thousandths; None if there is none up to 40,000."""
    start, each, other, more = milli(*slices, *ranks)
    batches = (n for n in range(1, 40_000) if ahead(other + n * more, start + n * each))
    return next(batches, None)


def test_a_drawn_case_is_not_decided_by_a_rounding_error() -> None:
    """Where lines cross at a whole number, a right answer by another formula would be refused."""
    for seed in range(300):
        slices, ranks = turn._draw(random.Random(seed)).args
        start, each, other, more = milli(*slices, *ranks)
        assert each == more or (other - start) % (each - more), (slices, ranks)
    for case in (*turn.TURN.shown(), *turn.TURN.drawn()):
        assert turning_batch(*case.args) == first_ahead(*case.args, operator.lt), case


def test_an_equal_batch_taken_for_a_win_is_told_from_rounding_down() -> None:
    """Both give the same value where the lines meet at a whole number, the one place where "not
    strict" is wrong at all; these answers are written without the exercise's own wrong ones."""
    loop = evaluate(turn.TURN, lambda slices, ranks: first_ahead(slices, ranks, operator.le))
    assert "equally long" in loop.likely

    def floor(slices: turn.Line, ranks: turn.Line) -> int | None:
        right = first_ahead(slices, ranks, operator.lt)
        return right if right in (None, 1) else right - 1

    assert "rounded down" in evaluate(turn.TURN, floor).likely


def test_mtp_gain_has_the_bounds_it_must_have() -> None:
    """Reading binds: 1 + acceptance. Computing alone: half of that."""
    assert mtp_gain(0.9, 0.0, 1.0, 0.1) == pytest.approx(1.9)
    assert mtp_gain(0.9, 0.0, 0.1, 1.0) == pytest.approx(0.95)
