"""Check: try a learner's answer, and say what was tried, what came out and what is likely wrong.

The first line always reads ``Exercise 1.2: passed``, ``not yet`` or ``not done yet``; when passed,
nothing printed depends on data, so that a stored output stays true. The answer is never printed:
a difference is told as a kind or a relation (``compare.py``), and a cause only when it explains
what came out (the exercise's own misconceptions, then ``slips.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minilab.lab.attempt import Attempt, attempt
from minilab.lab.compare import Tolerance, describe, kind, matches, show_value
from minilab.lab.exercise import Case, Exercise, find
from minilab.lab.hints import next_hint
from minilab.lab.progress import NOT_DONE, NOT_YET, PASSED, session
from minilab.lab.slips import slip_in, swapped

DRAWN = "drawn at random"


@dataclass(frozen=True)
class Verdict:
    """word: passed, not yet or not done yet; the rest is what a learner reads below it.

    tried: the call; came_out: its result; expected: how the result differs; likely: the
    misunderstanding, where one explains it.
    """

    word: str
    tried: str = ""
    came_out: str = ""
    expected: str = ""
    likely: str = ""

    @property
    def reason(self) -> str:
        """The most telling line, for a list of exercises."""
        return self.likely or self.expected or self.came_out


@dataclass(frozen=True)
class _Trial:
    """One case with what is expected of it and what the learner's answer made of it."""

    case: Case
    expected: Any
    outcome: Attempt
    name: str


def check(exercise_id: str, answer: Any) -> None:
    """Try ``answer`` (the function itself, or the value of a decision) and print the verdict.

    Raises InputError for an id that does not exist; nothing that the answer does is raised.
    """
    exercise = find(exercise_id)
    verdict = evaluate(exercise, answer)
    session().record(exercise.id, exercise.title, verdict.word, verdict.reason)
    print(told(exercise, verdict))


def told(exercise: Exercise, verdict: Verdict) -> str:
    """The verdict as printed: its word on the first line, then what there is to say."""
    parts = [
        ("tried", verdict.tried),
        ("came out", verdict.came_out),
        ("expected", verdict.expected),
        ("likely", verdict.likely),
        ("next", next_hint(exercise.id) if verdict.word != PASSED else ""),
    ]
    lines = [f"  {name:<9} {text}" for name, text in parts if text]
    return "\n".join([f"Exercise {exercise.id}: {verdict.word}", *lines])


def evaluate(exercise: Exercise, answer: Any) -> Verdict:
    """The verdict on an answer; prints and records nothing."""
    if answer is Ellipsis:
        return Verdict(NOT_DONE)
    shown = exercise.shown()
    wants_function = any(case.args or case.kwargs for case in shown)
    if wants_function and not callable(answer):
        return _not_a_function(exercise, answer)
    function = answer if wants_function else None
    cases = [(case, case.name) for case in shown]
    cases += [(case, DRAWN) for case in exercise.drawn()]
    trials = []
    for case, name in cases:
        expected = exercise.reference(*case.args, **case.kwargs)
        outcome = attempt(function, case, exercise.seconds) if function else Attempt(answer)
        trials.append(_Trial(case, expected, outcome, name))
        if outcome.undone:
            return Verdict(NOT_DONE)
        if outcome.failure:
            break
    return _judge(exercise, function, trials)


def _judge(
    exercise: Exercise, function: Callable[..., Any] | None, trials: list[_Trial]
) -> Verdict:
    tolerance = Tolerance(exercise.rel, exercise.abs)
    failing = [t for t in trials if t.outcome.failure or not _right(t, tolerance)]
    if not failing:
        return Verdict(PASSED, tried=_counted(trials) if function else "")
    worst, outcome = failing[0], failing[0].outcome
    tried = _call(exercise, function, worst) if function else ""
    if outcome.failure:
        asked = f"{kind(worst.expected, exercise.unit)} from ({', '.join(exercise.names)})"
        return Verdict(NOT_YET, tried, f"it {outcome.failure}", asked)
    if outcome.value is None and outcome.printed.strip():
        came_out = f"None; it printed {show_value(outcome.printed.strip())}"
    else:
        came_out = show_value(outcome.value)
    expected = describe(worst.expected, outcome.value, tolerance, exercise.unit)
    return Verdict(NOT_YET, tried, came_out, expected, _suspicion(exercise, trials, failing))


def _right(trial: _Trial, tolerance: Tolerance) -> bool:
    return matches(trial.expected, trial.outcome.value, tolerance)


def _suspicion(exercise: Exercise, trials: list[_Trial], failing: list[_Trial]) -> str:
    """The misunderstanding that explains what came out; empty rather than guessed."""
    values = [t for t in trials if not t.outcome.failure]
    failing = [t for t in failing if not t.outcome.failure]
    for misconception in exercise.misconceptions:
        if all(_comes_from(misconception.wrong, trial, exercise) for trial in failing):
            return misconception.message
    pair = swapped(exercise, [(t.case, t.outcome.value) for t in values])
    if pair:
        return f"are `{pair[0]}` and `{pair[1]}` swapped? They come in the order of the call above"
    slip = slip_in(exercise, [(t.expected, t.outcome.value) for t in values])
    if slip:
        return slip.message
    given = {show_value(t.outcome.value) for t in values}
    if len(given) == 1 and given != {"None"} and len({show_value(t.expected) for t in values}) > 1:
        return "the result is the same whatever goes in: is a value typed in, or a global used?"
    if failing[0].name == DRAWN:
        return "the cases shown hold, others do not: is something typed in that is to be computed?"
    return ""


def _comes_from(wrong: Callable[..., Any], trial: _Trial, exercise: Exercise) -> bool:
    try:
        value = wrong(*trial.case.args, **trial.case.kwargs)
    except Exception:  # the mistake breaks on this input, and the learner's function did not
        return False
    return matches(value, trial.outcome.value, Tolerance(exercise.rel, exercise.abs))


def _not_a_function(exercise: Exercise, answer: Any) -> Verdict:
    name, inputs = _name(exercise.reference), ", ".join(exercise.names)
    return Verdict(
        NOT_YET,
        came_out=f"{show_value(answer)}, {kind(answer)}",
        expected=f"the function itself, which the check then calls with ({inputs})",
        likely=f'called too early? Write lab.check("{exercise.id}", {name}), without parentheses '
        f"after {name}",
    )


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "<lambda>").strip("_")
    return "your_function" if name == "<lambda>" else name


def _call(exercise: Exercise, function: Callable[..., Any], trial: _Trial) -> str:
    """``goodput(ttft=[0.4, 0.6], limit=0.5)  (one request is late)``."""
    given = [f"{n}={show_value(v)}" for n, v in zip(exercise.names, trial.case.args, strict=False)]
    given += [f"{n}={show_value(v)}" for n, v in trial.case.kwargs.items()]
    return f"{_name(function)}({', '.join(given)})" + (f"  ({trial.name})" if trial.name else "")


def _counted(trials: list[_Trial]) -> str:
    drawn = sum(trial.name == DRAWN for trial in trials)
    shown = len(trials) - drawn
    counted = f"{shown} case{'s' if shown > 1 else ''}"
    return f"{counted} and {drawn} {DRAWN}" if drawn else counted
