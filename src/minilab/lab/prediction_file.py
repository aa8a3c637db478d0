"""Predictions kept: in memory always, and in ``work/predictions.json`` where that can be written.

The file lets calibration grow over the labs and survive a kernel restart. A file that can't be
read is left as it is and said so once: a learner's record is never overwritten by a guess.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab.workdir import in_solutions, relative, work_folder, write_whole

VERSION = 1


@dataclass(frozen=True)
class Prediction:
    """What was said before the run; ``actual`` after it. changes: earlier (value, low, high,
    confidence, unit), oldest first.
    """

    id: str
    value: float
    low: float
    high: float
    confidence: float
    unit: str = ""
    actual: float | None = None
    changes: tuple[tuple[Any, ...], ...] = ()

    def said(self) -> tuple[Any, ...]:
        """Everything a later call could change."""
        return (self.value, self.low, self.high, self.confidence, self.unit)

    @property
    def hit(self) -> bool | None:
        """Did the interval hold the outcome; None while there is none."""
        return None if self.actual is None else self.low <= self.actual <= self.high

    @property
    def relative_error(self) -> float | None:
        """(value - actual) / abs(actual); None without an outcome or when it is 0."""
        return (self.value - self.actual) / abs(self.actual) if self.actual else None


@dataclass
class PredictionStore:
    """The predictions of one folder, in the order they were filed."""

    path: Path
    kept: dict[str, Prediction] = field(default_factory=dict)
    writable: bool = True

    @classmethod
    def open(cls, path: Path) -> PredictionStore:
        """Read the file if there is one; a broken or newer one is left alone."""
        store = cls(path)
        if not path.is_file():
            return store
        try:
            store.kept = _read(path)
        except (OSError, ValueError, TypeError, KeyError) as error:
            store.writable = False
            print(f"{relative(path)}: not read ({error}); predictions of this session stay in "
                  "memory. Move the file away to start a new one.")  # fmt: skip
        return store

    def get(self, prediction_id: str) -> Prediction | None:
        """The prediction under this id, if filed."""
        return self.kept.get(prediction_id)

    def all(self) -> list[Prediction]:
        """Every prediction, oldest first."""
        return list(self.kept.values())

    def put(self, prediction: Prediction) -> None:
        """Keep a prediction, in the file too where that works."""
        self.kept[prediction.id] = prediction
        if not self.writable:
            return
        kept = [asdict(p) for p in self.all()]
        text = json.dumps({"minilab_predictions": VERSION, "predictions": kept}, indent=1)
        try:
            write_whole(self.path, text + "\n")
        except InputError as error:
            self.writable = False
            print(f"{error}. Predictions of this session stay in memory.")


def _read(path: Path) -> dict[str, Prediction]:
    content = json.loads(path.read_text(encoding="utf-8"))
    version = content["minilab_predictions"]
    if version != VERSION:
        raise ValueError(f"version {version}, this package knows {VERSION}")
    rows = [{**row, "changes": tuple(map(tuple, row["changes"]))} for row in content["predictions"]]
    return {row["id"]: Prediction(**row) for row in rows}


_OPEN: dict[Path, PredictionStore] = {}


def store() -> PredictionStore:
    """The store of the current work folder, opened once in a session.

    A solution's stays in memory: from a file, its second run would meet its own outcomes.
    """
    path = (work_folder() / "predictions.json").resolve()
    if path not in _OPEN:
        memory_only = PredictionStore(path, writable=False)
        _OPEN[path] = memory_only if in_solutions() else PredictionStore.open(path)
    return _OPEN[path]
