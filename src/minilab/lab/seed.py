"""Numbers of one's own: what a student's name decides, the same in every session.

``MINILAB_STUDENT`` names the student (``minilab grade`` sets it from the folder). With a name, the
cases that checks draw at random and the workload of a capstone differ from the neighbour's; without
one they are everybody's. A name is no secret and this is no lock: it makes a copied number wrong,
not a copied idea.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

VARIABLE = "MINILAB_STUDENT"
T = TypeVar("T")


def student() -> str:
    """The student's name, empty where none is set."""
    return os.environ.get(VARIABLE, "").strip()


def stream(what: str, name: str | None = None) -> random.Random:
    """Random numbers for one purpose, of this student (or of ``name``)."""
    who = student() if name is None else name
    return random.Random(f"{what}/{who}" if who else what)


def pick(what: str, choices: Sequence[T], name: str | None = None) -> T:
    """One of some choices."""
    return stream(what, name).choice(choices)


def whole(what: str, low: int, high: int, step: int = 1, name: str | None = None) -> int:
    """A whole number from ``low`` to ``high``, both included, in steps."""
    return stream(what, name).randrange(low, high + 1, step)
