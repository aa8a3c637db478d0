"""Slips that any numeric exercise may meet: a unit, a percent, a sign, an end counted twice.

A slip turns an expected value into the one the mistake would give. It is named only when it
explains every case tried, so that a chance agreement in one case accuses nobody.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minilab.lab.compare import Tolerance, as_list, as_number, matches
from minilab.lab.exercise import Case, Exercise


@dataclass(frozen=True)
class Slip:
    """wrong: what the mistake makes of one expected number, or None where it does not apply.

    unit: of the result for which it can happen; empty means any.
    """

    wrong: Callable[[float], float | None]
    message: str
    unit: str = ""


class _CannotHappenError(Exception):
    """This slip makes nothing of such a number."""


def _factor(by: float, told: str, suspicion: str, unit: str = "") -> Slip:
    size = "large" if by > 1 else "small"
    message = f"too {size} by a factor of about {told}: {suspicion}"
    return Slip(lambda value: value * by, message, unit)


def _off_by(step: int) -> Slip:
    def wrong(value: float) -> float | None:
        return value + step if isinstance(value, int) else None

    return Slip(wrong, "off by one: is an end counted twice, or left out?")


SLIPS = (
    _factor(1e3, "1000", "milliseconds, where seconds are asked?", "s"),
    _factor(1e6, "10^6", "microseconds, where seconds are asked?", "s"),
    _factor(1e9, "10^9", "nanoseconds, where seconds are asked?", "s"),
    _factor(1 / 60, "60", "minutes, where seconds are asked?", "s"),
    _factor(1e-3, "1000", "seconds, where milliseconds are asked?", "ms"),
    _factor(60, "60", "per minute, where per second is asked?", "1/s"),
    _factor(8, "8", "bits, where bytes are asked?", "bytes"),
    _factor(1e-3, "1000", "kilobytes, where bytes are asked?", "bytes"),
    _factor(1e-9, "10^9", "gigabytes, where bytes are asked?", "bytes"),
    _factor(2.0**-30, "2^30", "GiB, where bytes are asked?", "bytes"),
    _factor(100, "100", "percent, where a share of 1 is asked?"),
    _factor(0.01, "100", "a share of 1, where percent is asked?"),
    _factor(1e3, "1000", "is a unit (milli, kilo) not yet undone?"),
    _factor(1e-3, "1000", "is a unit (milli, kilo) undone twice?"),
    Slip(lambda value: -value, "of the right size and the wrong sign: which is taken from which?"),
    Slip(
        lambda value: 1 / value if value else None,
        "upside down: have numerator and denominator changed places?",
    ),
    _off_by(+1),
    _off_by(-1),
)


def slip_in(exercise: Exercise, pairs: Sequence[tuple[Any, Any]]) -> Slip | None:
    """The slip that explains every (expected, actual) pair, if one does."""
    loose = Tolerance(max(exercise.rel, 1e-4), exercise.abs)  # a factor told as "about 1000"
    for slip in SLIPS:
        if slip.unit not in ("", exercise.unit):
            continue
        if all(_explains(slip, expected, actual, loose) for expected, actual in pairs):
            return slip
    return None


def swapped(exercise: Exercise, tried: Sequence[tuple[Case, Any]]) -> tuple[str, str] | None:
    """Two parameters whose exchange explains every (case, actual) pair, if there are such."""
    tolerance = Tolerance(exercise.rel, exercise.abs)
    for one, other in itertools.combinations(exercise.names, 2):
        if all(_explained_by_swap(exercise, c, one, other, a, tolerance) for c, a in tried):
            return one, other
    return None


def _explains(slip: Slip, expected: Any, actual: Any, tolerance: Tolerance) -> bool:
    try:
        return matches(_apply(slip, expected), actual, tolerance)
    except _CannotHappenError:
        return False


def _apply(slip: Slip, expected: Any) -> Any:
    """The mistake made in every number of a value; what is no number stays as it is."""
    number = as_number(expected)
    if number is not None:
        wrong = slip.wrong(number)
        if wrong is None:
            raise _CannotHappenError
        return wrong
    if isinstance(expected, Mapping):
        return {key: _apply(slip, value) for key, value in expected.items()}
    items = as_list(expected)
    return expected if items is None else [_apply(slip, item) for item in items]


def _explained_by_swap(
    exercise: Exercise, case: Case, one: str, other: str, actual: Any, tolerance: Tolerance
) -> bool:
    bound = inspect.signature(exercise.reference).bind(*case.args, **case.kwargs)
    bound.apply_defaults()
    given = bound.arguments
    given[one], given[other] = given[other], given[one]
    try:
        return matches(exercise.reference(*bound.args, **bound.kwargs), actual, tolerance)
    except Exception:  # the exchange makes no sense for this reference: then it explains nothing
        return False
