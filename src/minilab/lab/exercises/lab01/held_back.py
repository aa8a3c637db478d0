"""Exercise 1.D2: fit three constants on one half, predict the other."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from minilab.lab.exercise import Case, Exercise, Misconception

Answer = tuple[list[float], float]


def fit_and_score(
    work: Sequence[Sequence[float]],
    known: Sequence[float],
    measured: Sequence[float],
    held: Sequence[bool],
) -> Answer:
    """x of the rows that are not held, by least squares of relative errors; and the median absolute
    relative error on those that are."""
    away = np.asarray(held, dtype=bool)
    x = _fit(work, known, measured, ~away)
    return x.tolist(), float(np.median(np.abs(_off(work, known, measured, x)[away])))


def _fit(work: Any, known: Any, measured: Any, use: Any, relative: bool = True) -> Any:
    w, k, y = (np.asarray(part, dtype=float)[use] for part in (work, known, measured))
    by = y if relative else np.ones_like(y)
    with np.errstate(all="ignore"):  # a check also tries arguments in another order
        return np.linalg.lstsq(w / by[:, None], (y - k) / by, rcond=None)[0]


def _off(work: Any, known: Any, measured: Any, x: Any) -> Any:
    """Predicted over measured, minus 1."""
    with np.errstate(all="ignore"):
        return (np.asarray(known) + np.asarray(work) @ x) / np.asarray(measured) - 1


def _leaky(work: Any, known: Any, measured: Any, held: Any) -> Answer:
    away = np.asarray(held, dtype=bool)
    x = _fit(work, known, measured, np.ones_like(away))
    return x.tolist(), float(np.median(np.abs(_off(work, known, measured, x)[away])))


def _scored(work: Any, known: Any, measured: Any, held: Any, statistic: Any) -> Answer:
    """The right fit; ``statistic`` of all signed errors and of which rows are held."""
    away = np.asarray(held, dtype=bool)
    x = _fit(work, known, measured, ~away)
    return x.tolist(), float(statistic(_off(work, known, measured, x), away))


def _in_seconds(work: Any, known: Any, measured: Any, held: Any) -> Answer:
    away = np.asarray(held, dtype=bool)
    x = _fit(work, known, measured, ~away, relative=False)
    return x.tolist(), float(np.median(np.abs(_off(work, known, measured, x)[away])))


def _without_known(work: Any, known: Any, measured: Any, held: Any) -> Answer:
    return fit_and_score(work, [0.0] * len(known), measured, held)


def _table(rng: random.Random) -> Case:
    """Rows of a few milliseconds; one of those held back is far off."""
    count = rng.choice([10, 12, 14])
    x = (rng.uniform(1.0, 1.4), rng.uniform(1.0, 2.5), rng.uniform(2e-5, 6e-5))
    held = [i % 2 == 1 for i in range(count)]
    rng.shuffle(held)
    work, known, measured = [], [], []
    for _ in range(count):
        row = [rng.uniform(0.002, 0.02), rng.uniform(0.0005, 0.01), rng.choice([32, 64, 80])]
        rest = rng.uniform(0.0005, 0.006)
        seen = rest + sum(w * c for w, c in zip(row, x, strict=True))
        work.append([round(row[0], 6), round(row[1], 6), row[2]])
        known.append(round(rest, 6))
        measured.append(round(seen * math.exp(rng.gauss(0.0, 0.06)), 6))
    worst = held.index(True)
    measured[worst] = round(1.6 * measured[worst], 6)
    return Case((work, known, measured, held))


def _shown(seed: int, name: str) -> Case:
    return Case(_table(random.Random(seed)).args, name=name)


HELD_BACK = Exercise(
    "1.D2",
    "Three constants from one half, the other half predicted",
    fit_and_score,
    cases=(
        _shown(1, "every other row held back, one of them far off"),
        _shown(2, "another engine, another card"),
    ),
    misconceptions=(
        Misconception(
            "scored where it was fitted",
            lambda w, k, y, h: _scored(w, k, y, h, lambda e, a: np.median(np.abs(e[~a]))),
            "this is the error on the rows that the fit saw: it knows the answers there",
        ),
        Misconception(
            "fitted on everything",
            _leaky,
            "the fit saw the rows it is scored on: leave the held ones out before you fit",
        ),
        Misconception(
            "halves swapped",
            lambda w, k, y, h: fit_and_score(w, k, y, [not one for one in h]),
            "the halves are swapped: True marks a row that the fit may not see",
        ),
        Misconception(
            "scored on all rows",
            lambda w, k, y, h: _scored(w, k, y, h, lambda e, a: np.median(np.abs(e))),
            "half of these rows were fitted on; only the others are a test",
        ),
        Misconception(
            "seconds, not shares",
            _in_seconds,
            "this minimises errors in seconds, so that slow rows decide: divide each row by what "
            "was measured",
        ),
        Misconception(
            "known part forgotten",
            _without_known,
            "part of each time is known: take it off before the fit, add it to the prediction",
        ),
        Misconception(
            "signed",
            lambda w, k, y, h: _scored(w, k, y, h, lambda e, a: np.median(e[a])),
            "too fast and too slow cancel here: take the size of each error first",
        ),
        Misconception(
            "mean",
            lambda w, k, y, h: _scored(w, k, y, h, lambda e, a: np.mean(np.abs(e[a]))),
            "this is the mean error: one odd row decides it, which a median ignores",
        ),
        Misconception(
            "percent",
            lambda w, k, y, h: _scored(w, k, y, h, lambda e, a: 100 * np.median(np.abs(e[a]))),
            "the error is in percent; the course writes shares of 1",
        ),
        Misconception(
            "share of the prediction",
            lambda w, k, y, h: _scored(w, k, y, h, lambda e, a: np.median(np.abs(e / (1 + e))[a])),
            "the difference was divided by the prediction; what was measured is the yardstick",
        ),
    ),
    hints=(
        "Rows that are held must not touch the fit: build a mask, and its opposite.",
        "Divide each row of work, and measured minus known, by that row's measured time; then "
        "numpy.linalg.lstsq minimises relative errors.",
        "Predict all rows as known + work @ x, and take the median of the held ones' absolute "
        "relative errors.",
    ),
    draw=_table,
    rel=1e-4,
    abs=1e-9,
    core=False,
)
