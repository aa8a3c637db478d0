"""lab.check: each plausible mistake is caught and named, and the answer is never told."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from minilab import lab
from minilab.facts.errors import InputError
from minilab.lab.check import evaluate, told
from minilab.lab.exercise import find
from minilab.lab.progress import NOT_DONE, NOT_YET, PASSED, session


def printed(capsys: pytest.CaptureFixture[str], exercise: str, answer: Any) -> list[str]:
    lab.check(exercise, answer)
    return capsys.readouterr().out.splitlines()


def told_of(exercise_id: str, answer: Any) -> str:
    exercise = find(exercise_id)
    verdict = evaluate(exercise, answer)
    assert verdict.word == NOT_YET, told(exercise, verdict)
    assert not gives_away(exercise_id, f"{verdict.expected} {verdict.likely}")
    return told(exercise, verdict)


def gives_away(exercise_id: str, text: str) -> bool:
    """Is an expected value of any case among the numbers of the text, to three digits?"""
    exercise = find(exercise_id)
    cases = [*exercise.shown(), *exercise.drawn()]
    answers = [exercise.reference(*case.args) for case in cases]
    numbers = [float(n) for n in re.findall(r"(?<![\w^.])\d+(?:\.\d+)?(?:e-?\d+)?", text)]
    return any(
        math.isclose(n, answer, rel_tol=1e-3)
        for answer in answers
        if not isinstance(answer, str | int)
        for n in numbers
    ) or any(isinstance(answer, str) and answer in text for answer in answers)


def good(ttft: list[float], slo: float) -> float:
    return float(np.mean(np.asarray(ttft) <= slo))


# --- the first line, which stored outputs are compared with -------------------------------------


def test_a_right_answer_passes_and_prints_nothing_that_depends_on_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(capsys, "90.1", good) == [
        "Exercise 90.1: passed",
        "  tried     3 cases and 20 drawn at random",
    ]
    assert printed(capsys, "90.3", " Queue Time ") == ["Exercise 90.3: passed"]


@pytest.mark.parametrize(
    "hole", [..., lambda ttft, slo: ..., None], ids=["dots", "returns", "raises"]
)
def test_a_hole_is_not_done_yet_rather_than_wrong(
    hole: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def raises(ttft: list[float], slo: float) -> float:
        raise NotImplementedError("Exercise 90.1")

    lines = printed(capsys, "90.1", raises if hole is None else hole)
    assert lines[0] == "Exercise 90.1: not done yet"
    assert "raised" not in "".join(lines)


# --- plausible mistakes, named --------------------------------------------------------------------

MISTAKES: list[tuple[str, Callable[..., Any], str]] = [
    ("90.1", lambda t, slo: sum(v <= slo for v in t) / sum(v == v for v in t), "denominator"),
    ("90.1", lambda t, slo: sum(v <= slo for v in t), "a count of good requests"),
    ("90.1", lambda t, slo: sum(not v <= slo for v in t) / len(t), "missed the SLO"),
    ("90.1", lambda t, slo: sum(v < slo for v in t) / len(t), "exactly at the limit"),
    ("90.1", lambda t, slo: float(np.nanmean(t) <= slo), "promise to every user"),
    ("90.1", lambda t, slo: 100 * sum(v <= slo for v in t) / len(t), "percent"),
    ("90.1", lambda t, slo: len(t) / max(1, sum(v <= slo for v in t)), "too large"),
    ("90.1", lambda t, slo: -sum(v <= slo for v in t) / len(t), "wrong sign"),
    ("90.2", lambda gaps: np.percentile(gaps, 99) * 1000, "milliseconds, where seconds"),
    ("90.2", lambda gaps: np.percentile(gaps, 99) * 1e6, "microseconds"),
    ("90.2", lambda gaps: np.mean(gaps), "hides the tail"),
    ("90.2", max, "the stall"),
    ("90.2", lambda gaps: 1 / np.percentile(gaps, 99), "upside down"),
    ("90.2", lambda gaps: np.percentile(gaps, 99) / 1000, "undone twice"),
    ("90.2", lambda gaps: np.percentile(gaps, 0.99), "too small"),
    ("90.2", lambda gaps: 0.411, "same whatever goes in"),
    ("90.D1", lambda tokens, block_size: tokens // block_size, "whole number"),
    ("90.D1", lambda tokens, block_size: -(-tokens // block_size) + 1, "off by one"),
    ("90.D1", lambda tokens, block_size: -(-block_size // tokens), "swapped"),
    ("90.D1", lambda tokens, block_size: tokens / block_size, "whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "mistake", "names"), MISTAKES)
def test_a_mistake_is_caught_and_its_misunderstanding_named(
    exercise: str, mistake: Callable[..., Any], names: str
) -> None:
    assert names in told_of(exercise, mistake)


def test_a_wrong_decision_meets_its_misconception_and_any_other_no_guess() -> None:
    assert "long before users wait" in told_of("90.3", "busy share")
    assert "likely" not in told_of("90.3", "kv usage")


def test_a_typed_in_table_of_the_shown_cases_fails_on_the_drawn_ones() -> None:
    table = {7: 4 / 7, 3: 2 / 3}

    def typed(ttft: list[float], slo: float) -> float:
        return 2 / 7 if any(v != v for v in ttft) else table.get(len(ttft), 0.5)

    assert "is something typed in" in told_of("90.1", typed)


# --- kinds of value -----------------------------------------------------------------------------

KINDS = [
    (None, "None"),
    (True, "True or False"),
    (np.bool_(True), "True or False"),
    ({"p99": 0.4}, "a dict"),
    ("0.41", "without quotes"),
    ([0.41], "reduction"),
    (np.array([0.1, 0.2]), "reduction"),
    ((n for n in [1]), "generator"),
    (math.nan, "empty mean"),
    (math.inf, "division by zero"),
    (np.float64("nan"), "empty mean"),
    (3 + 4j, "complex"),
    (object, "a function"),
    (-1.0, "wrong sign"),
    (0, "too small"),
]


@pytest.mark.parametrize(("value", "says"), KINDS, ids=lambda value: str(type(value).__name__))
def test_a_value_of_another_kind_is_called_by_its_kind(value: Any, says: str) -> None:
    assert says in told_of("90.2", lambda gaps: value)


@pytest.mark.parametrize("kind", [float, np.float64, np.array, lambda x: np.asarray(x)[()]])
def test_any_kind_of_number_is_a_number(kind: Callable[[float], Any]) -> None:
    verdict = evaluate(find("90.2"), lambda gaps: kind(np.percentile(gaps, 99)))
    assert verdict.word == PASSED


def test_printing_is_told_from_returning(capsys: pytest.CaptureFixture[str]) -> None:
    def prints(gaps: list[float]) -> None:
        print(max(gaps))

    lines = printed(capsys, "90.2", prints)
    assert lines[0] == "Exercise 90.2: not yet"  # what it printed does not come first
    assert "it printed" in lines[2] and "return" in lines[3]


def test_the_result_in_place_of_the_function_is_recognised() -> None:
    text = told_of("90.1", good([0.4, 0.6], 0.5))
    assert "called too early" in text and 'lab.check("90.1", attainment)' in text
    assert "call it" in told_of("90.3", lambda: "queue time")


# --- ids and records ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("90.9", "90.1, 90.2, 90.3, 90.D1"),
        (90.1, "quotes"),
        ("goodput", "quotes"),
        ("89.1", "no exercise"),
    ],
)
def test_an_unknown_id_names_the_known_ones_in_one_line(given: Any, says: str) -> None:
    with pytest.raises(InputError) as error:
        lab.check(given, good)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_the_session_keeps_the_latest_verdict_and_counts_the_tries() -> None:
    lab.check("90.1", ...)
    lab.check("90.1", lambda ttft, slo: 1.0)
    lab.check("90.1", good)
    result = session().results["90.1"]
    assert (result.verdict, result.tries, result.reason) == (PASSED, 3, "")
    lab.check("90.2", max)
    assert session().results["90.2"].reason == "the largest gap is the stall, not p99"
    lab.check("90.3", ...)
    assert session().results["90.3"].verdict == NOT_DONE


def test_hints_come_in_steps_and_the_check_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "shows hint 1 of 3" in printed(capsys, "90.1", ...)[-1]
    for number in (1, 2, 3, 3):
        lab.hint("90.1")
        out = capsys.readouterr().out
        assert out.startswith(f"Hint {number} of 3")
        assert out.count("\n") == 2  # one hint at a time
    assert printed(capsys, "90.1", ...)[-1].endswith("all hints are shown")


def test_drawn_cases_are_the_same_in_every_session_and_differ_among_themselves(
    demo: ModuleType,
) -> None:
    random.seed(1)
    first = [case.args for case in find("90.1").drawn()]
    random.seed(2)
    assert [case.args for case in find("90.1").drawn()] == first
    assert len({str(args) for args in first}) == 20
