"""Runs: logs from files, each with the side it belongs to, its settings and its numbers."""

from __future__ import annotations

import glob
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from minilab.facts import readers
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.slo import SLOSet
from minilab.judge.filed_prediction import utc
from minilab.sim.sweep_row import Row, numbers

NO_AXIS = ("seed", "cost", "prefill_cost", "file")
"""Settings that repeat a run or say how it was computed, rather than what it is a run of."""


@dataclass(frozen=True)
class Run:
    """One log.

    Attributes:
        side: what the report calls it; several runs may be of one side.
        settings: the simulator's fields, flat; of a measured run, the rate that was asked for.
        began: when it ran, or (``dated`` False) when its file was last written.
        row: ``sim.sweep_row.numbers`` under the report's SLOs.
    """

    side: str
    path: str
    log: RunLog
    settings: Mapping[str, Any]
    began: datetime
    dated: bool
    row: Row

    @property
    def workload_hash(self) -> str | None:
        """Of the requests it served, where the log says so."""
        found = self.log.meta.get("workload_hash")
        return found if isinstance(found, str) else None

    @property
    def simulated(self) -> bool:
        """Whether a simulator made it."""
        return isinstance(self.log.meta.get("config"), dict) and "cpu_seconds" in self.log.meta


def read_runs(words: Sequence[str], slos: SLOSet, gpus: float | None = None) -> list[Run]:
    """The runs of ``FILE`` and ``NAME=FILE`` words; a NAME may come again, FILE may have a ``*``.

    ``gpus`` is for logs that do not say.

    Raises:
        InputError: no such file, no run log or benchmark file, no limits for a class, or no run.
    """
    found = []
    for word in words:
        name, path = _split(word)
        for place in _files(path):
            log = readers.read(place)
            if not len(log):
                raise InputError(f"{place}: has no requests; a report needs runs that have some")
            found.append(run_of(name or Path(place).stem, place, log, slos, gpus))
    if not found:
        raise InputError("report: no run is given; name files such as plain=plain.jsonl")
    return found


def run_of(side: str, path: str, log: RunLog, slos: SLOSet, gpus: float | None = None) -> Run:
    """A log as a run of a side; ``path`` is what the report calls it, and dates it if need be."""
    began, dated = _began(log, path)
    row = numbers(log, str(slos), gpus_of(log, gpus))
    return Run(side, path, log, settings_of(log), began, dated, row)


def _split(word: str) -> tuple[str, str]:
    """(name, path); a file whose own name holds "=" is a file."""
    name, equals, path = word.partition("=")
    if not equals or Path(word).exists():
        return "", word
    if not name.strip() or not path.strip():
        raise InputError(f"report: {word!r}; write NAME=FILE, such as plain=plain.jsonl")
    return name.strip(), path.strip()


def _files(path: str) -> list[str]:
    if Path(path).exists() or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise InputError(f"{path}: no file is called so; check the pattern")
    return found


def gpus_of(log: RunLog, given: float | None = None) -> float:
    """GPUs that the log names, else those given, else 1."""
    said = log.meta.get("gpus")
    if isinstance(said, (int, float)) and not isinstance(said, bool) and 0 < said < math.inf:
        return float(said)
    return 1.0 if given is None else given


def _began(log: RunLog, path: str) -> tuple[datetime, bool]:
    said = log.meta.get("started")
    if isinstance(said, str):
        return utc(said), True
    return datetime.fromtimestamp(Path(path).stat().st_mtime, timezone.utc), False


def settings_of(log: RunLog) -> dict[str, Any]:
    """The settings of a run, flat; what only repeats it (``NO_AXIS``) is kept as well.

    A log may name its own place in a grid, ``meta["point"]``; this then stands for the workload.
    """
    point = log.meta.get("point")
    own = point if isinstance(point, dict) else {}
    config = log.meta.get("config")
    if isinstance(config, dict):
        flat = {**config}
        inner = flat.pop("workload", None)
        return {**(inner if isinstance(inner, dict) and not own else {}), **flat, **own}
    if own:
        return dict(own)
    told = log.meta.get("arrivals")
    asked = told.get("requested") if isinstance(told, dict) else None
    return {"rate": float(f"{asked:.3g}")} if isinstance(asked, float) and asked > 0 else {}


def same_requests(one: Run, other: Run) -> bool:
    """Whether both served the same requests: by the workload's hash, else by all lengths."""
    if one.workload_hash is not None and other.workload_hash is not None:
        return one.workload_hash == other.workload_hash
    a, b = one.log.requests, other.log.requests
    alike = len(one.log) == len(other.log) and np.array_equal(a["id"], b["id"])
    return alike and np.array_equal(a["prompt_tokens"], b["prompt_tokens"])
