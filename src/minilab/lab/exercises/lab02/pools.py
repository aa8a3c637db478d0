"""Exercise 2.D2: how many of the GPUs should compute prompts."""

from __future__ import annotations

from minilab.lab.exercise import Case, Exercise, Misconception


def rate(first: int, total: int, prefill: float, decode: float) -> float:
    """Requests/s that the slower of two pools carries."""
    return min(first / prefill, (total - first) / decode)


def prefill_gpus(total: int, prefill: float, decode: float) -> int:
    """Prefill GPUs out of ``total`` with which the slower pool carries most (the fewest, if equal).

    ``prefill`` and ``decode`` are GPU seconds per request.
    """
    return max(range(1, total), key=lambda first: (rate(first, total, prefill, decode), -first))


def _clamp(value: int, total: int) -> int:
    return min(max(1, value), total - 1)


POOLS = Exercise(
    "2.D2",
    "How many GPUs compute prompts",
    prefill_gpus,
    cases=(
        Case((8, 0.062, 0.098), name="4,000 tokens in, 256 out"),
        Case((8, 0.058, 2.2), name="next to no prefill"),
        Case((8, 0.5, 0.02), name="next to no decode"),
        Case((3, 0.1, 0.1), name="three GPUs, equal work"),
        Case((16, 0.03, 0.1), name="sixteen GPUs"),
    ),
    misconceptions=(
        Misconception(
            "half and half",
            lambda n, p, d: n // 2,
            "equal pools fit equal work only; one of these would idle",
        ),
        Misconception(
            "the ratio turned round",
            lambda n, p, d: prefill_gpus(n, d, p),
            "the phase with more work needs more GPUs, not fewer",
        ),
        Misconception(
            "share of the work, cut off",
            lambda n, p, d: _clamp(int(n * p / (p + d)), n),
            "cutting the share off starves the prefill pool where the next GPU would serve more",
        ),
        Misconception(
            "share of the work, rounded up",
            lambda n, p, d: _clamp(-int(-n * p / (p + d) // 1), n),
            "rounding up starves the decode pool where one GPU less would serve more",
        ),
        Misconception(
            "a pool may be empty",
            lambda n, p, d: round(n * p / (p + d)),
            "a pool of no GPU serves nobody: each needs at least one",
        ),
    ),
    hints=(
        "How many requests per second does each pool carry, alone?",
        "The slower pool sets the rate. Try every split and keep the best.",
    ),
    draw=lambda rng: Case(
        (rng.randint(2, 24), round(rng.uniform(0.01, 1.0), 3), round(rng.uniform(0.01, 1.0), 3))
    ),
    unit="GPUs",
    core=False,
)
