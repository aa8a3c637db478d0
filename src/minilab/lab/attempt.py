"""Attempt: run a learner's function once, with a time limit, and keep whatever comes of it.

Nothing that it raises, prints or does to its inputs reaches the check: a check is there to
explain, so it must survive what it looks at.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import linecache
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from minilab.lab.exercise import Case


class _OutOfTime(BaseException):
    """Not an Exception, so that ``except Exception`` in a learner's loop does not swallow it."""


@dataclass(frozen=True)
class Attempt:
    """One call. failure: one sentence where it gave no value; undone: it is still a hole.

    printed: what it wrote to stdout, which is a common stand-in for returning.
    """

    value: Any = None
    failure: str = ""
    undone: bool = False
    printed: str = ""


def attempt(function: Callable[..., Any], case: Case, seconds: float) -> Attempt:
    """Call ``function`` on a copy of the case's inputs, for at most ``seconds``."""
    refusal = _refuses(function, case)
    if refusal:
        return Attempt(failure=refusal)
    args, kwargs = copy.deepcopy(case.args), copy.deepcopy(dict(case.kwargs))
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            value = _limited(lambda: function(*args, **kwargs), seconds)
    except NotImplementedError as error:
        if not str(error) or str(error).startswith("Exercise"):
            return Attempt(undone=True)  # the hole of a lab, or a learner's own placeholder
        return Attempt(failure=_told(error, function))
    except _OutOfTime:
        return Attempt(failure=f"did not end within {seconds:g} s: a loop that never stops?")
    except (Exception, SystemExit) as error:
        return Attempt(failure=_told(error, function))
    return Attempt(value, undone=value is Ellipsis, printed=printed.getvalue())


def _refuses(function: Callable[..., Any], case: Case) -> str:
    """Why the function can't even be called with these inputs; empty where it can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none: then calling it tells
        return ""
    try:
        signature.bind(*case.args, **case.kwargs)
    except TypeError as error:
        return f"takes other inputs, {signature}, than the check gives it: {error}"
    return ""


def _limited(call: Callable[[], Any], seconds: float) -> Any:
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        with _alarm(seconds):
            return call()
    return _in_thread(call, seconds)


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    earlier = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def _in_thread(call: Callable[[], Any], seconds: float) -> Any:
    """Where no alarm can ring (another thread, Windows): stop waiting, since a thread can't be
    ended from outside; as a daemon it does not hold up the end of the session.
    """
    done: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not done:
        raise _OutOfTime
    return done[0]


def _told(error: BaseException, function: Callable[..., Any]) -> str:
    """The error and the last line of the learner's own code that led to it."""
    message = " ".join(str(error).split())
    what = f"raised {type(error).__name__}" + (f": {message}" if message else "")
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    numbers = [number for _, number in traceback.walk_tb(error.__traceback__)]
    own = _file_of(function)
    for frame, number in zip(reversed(frames), reversed(numbers), strict=True):
        if frame.f_code.co_filename == own:
            line = linecache.getline(own, number).strip()
            return f"{what} (line {number}: `{line}`)" if line else f"{what} (line {number})"
    return what


def _file_of(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return str(code.co_filename) if code is not None else ""
