"""Exercise 6.D1: what one MTP draft gains where attention takes the longer of two times."""

from __future__ import annotations

from collections.abc import Callable

from minilab.lab.exercise import Case, Exercise, Misconception


def mtp_gain(acceptance: float, rest: float, read: float, compute: float) -> float:
    """Tokens per second with one draft over tokens per second without.

    A step is ``rest`` (all but attention; the same with a draft) plus attention, the longer of
    ``read`` (the cache, once for all queries) and ``compute`` (per query). Seconds.
    """
    plain = rest + max(read, compute)
    drafting = rest + max(read, 2 * compute)
    return (1 + acceptance) * plain / drafting


def _gain(
    acceptance: float,
    rest: float,
    read: float,
    compute: float,
    *,
    tokens: float | None = None,
    join: Callable[[float, float], float] = max,
    reads: int = 1,
    queries: int = 2,
    rests: int = 1,
) -> float:
    plain = rest + join(read, compute)
    drafting = rests * rest + join(reads * read, queries * compute)
    return (1 + acceptance if tokens is None else tokens) * plain / drafting


def _sum(read: float, compute: float) -> float:
    return read + compute


def _compute(read: float, compute: float) -> float:
    return compute


MTP = Exercise(
    "6.D1",
    "MTP is not free",
    mtp_gain,
    cases=(
        Case((0.87, 30e-3, 4e-3, 5e-3), name="a rank per GPU, 128 heads"),
        Case((0.87, 30e-3, 31e-3, 5e-3), name="in slices, 16 heads"),
        Case((0.6, 20e-3, 40e-3, 50e-3), name="long context, a weak draft"),
        Case((0.0, 20e-3, 10e-3, 2e-3), name="nothing accepted"),
    ),
    misconceptions=(
        Misconception(
            "the draft is free",
            lambda a, r, m, c: _gain(a, r, m, c, queries=1),
            "a draft is one more query: attention computes for it too",
        ),
        Misconception(
            "everything twice",
            lambda a, r, m, c: _gain(a, r, m, c, reads=2, rests=2),
            "weights and cache are read once, for both queries",
        ),
        Misconception(
            "the cache is read twice",
            lambda a, r, m, c: _gain(a, r, m, c, reads=2),
            "the cache is read once and used by both queries",
        ),
        Misconception(
            "sum instead of the longer",
            lambda a, r, m, c: _gain(a, r, m, c, join=_sum),
            "reading and computing overlap: attention takes the longer of the two",
        ),
        Misconception(
            "computing only",
            lambda a, r, m, c: _gain(a, r, m, c, join=_compute),
            "attention is timed by its computing alone: where the cache takes longer to read, a "
            "second query hides behind the reading",
        ),
        Misconception(
            "only the accepted draft",
            lambda a, r, m, c: _gain(a, r, m, c, tokens=a),
            "a step yields its own token whether or not the draft is accepted",
        ),
        Misconception(
            "two tokens",
            lambda a, r, m, c: _gain(a, r, m, c, tokens=2.0),
            "not every draft is accepted",
        ),
    ),
    hints=(
        "Tokens per second are tokens per step over seconds per step; compare the two.",
        "Tokens per step: one, and the draft when it is accepted.",
        "Which parts of the step grow with a second query, and which does it share?",
    ),
    draw=lambda rng: Case(
        (
            round(rng.uniform(0.3, 0.95), 2),
            round(rng.uniform(5e-3, 50e-3), 4),
            round(rng.uniform(1e-3, 60e-3), 4),
            round(rng.uniform(1e-3, 60e-3), 4),
        )
    ),
    unit="times",
    core=False,
)
