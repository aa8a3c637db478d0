"""A store of timed steps, one JSON line each: an interrupted calibration goes on where it was.

The first line says whose steps they are; those of another model or machine would spoil a fit, so
a store of theirs is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from minilab.facts.cost import StepShape
from minilab.facts.errors import InputError
from minilab.judge.engine_steps import Point, Timed


class StepStore:
    """Steps by round and point. Without a path it only remembers.

    Args:
        about: what the steps belong to, as JSON; a file of something else is refused.
    """

    def __init__(self, path: str | Path | None, about: dict[str, Any]) -> None:
        self._path = None if path is None else Path(path)
        self._known: dict[tuple[int, str], list[Timed]] = {}
        if self._path is None:
            return
        if self._path.exists():
            self._read(self._path, about)
        else:
            self._path.write_text(json.dumps({"steps_of": about}) + "\n", encoding="utf-8")

    def _read(self, path: Path, about: dict[str, Any]) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        try:
            found = json.loads(lines[0])["steps_of"]
        except (ValueError, IndexError, KeyError, TypeError):
            raise InputError(f"{path}: no store of steps; name another file") from None
        if found != json.loads(json.dumps(about)):
            keys = [key for key in about if found.get(key) != about[key]]
            what = ", ".join(f"{key} {found.get(key)!r}" for key in keys[:2])
            raise InputError(f"{path}: holds steps of {what}; name another file, or remove it")
        for line in lines[1:]:
            try:
                number, name, timed = json.loads(line)
                steps = [Timed(StepShape(*shape), seconds) for shape, seconds in timed]
            except (ValueError, TypeError):  # cut off in the middle: measured again
                continue
            self._known[number, name] = steps

    def __len__(self) -> int:
        return len(self._known)

    def known(self, number: int, point: Point) -> list[Timed] | None:
        """What is known of a point in a round."""
        return self._known.get((number, point.name))

    def keep(self, number: int, point: Point, timed: list[Timed]) -> None:
        """Note a measurement."""
        self._known[number, point.name] = timed
        if self._path is not None:
            row = [number, point.name, [[list(one.shape), one.seconds] for one in timed]]
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")
