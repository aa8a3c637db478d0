"""A progress bar on stderr: tqdm's, or a plain counter where tqdm is not installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(name: str, total: int, done: int, show: bool) -> Iterator[Callable[[], None]]:
    """A function to call once per finished piece; ``done`` of ``total`` are finished already."""
    if not show or done == total:
        yield lambda: None
        return
    try:
        tqdm = importlib.import_module("tqdm")
    except ImportError:
        counter = _Counter(name, total, done)
        try:
            yield counter.tick
        finally:
            counter.end()
        return
    with tqdm.tqdm(total=total, initial=done, desc=name, file=sys.stderr) as bar:
        yield lambda: bar.update()


class _Counter:
    """Rewrites one line of a terminal; into a file it writes one line per tenth."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self.name, self.total, self.done = name, total, done
        self.terminal = sys.stderr.isatty()

    def tick(self) -> None:
        self.done += 1
        tenth = 10 * self.done // self.total > 10 * (self.done - 1) // self.total
        if self.terminal or tenth:
            start, end = ("\r", "") if self.terminal else ("", "\n")
            print(f"{start}{self.name}: {self.done} of {self.total}", end=end, file=sys.stderr)
            sys.stderr.flush()

    def end(self) -> None:
        if self.terminal:
            print(file=sys.stderr)
