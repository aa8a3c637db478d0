"""attempt: whatever a learner's function does, its check survives and says it in one sentence."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from minilab.lab.attempt import Attempt, attempt
from minilab.lab.check import evaluate
from minilab.lab.exercise import Case, find
from minilab.lab.progress import NOT_YET


def tried(function: Any, *args: Any, seconds: float = 5.0) -> Attempt:
    return attempt(function, Case(args), seconds)


def test_a_value_comes_back_with_what_was_printed() -> None:
    def speaks(x: int) -> int:
        print("half way")
        return 2 * x

    assert tried(speaks, 21) == Attempt(42, printed="half way\n")


def test_an_exception_is_told_with_the_learners_own_line() -> None:
    def divides(ttft: list[float]) -> float:
        return [1.0][len(ttft)]

    failure = tried(divides, [0.1, 0.2]).failure
    assert failure.startswith("raised IndexError: list index out of range (line ")
    assert "`return [1.0][len(ttft)]`" in failure and "\n" not in failure


def test_an_exception_deep_in_a_library_is_told_by_the_line_that_called_it() -> None:
    def parses(text: str) -> Any:
        import json

        return json.loads(text)

    failure = tried(parses, "{").failure
    assert "`return json.loads(text)`" in failure and "decoder" not in failure


def test_a_long_loop_ends_even_when_it_swallows_exceptions() -> None:
    def loops() -> None:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                sum(range(1000))
            except Exception:
                continue

    assert "did not end within 0.2 s" in tried(loops, seconds=0.2).failure


def test_the_alarm_is_off_again_after_a_call_that_ended_in_time() -> None:
    assert tried(lambda: 1, seconds=0.05).value == 1
    threading.Event().wait(0.1)  # a forgotten alarm would ring here


def test_the_time_limit_holds_outside_the_main_thread_too() -> None:
    stop, found = threading.Event(), []
    thread = threading.Thread(
        target=lambda: found.append(tried(lambda: stop.wait(30), seconds=0.2))
    )
    thread.start()
    thread.join(10)
    stop.set()
    assert found and "did not end" in found[0].failure


def test_outside_the_main_thread_values_and_errors_come_back_as_well() -> None:
    found: list[Attempt] = []
    for function in (lambda: 7, lambda: 1 / 0):
        thread = threading.Thread(target=lambda f=function: found.append(tried(f)))
        thread.start()
        thread.join()
    assert found[0].value == 7 and "ZeroDivisionError" in found[1].failure


def test_leaving_the_interpreter_is_a_failure_and_not_an_exit() -> None:
    def leaves() -> None:
        raise SystemExit(3)

    assert tried(leaves).failure.startswith("raised SystemExit")


def test_what_torch_has_not_implemented_is_an_error_and_not_a_hole() -> None:
    def half() -> None:
        raise NotImplementedError("not implemented for 'Half'")

    def hole() -> None:
        raise NotImplementedError("Exercise 90.1")

    assert "'Half'" in tried(half).failure and not tried(half).undone
    assert tried(hole) == Attempt(undone=True)


def test_other_parameters_than_asked_are_told_by_the_signature() -> None:
    assert "takes other inputs, (ttft)" in tried(lambda ttft: 0.5, [0.1], 0.5).failure
    assert tried(max, [3, 4]).value == 4  # a builtin without a signature is simply called


def test_a_function_that_empties_its_input_does_not_spoil_the_cases() -> None:
    given = [3.0, 1.0]
    assert tried(lambda gaps: gaps.clear(), given).value is None
    assert given == [3.0, 1.0]
    case = find("90.1").shown()[0]
    evaluate(find("90.1"), lambda ttft, slo: ttft.clear())
    assert len(case.args[0]) == 7


def test_expected_values_come_from_the_reference_and_not_from_a_global_of_its_name() -> None:
    globals()["attainment"] = lambda ttft, slo: math.pi
    assert evaluate(find("90.1"), lambda ttft, slo: math.pi).word == NOT_YET
