"""compare: values differ in a way that can be told, and the telling gives nothing away."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilab.lab.compare import Tolerance, describe, matches, relation, show_value
from minilab.lab.exercise import Case, Exercise
from minilab.lab.slips import slip_in

EXACT = Tolerance()
NAN = math.nan


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (0.1 + 0.2, 0.3),
        (3, 3.0),
        (3, np.int32(3)),
        (0.5, Fraction(1, 2)),
        (0.25, Decimal("0.25")),
        (NAN, np.float64("nan")),
        (10**30, 10**30),
        (True, np.bool_(True)),
        ("p99", " P99 "),
        ([1, 2.5], np.array([1, 2.5])),
        (np.array([[1, 2], [3, 4]]), [[1, 2], (3, 4)]),
        ({"good": [1, 2]}, {"good": (1, 2)}),
        ({1, 2}, frozenset({2, 1})),
        (None, None),
    ],
)
def test_the_same_value_in_another_dress_is_the_same(expected: Any, actual: Any) -> None:
    assert matches(expected, actual, EXACT)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, True), (True, 1), (True, "True"), (0, None), (0, False), (None, 0), (0.0, NAN),
        (NAN, 0.0), ("1", 1), ([1], 1), (1, [1]), ([1, 2], [1, 2, 3]), ([1, 2], {1, 2}),
        ({"a": 1}, [("a", 1)]), ({"a": 1}, {"a": 2}), ({1}, np.array([1])), (None, np.array([1])),
        (1.0, 1.00001), ("p99", ["p99"]),
    ],
)  # fmt: skip
def test_another_value_or_kind_is_another(expected: Any, actual: Any) -> None:
    assert not matches(expected, actual, EXACT)


@pytest.mark.parametrize(
    ("expected", "actual", "says"),
    [
        ([1, 2, 3], [1, 2], "1 more than the 2 items of yours: is the first or the last counted?"),
        ([1, 2, 3], [1, 2, 3, 4, 5, 6], "3 fewer than the 6 items of yours"),
        ([1, 2, 3], [3, 1, 2], "the same values in another order"),
        ([1, 2, 3], np.array([1, 20, 30]), "differs in 2 of 3 items, first at index 1"),
        ({"a": 1, "b": 2}, {"a": 1, "c": 3}, "1 of 2 keys missing; not expected: 'c'"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 900}, "differs under 'b': a whole number; yours is too"),
        ({1, 2, 3}, {3, 4}, "2 that belong are missing, 1 do not belong"),
        (True, False, "which way round"),
        (5, 6, "too large, by less than a factor of 2"),
        (NAN, 0, "absent is NaN, not 0"),
        ([NAN, 1], [0, 1], "absent is NaN, not 0"),
        (0, 3, "too large"),
    ],
)
def test_a_difference_is_told_by_its_place_and_relation(
    expected: Any, actual: Any, says: str
) -> None:
    assert says in describe(expected, actual, EXACT)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.sqrt, "<sqrt>"),
        (lambda x: x, "<lambda>"),
        (np.float64(0.123456789), "0.123457"),
        (np.arange(20), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
        ((1,), "(1)"),
        ("two\nlines", "'two\\nlines'"),
        ("x" * 500, None),
        ({"a": np.float64(1)}, None),
    ],
)
def test_a_value_is_shown_on_one_short_line_without_addresses(
    value: Any, shown: str | None
) -> None:
    text = show_value(value)
    assert shown in (None, text)
    assert len(text) <= 100 and "\n" not in text and " at 0x" not in text


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_no_relation_tells_the_expected_number(expected: float, actual: float) -> None:
    text = relation(expected, actual)
    told = {float(n) for n in re.findall(r"(?<!\^)\b\d+(?:\.\d+)?", text)}
    assert told <= {0, 2, 10, 30}, text  # the steps: 10 %, factors of 2, 10, 30 and 10^k
    if "10^" in text:  # of which no ratio to three digits can be worked out
        assert re.search(r"10\^\d+$", text)


def exercise(unit: str) -> Exercise:
    return Exercise("90.8", "Twice", lambda x: 2 * x, (Case((1,)),), unit=unit)


def test_a_slip_must_explain_every_case_and_not_one_by_chance() -> None:
    assert slip_in(exercise("s"), [(2.0, 2000.0), (3.0, 3000.0)]) is not None
    assert slip_in(exercise("s"), [(2.0, 2000.0), (3.0, 3100.0)]) is None
    assert slip_in(exercise("s"), [(2.0, 2000.0), (3.0, 3.0)]) is None


def test_a_slip_is_seen_inside_lists_and_dicts_with_zeros_and_absent_values() -> None:
    pairs = [([0.0, 0.5, None], [0.0, 50.0, None]), ({"a": 0.25}, {"a": 25.0}), (None, None)]
    found = slip_in(exercise(""), pairs)
    assert found is not None and "percent" in found.message


def test_a_slip_of_one_unit_is_not_suspected_in_another() -> None:
    seconds, size = (slip_in(exercise(unit), [(2.0, 2000.0)]) for unit in ("s", "bytes"))
    assert seconds is not None and "milliseconds" in seconds.message
    assert size is not None and "seconds" not in size.message
