"""PlacementStore: the loads a search has tried, kept so that it can go on after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, TextIO

from minilab.facts.errors import InputError
from minilab.sim.experiment import Experiment
from minilab.sim.repeats import Repeat
from minilab.sim.sweep_store import code_version

Point = tuple[float, int]  # rate, seed


class PlacementStore:
    """Attainments by experiment, SLO, code version and (rate, seed), one JSON line each.

    Lines of other code, other data behind the same names, and a half line left by a kill are passed
    over.

    Raises:
        InputError: the file cannot be read or written, or is none of ours.
    """

    def __init__(self, path: Path | str | None) -> None:
        self._file: TextIO | None = None
        self._known: dict[str, dict[Point, float]] = {}
        if path is None:
            return
        place = Path(path)
        if place.suffix != ".jsonl":
            raise InputError(f"{place}: a search keeps its loads in a .jsonl file; name one")
        try:
            if place.exists():
                self._read(place)
            self._file = place.open("a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{place}: {error.strerror or error}") from None

    def _read(self, place: Path) -> None:
        text = place.read_text(encoding="utf-8")
        lines = text.split("\n")
        whole, rest = lines[:-1], lines[-1]
        if rest:  # the process was killed in this line
            place.write_text("".join(f"{line}\n" for line in whole), encoding="utf-8")
        for number, line in enumerate(whole, 1):
            try:
                row: dict[str, Any] = json.loads(line)
                point = (float(row["rate"]), int(row["seed"]))
                self._known.setdefault(row["about"], {})[point] = float(row["attainment"])
            except (ValueError, KeyError, TypeError):
                raise InputError(
                    f"{place}:{number}: not a line of a placement search; name another file"
                ) from None

    def cache(self, experiment: Experiment, slos: str) -> MutableMapping[Point, float]:
        """What is known of one experiment's loads; what is put in is written down."""
        plain = experiment.with_(rate=None, seed=0)
        repeat = Repeat(plain)
        about = f"{repeat.key} {repeat.inputs()['inputs']} {slos} {code_version()}"
        return _Loads(about, self._known.setdefault(about, {}), self._file)

    def __enter__(self) -> PlacementStore:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()


class _Loads(MutableMapping[Point, float]):
    def __init__(self, about: str, known: dict[Point, float], file: TextIO | None) -> None:
        self._about, self._known, self._file = about, known, file

    def __getitem__(self, point: Point) -> float:
        return self._known[point]

    def __setitem__(self, point: Point, attainment: float) -> None:
        self._known[point] = attainment
        if self._file is not None:
            row = {"about": self._about, "rate": point[0], "seed": point[1]}
            self._file.write(json.dumps({**row, "attainment": attainment}) + "\n")
            self._file.flush()

    def __delitem__(self, point: Point) -> None:
        del self._known[point]

    def __iter__(self) -> Iterator[Point]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
