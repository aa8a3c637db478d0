"""A store of scores, one JSON line each: a long pass that is interrupted goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from minilab.facts.cost import Constants
from minilab.facts.errors import InputError
from minilab.judge.scores import Scored
from minilab.judge.silicon_fit import score
from minilab.judge.silicon_rows import SiliconRow

VERSION = 1
"""Raise it when the simulator, the protocol or the cost model change what a score is."""


class ScoreStore:
    """Scores by row and constants. Without a path it only remembers."""

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._known: dict[str, tuple[float, ...]] = {}
        if self._path is not None and self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                try:
                    key, *values = json.loads(line)
                except ValueError:  # cut off in the middle: that row is done again
                    continue
                self._known[key] = tuple(values)

    def score_all(
        self,
        rows: Sequence[SiliconRow],
        constants: Constants,
        progress: Callable[[str], None] | None = None,
    ) -> list[Scored]:
        """The score of each row that can run; new ones are written as they come."""
        found = []
        for at, row in enumerate(rows, 1):
            key = self._key(row, constants)
            if key not in self._known:
                try:
                    values = tuple(score(row, constants)[1:])
                except InputError:  # it does not fit into the memory we think it has
                    values = ()
                self._add(key, values)
            if self._known[key]:
                found.append(Scored(row, *self._known[key]))
            if progress is not None and at % 50 == 0:
                progress(f"{at} of {len(rows)} rows scored")
        return found

    def _key(self, row: SiliconRow, constants: Constants) -> str:
        values = {k: v for k, v in constants.to_dict().items() if k != "provenance"}
        text = json.dumps([VERSION, row.digest, list(row.launch), values], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _add(self, key: str, values: tuple[float, ...]) -> None:
        self._known[key] = values
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([key, *values]) + "\n")
