"""Is a learner's value the expected one, and if not: how does it differ, without saying what is.

Values are numbers, True or False, texts, None, and lists, arrays, sets and dicts of them. A
difference is told as a kind ("a number is expected") or a relation ("too large, by more than a
factor of 10"), never as the expected value, nor as a ratio from which it could be worked out.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

LONGEST = 8  # items of a list that a message shows
_SHORT = reprlib.Repr()
_SHORT.maxdict = _SHORT.maxset = LONGEST
_SHORT.maxstring = _SHORT.maxother = 80
_UNITS = {
    "s": "seconds", "ms": "milliseconds", "fraction": "a share of 1", "bytes": "bytes",
    "1/s": "per second",
}  # fmt: skip


@dataclass(frozen=True)
class Tolerance:
    """Two numbers are the same within max(rel x the larger, abs)."""

    rel: float = 1e-6
    abs: float = 1e-12

    def same(self, one: float, other: float) -> bool:
        """NaN equals NaN here: absent is absent."""
        both_nan = math.isnan(one) and math.isnan(other)
        close = math.isclose(one, other, rel_tol=self.rel, abs_tol=self.abs)
        return both_nan or one == other or close


def show_value(value: Any) -> str:
    """A short repr: numbers to six digits, long containers cut."""
    number = as_number(value)
    if isinstance(number, int):
        return str(number)
    if number is not None:
        return f"{number:.6g}"
    if callable(value):  # a repr would show an address, another one in each session
        return f"<{getattr(value, '__name__', type(value).__name__).strip('<>')}>"
    if not isinstance(value, str) and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        inside = ", ".join(show_value(item) for item in value[:LONGEST])
        inside += ", ..." if len(value) > LONGEST else ""
        return f"({inside})" if isinstance(value, tuple) else f"[{inside}]"
    return " ".join(_SHORT.repr(value).split())


def as_number(value: Any) -> int | float | None:
    """An int or float (also from numpy, torch, Fraction, Decimal), else None; True is no number."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool):
        return float(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return as_number(value.item())
    return None


def as_bool(value: Any) -> bool | None:
    """True or False (also from numpy), else None."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    return value if isinstance(value, bool) else None


def as_list(value: Any) -> list[Any] | None:
    """A list from a list, tuple or array; None for anything else."""
    if isinstance(value, list | tuple):
        return list(value)
    if hasattr(value, "tolist") and getattr(value, "shape", ()) != ():
        return list(value.tolist())
    return None


def matches(expected: Any, actual: Any, tolerance: Tolerance) -> bool:
    """Equal in kind, and in value within the tolerance."""
    if (truth := as_bool(expected)) is not None:
        return as_bool(actual) is truth
    if (number := as_number(expected)) is not None:
        other = as_number(actual)
        return other is not None and tolerance.same(number, other)
    if isinstance(expected, str):
        return isinstance(actual, str) and actual.strip().casefold() == expected.strip().casefold()
    if isinstance(expected, Mapping):
        return (
            isinstance(actual, Mapping)
            and expected.keys() == actual.keys()
            and all(matches(expected[key], actual[key], tolerance) for key in expected)
        )
    if (items := as_list(expected)) is not None:
        others = as_list(actual)
        return (
            others is not None
            and len(items) == len(others)
            and all(matches(e, a, tolerance) for e, a in zip(items, others, strict=True))
        )
    if isinstance(expected, Set):
        return isinstance(actual, Set) and expected == actual
    return isinstance(actual, type(expected)) and bool(expected == actual)


def kind(value: Any, unit: str = "") -> str:
    """What sort of value this is, in words that give nothing away."""
    if value is None:
        return "None"
    if as_bool(value) is not None:
        return "True or False"
    if (number := as_number(value)) is not None:
        what = "a whole number" if isinstance(number, int) else "a number"
        return f"{what} ({_UNITS.get(unit, unit)})" if unit else what
    if isinstance(value, str):
        return "a text"
    if isinstance(value, Mapping):
        return "a dict"
    if isinstance(value, Set):
        return "a set"
    items = as_list(value)
    if items is None:
        return f"a {type(value).__name__}"
    return f"a list, each item {kind(items[0], unit)}" if items else "a list"


def describe(expected: Any, actual: Any, tolerance: Tolerance, unit: str = "") -> str:
    """One sentence on how ``actual`` differs from ``expected``, for values that do not match."""
    wanted = kind(expected, unit)
    if actual is None:
        return f"{wanted}; yours is None: is a `return` missing? Printing is not returning"
    if as_bool(expected) is not None and as_bool(actual) is not None:
        return "the other of True and False: which way round is the condition?"
    number, other = as_number(expected), as_number(actual)
    if number is not None and other is not None:
        return f"{wanted}; yours is {relation(number, other)}"
    if isinstance(expected, str) and isinstance(actual, str):
        return "another text (capitals and spaces at the ends do not matter)"
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return _describe_dict(expected, actual, tolerance, unit)
    if isinstance(expected, Set) and isinstance(actual, Set):
        return _describe_set(expected, actual)
    items, others = as_list(expected), as_list(actual)
    if items is not None and others is not None:
        return _describe_list(items, others, tolerance, unit)
    return f"{wanted}; yours is {_foreign(actual)}"


def relation(expected: float, actual: float) -> str:
    """How two different numbers compare, in steps too coarse to work out the expected one."""
    if math.isnan(actual):
        return "NaN, not a number: an empty mean, or 0/0, or an absent value that was not left out?"
    if math.isnan(expected):
        return "a number where nothing was measured: absent is NaN, not 0"
    if math.isinf(actual):
        return "infinite: a division by zero?"
    if math.isinf(expected):
        return "finite, although this never ends"
    direction = "too large" if actual > expected else "too small"
    if expected == 0 or actual == 0:
        return direction
    if (actual > 0) != (expected > 0):
        return f"{direction}, and of the wrong sign"
    distance = abs(math.log10(abs(actual)) - math.log10(abs(expected)))
    if distance >= 1.5:
        return f"{direction}, by a factor of about 10^{round(distance)}"
    if distance >= math.log10(2):
        return f"{direction}, by a factor of {'10 to 30' if distance >= 1 else '2 to 10'}"
    if distance >= math.log10(1.1):
        return f"{direction}, by less than a factor of 2"
    return f"{direction}, by less than 10 %, which is more than rounding"


def _foreign(actual: Any) -> str:
    if callable(actual):
        return "a function: call it, or give what it returns"
    if isinstance(actual, str):
        return "a text: give the value itself, without quotes or print"
    if hasattr(actual, "__next__"):
        return "a generator: make a list of it first"
    if (items := as_list(actual)) is not None:
        return f"a list or array of {len(items)}: one value is missing its reduction (or index)"
    return kind(actual)


def _describe_dict(
    expected: Mapping[Any, Any], actual: Mapping[Any, Any], tolerance: Tolerance, unit: str
) -> str:
    missing = len(expected.keys() - actual.keys())
    extra = [show_value(key) for key in actual if key not in expected]
    if missing or extra:
        said = [f"{missing} of {len(expected)} keys missing"] if missing else []
        said += [f"not expected: {', '.join(extra[:4])}"] if extra else []
        return f"a dict with other keys ({'; '.join(said)})"
    wrong = [key for key in expected if not matches(expected[key], actual[key], tolerance)]
    told = describe(expected[wrong[0]], actual[wrong[0]], tolerance, unit)
    return f"a dict that differs under {show_value(wrong[0])}: {told}"


def _describe_set(expected: Set[Any], actual: Set[Any]) -> str:
    missing, extra = len(expected - actual), len(actual - expected)
    return f"another set: {missing} that belong are missing, {extra} do not belong"


def _describe_list(expected: list[Any], actual: list[Any], tolerance: Tolerance, unit: str) -> str:
    if gap := len(expected) - len(actual):
        off = ": is the first or the last counted?" if abs(gap) == 1 else ""
        more = "more" if gap > 0 else "fewer"
        return f"a list with {abs(gap)} {more} than the {len(actual)} items of yours{off}"
    if sorted(map(show_value, expected)) == sorted(map(show_value, actual)):
        return "the same values in another order"
    wrong = [i for i, item in enumerate(expected) if not matches(item, actual[i], tolerance)]
    told = describe(expected[wrong[0]], actual[wrong[0]], tolerance, unit)
    return (
        f"a list that differs in {len(wrong)} of {len(actual)} items, "
        f"first at index {wrong[0]}: {told}"
    )
