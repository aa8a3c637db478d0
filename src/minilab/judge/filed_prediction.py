"""A prediction filed before the run: numbers, the workload they are of, and when they were said.

The file is small JSON. A digest over its content shows a careless edit; it is no seal against
somebody who means to cheat. ``against`` refuses what cannot be a prediction of a run: one filed
after the run began, or of another workload.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json

VERSION = 1


class Said(NamedTuple):
    """One predicted number and the range that was held to be likely; None without a range.

    ``by``: "simulator", "selector" or "person".
    """

    value: float
    low: float | None
    high: float | None
    by: str

    def holds(self, actual: float) -> bool | None:
        """Whether the range held the outcome; None without a range."""
        if self.low is None or self.high is None:
            return None
        return self.low <= actual <= self.high


class Scored(NamedTuple):
    """A predicted number with what came; ``error`` is (said - actual) / |actual|, None at 0."""

    name: str
    said: Said
    actual: float
    hit: bool | None
    error: float | None


@dataclass(frozen=True)
class FiledPrediction:
    """What was said, of what, and when.

    Attributes:
        filed: ISO time in UTC.
        workload_hash: ``Workload.hash()`` of the requests that will be served.
        workload, settings: how to make them again, and what was to serve them.
        slo: the limits, as ``SLOSet`` writes them.
        said: by a name of ``sim.sweep_row.NUMBERS``; times in s, rates in requests/s, shares of 1.
        coverage: the share of the ranges that is meant to hold the outcome.
        why: a person's reason, in a sentence.
    """

    filed: str
    workload_hash: str
    workload: Mapping[str, Any]
    settings: Mapping[str, Any]
    slo: str
    said: Mapping[str, Said]
    coverage: float = 0.8
    why: str = ""
    requests: int = 0

    @property
    def when(self) -> datetime:
        """When it was filed."""
        return utc(self.filed)

    def content(self) -> dict[str, Any]:
        """Everything but the digest, as JSON has it."""
        found = asdict(self)
        found["said"] = {name: said._asdict() for name, said in self.said.items()}
        return {"minilab_prediction": VERSION, **found}

    def write(self, path: Path | str) -> None:
        """File it; a prediction that is already there stays.

        Raises:
            InputError: the file exists, or cannot be written.
        """
        if Path(path).exists():
            raise InputError(
                f"{path}: holds a prediction already, and a filed one stays; name another file"
            )
        content = self.content()
        text = json.dumps({**content, "digest": _digest(content)}, indent=1)
        with whole_file(path) as file:
            file.write(text.encode() + b"\n")

    @classmethod
    def read(cls, path: Path | str) -> FiledPrediction:
        """The prediction in a file.

        Raises:
            InputError: no such file, none of ours, or changed since it was filed.
        """
        content = read_json(path)
        if not isinstance(content, dict) or content.get("minilab_prediction") != VERSION:
            raise InputError(f"{path}: no prediction; make one with `minilab predict`")
        digest = content.pop("digest", None)
        if digest != _digest(content):
            raise InputError(
                f"{path}: its content was changed after it was filed; a prediction is not edited: "
                "file a new one before a new run"
            )
        del content["minilab_prediction"]
        said = {name: Said(**row) for name, row in content.pop("said").items()}
        return cls(said=said, **content)

    def against(
        self, name: str, workload_hash: str | None, began: datetime, numbers: Mapping[str, Any]
    ) -> list[Scored]:
        """What was said beside what came, of the run ``name``.

        Raises:
            InputError: it is of another workload, or was filed after the run began.
        """
        if workload_hash is None:
            raise InputError(
                f"{name}: this log does not say which requests it served, so no prediction can be "
                "held against it; measure with `minilab load` or `minilab sim`"
            )
        if workload_hash != self.workload_hash:
            raise InputError(
                f"{name}: the prediction is of workload {self.workload_hash[:12]}, the run served "
                f"{workload_hash[:12]}; predict with the options the run has"
            )
        if self.when > began:
            raise InputError(
                f"{name}: the prediction was filed at {self.filed}, after the run had begun "
                f"({began.isoformat(timespec='seconds')}); it is none: file one before a new run"
            )
        return [
            _scored(quantity, said, numbers[quantity])
            for quantity, said in self.said.items()
            if numbers.get(quantity) is not None
        ]


def _scored(name: str, said: Said, actual: float) -> Scored:
    error = (said.value - actual) / abs(actual) if actual else None
    return Scored(name, said, actual, said.holds(actual), error)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def now() -> str:
    """This moment as the files have it: ISO, UTC, to the second below, so that what follows it is
    never earlier."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def utc(text: str) -> datetime:
    """An ISO time as a moment; one that names no zone is taken as UTC.

    Raises:
        InputError: it is no ISO time.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"time {text!r}: must be ISO, such as 2026-11-30T12:00:00+00:00"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
