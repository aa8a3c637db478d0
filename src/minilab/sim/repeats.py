"""Repeat: the same experiment once more, with other luck, so that a result gets an interval.

A synthetic workload has a seed for that. A trace happened once and has no randomness to draw from;
there, the repeat starts reading at another place. Such an interval says how much the answer depends
on which stretch of the trace was replayed, which is the luck that a replay has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minilab.facts.arrivals import whole
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.workload import Workload
from minilab.sim.experiment import Experiment
from minilab.sim.workload_spec import WorkloadSpec

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Repeat:
    """An experiment, and which window of its trace is replayed (0: from the trace's start)."""

    experiment: Experiment
    shift: int = 0

    @property
    def key(self) -> str:
        """Names what runs: the experiment's key, and the shift if there is one."""
        return self.experiment.key + (f"+{self.shift}" if self.shift else "")

    def run(self) -> RunLog:
        """Simulate; ``meta["shift"]`` says which window it was, if not the first."""
        if not self.shift:
            return self.experiment.run()
        log = self.experiment.run(shifted(self.experiment.workload, self.shift))
        log.meta["shift"] = self.shift
        return log

    def inputs(self) -> dict[str, Any]:
        """What the result depends on beyond the key: the data behind a name, a GPU file's content.

        {"data": kind of the source ("real", "stand-in", "synthetic"), "inputs": 16 hex digits, or
        "" where the key says it all}.

        Raises:
            InputError: a trace or a file that cannot be read.
        """
        spec, gpu_file = self.experiment.workload, self.experiment.gpu_file
        if is_synthetic(spec) and gpu_file is None:
            return {"data": "synthetic", "inputs": ""}
        source = {"kind": "synthetic"} if is_synthetic(spec) else _whole_trace(spec).source
        digest = hashlib.sha256(f"{source['kind']} {source.get('sha256')}".encode())
        if gpu_file is not None:
            try:
                digest.update(Path(gpu_file).read_bytes())
            except OSError as error:
                raise InputError(
                    f"{gpu_file}: cannot be read ({error.strerror}); name a GPU file that exists"
                ) from None
        return {"data": source["kind"], "inputs": digest.hexdigest()[:16]}


def repeats(experiment: Experiment, seeds: Sequence[int]) -> list[Repeat]:
    """The experiment once for each seed (whole numbers, 0 up, each once).

    A synthetic workload gets the seed. A trace is rotated: seed 0 replays it as it is, seed k
    starts ``frac(k * 0.618)`` of the way through, so that any number of seeds spread evenly.

    Raises:
        InputError: no seed, one twice, or one that is no whole number.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds {list(seeds)}; at least one, each once; such as (0, 1, 2)")
    chosen = [whole("seed", seed, 0) for seed in seeds]
    if is_synthetic(experiment.workload):
        return [Repeat(experiment.with_(seed=seed)) for seed in chosen]
    return [Repeat(experiment, seed) for seed in chosen]


def is_synthetic(spec: WorkloadSpec) -> bool:
    """Whether the requests are drawn by a seed, not read from a trace."""
    return spec.trace == "synthetic" and spec.file is None


def shifted(spec: WorkloadSpec, shift: int) -> Workload:
    """The workload of a trace's spec, from window ``shift`` of the whole trace.

    ``spec.limit`` requests (all of them without it) from the window's start on; past the trace's
    end it goes on with the trace's beginning. ``rate``, ``speedup`` and ``concurrency`` apply to
    the window, so with a ``rate`` every window has that rate. Window 0 is ``spec.load()``.

    Raises:
        InputError: no such trace, or one whose requests wait for each other.
    """
    work = window(_whole_trace(spec), shift, spec.limit)
    if spec.rate is not None:
        work = work.scaled_to_rate(spec.rate)
    if spec.speedup != 1.0:
        work = work.speedup(spec.speedup)
    return replace(work, concurrency=spec.concurrency).validate()


def window(work: Workload, shift: int, limit: int | None = None) -> Workload:
    """``limit`` requests of ``work`` (None: as many as it has) from ``frac(shift * 0.618)`` on.

    Arrivals count from the window's first request. Where the window passes the end of ``work``, its
    first request follows the last one after an average gap.

    Raises:
        InputError: requests that wait for another one (sessions); their order is not free.
    """
    requests = work.requests
    if any(request.after is not None for request in requests):
        raise InputError(
            f"{work.name}: requests wait for each other (after); a window would cut sessions in "
            "two; make another workload per seed instead"
        )
    size = len(requests) if limit is None else min(whole("limit", limit), len(requests))
    start = int(len(requests) * (shift * GOLDEN % 1.0))
    front = requests[start : start + size]
    back = requests[: size - len(front)]
    origin, last = requests[0].arrival, requests[-1].arrival
    seam = last + (last - origin) / max(1, len(requests) - 1) - origin
    times = [r.arrival - front[0].arrival for r in front]
    times += [r.arrival + seam - front[0].arrival for r in back]
    moved = zip([*front, *back], times, strict=True)
    return replace(work, requests=[r._replace(id=k, arrival=t) for k, (r, t) in enumerate(moved)])


def _whole_trace(spec: WorkloadSpec) -> Workload:
    """As recorded; read once per process."""
    return replace(spec, limit=None, rate=None, speedup=1.0, concurrency=None).load()
