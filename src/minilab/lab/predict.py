"""Predict before the run, score after it: how well does a learner know what they know?

A prediction is a value with an interval and the confidence that the outcome falls into it. It is
filed before the run; filing after the outcome is refused, a change is recorded. Calibration
compares the stated confidence with the share of intervals that were hit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from minilab.facts.errors import InputError
from minilab.lab.compare import as_number
from minilab.lab.exercise import lab_of
from minilab.lab.prediction_file import Prediction, store

ENOUGH = 5  # below this many outcomes a hit rate says next to nothing


@dataclass(frozen=True, repr=False)
class Calibration:
    """scored: predictions with an outcome. stated: their mean confidence. hit_rate: share of
    intervals that held the outcome. brier: mean of (confidence - hit)^2, 0 is perfect, 0.25 is
    what 50 % on everything gets (Brier 1950). deviation: (hits - expected hits) in standard
    deviations of chance. All but ``scored`` are None while nothing is scored.
    """

    scored: int
    stated: float | None = None
    hit_rate: float | None = None
    brier: float | None = None
    deviation: float | None = None

    def __str__(self) -> str:
        """One sentence, with a verdict once there is enough to judge by."""
        if self.deviation is None:
            return "Calibration: no prediction has an outcome yet."
        told = (
            f"Calibration over {self.scored}: {self.stated:.0%} sure on average, "
            f"{self.hit_rate:.0%} hit, Brier score {self.brier:.3f}"
        )
        if self.scored < ENOUGH:
            return f"{told}; too few to judge."
        if self.deviation < -2:
            return f"{told}; too sure: widen the intervals."
        if self.deviation > 2:
            return f"{told}; too careful: narrow the intervals."
        return f"{told}; that fits how sure you were."

    __repr__ = __str__


def predict(
    prediction_id: str,
    value: float,
    low: float,
    high: float,
    confidence: float = 0.8,
    unit: str = "",
) -> None:
    """File a prediction: ``value``, and an interval [low, high] held with this confidence.

    confidence is a share, 0.8 for 80 %. unit: of all three numbers ("s" for seconds).
    Raises InputError for what can't be a prediction, and after the outcome is known.
    """
    lab_of(prediction_id)
    made = Prediction(
        prediction_id,
        value=_number(prediction_id, "value", value),
        low=_number(prediction_id, "low", low),
        high=_number(prediction_id, "high", high),
        confidence=_number(prediction_id, "confidence", confidence),
        unit=unit,
    )
    _refuse_nonsense(made)
    filed = store().get(prediction_id)
    if filed is not None and filed.said() == made.said():
        print(f"Prediction {prediction_id}: already filed, {_interval(made)}.")
        return
    if filed is not None and filed.actual is not None:
        raise InputError(
            f"prediction {prediction_id}: the outcome is known ({_amount(filed.actual, filed.unit)}"
            "), so a new guess would be none; keep the one filed before the run"
        )
    if filed is not None:
        made = replace(made, changes=(*filed.changes, filed.said()))
    store().put(made)
    count = len(made.changes)
    changed = f" (changed {count} time{'s' if count > 1 else ''})" if count else ""
    print(f"Prediction {prediction_id}: filed, {_interval(made)}{changed}.")


def outcome(prediction_id: str, actual: float) -> None:
    """Score a filed prediction: hit or miss of the interval, and the signed relative error."""
    filed = store().get(prediction_id)
    if filed is None:
        raise InputError(
            f"outcome {prediction_id!r}: no prediction is filed under this id; "
            f'call lab.predict("{prediction_id}", ...) before the run'
        )
    scored = replace(filed, actual=_number(prediction_id, "actual", actual))
    store().put(scored)
    verdict = "hit" if scored.hit else "miss"
    print(
        f"Prediction {prediction_id}: {verdict}. It was {_amount(scored.actual, scored.unit)}; "
        f"you said {_interval(scored)}; {error_words(scored)}."
    )


def calibration() -> Calibration:
    """How sure the learner was against how often they were right, over all scored predictions."""
    scored = [(p.confidence, float(p.hit)) for p in store().all() if p.hit is not None]
    count = len(scored)
    if not count:
        return Calibration(0)
    stated = sum(confidence for confidence, _ in scored)
    hits = sum(hit for _, hit in scored)
    chance = math.sqrt(sum(confidence * (1 - confidence) for confidence, _ in scored))
    brier = sum((confidence - hit) ** 2 for confidence, hit in scored) / count
    return Calibration(count, stated / count, hits / count, brier, (hits - stated) / chance)


def error_words(scored: Prediction) -> str:
    """The signed relative error of the value in words: (value - actual) / |actual|."""
    error = scored.relative_error
    if error is None:
        return "no relative error (the outcome is 0)"
    if abs(error) < 0.005:
        return "your value was right to 0.5 %"
    return f"your value was {abs(error):.0%} too {'high' if error > 0 else 'low'}"


def _number(prediction_id: str, name: str, given: object) -> float:
    number = as_number(given)
    if number is None or not math.isfinite(number):
        raise InputError(
            f"prediction {prediction_id}: {name}={given!r} is not a finite number; give one"
        )
    return float(number)


def _refuse_nonsense(made: Prediction) -> None:
    where = f"prediction {made.id}:"
    if 1 < made.confidence <= 100:
        raise InputError(
            f"{where} confidence={made.confidence:g} looks like percent; "
            f"write {made.confidence / 100:g}"
        )
    if not 0 < made.confidence < 1:
        raise InputError(
            f"{where} confidence={made.confidence:g}; it lies between 0 and 1, both excluded: "
            "nobody knows a run before it is made"
        )
    if not made.low < made.high:
        raise InputError(
            f"{where} low={made.low:g} is not below high={made.high:g}; give an interval, low first"
        )
    if not made.low <= made.value <= made.high:
        raise InputError(
            f"{where} value={made.value:g} lies outside its own interval "
            f"{made.low:g} to {made.high:g}; widen it or move the value"
        )


def _amount(number: float | None, unit: str) -> str:
    return f"{number:.4g} {unit}".rstrip()


def _interval(made: Prediction) -> str:
    span = f"{made.low:g} to {_amount(made.high, made.unit)}"
    return f"{_amount(made.value, made.unit)} ({span}, {made.confidence:.0%} sure)"
