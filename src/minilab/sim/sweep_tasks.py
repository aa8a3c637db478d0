"""Tasks: the runs behind sweeps, load curves and regime maps, done in parallel and kept in a store.

Each finished row goes to the store before the next one is waited for, so that a kill costs at most
what was running.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from minilab.facts.errors import InputError
from minilab.sim.progress_bar import progress_bar
from minilab.sim.repeats import Repeat
from minilab.sim.sweep_row import Row, flat, numbers
from minilab.sim.sweep_store import Identity, SweepStore, code_version, notice
from minilab.sim.workload_spec import WorkloadSpec

CHUNK = 8  # results a worker gathers where a backend gives them back only at the end


class Task(NamedTuple):
    """One row to make: what runs, and the SLOs (in their written form) that judge it."""

    repeat: Repeat
    slos: str | None = None

    def identity(self) -> Identity:
        """What the row will be the answer to."""
        inputs = self.repeat.inputs()["inputs"]
        return Identity(self.repeat.key, self.slos, inputs, code_version())


def run_all(
    tasks: Sequence[Task],
    *,
    jobs: int = 1,
    out: Path | str | None = None,
    progress: bool = True,
) -> list[Row]:
    """``key`` and ``numbers`` of each task, in order; ``out`` is a ``.jsonl`` store or None.

    Raises:
        InputError: as ``sweep``.
    """
    if not tasks:
        raise InputError("sweep: no experiments; give at least one")
    if jobs < 1 and jobs != -1:
        raise InputError(f"sweep: jobs={jobs}; at least 1, or -1 for one per core")
    _check(tasks)
    wanted = {task.identity(): task for task in tasks}
    with nullcontext() if out is None else SweepStore(out) as store:
        done = {} if store is None else store.find(wanted)
        pending = {i: task for i, task in wanted.items() if i not in done}
        with progress_bar("sweep", len(wanted), len(done), progress) as tick:
            for identity, row in _results(pending, jobs):
                done[identity] = row
                if store is not None:
                    store.append(row)
                tick()
    hidden = {*flat(tasks[0].repeat.experiment), "minilab_sweep", "slos", "inputs", "version"}
    rows = (done[task.identity()] for task in tasks)
    return [{name: value for name, value in row.items() if name not in hidden} for row in rows]


def _check(tasks: Sequence[Task]) -> None:
    """Refuse what cannot run before anything does; a hundred workloads on one server are one."""
    servers = set()
    for position, task in enumerate(tasks, 1):
        server = replace(task.repeat.experiment, workload=WorkloadSpec())
        try:
            task.repeat.inputs()
            if server not in servers:
                server.build()
        except InputError as error:
            raise InputError(f"sweep: experiment {position} of {len(tasks)}: {error}") from None
        servers.add(server)


def _results(pending: dict[Identity, Task], jobs: int) -> Iterator[tuple[Identity, Row]]:
    """Each pending row as soon as there is one."""
    items = list(pending.items())
    joblib = None if jobs == 1 or len(items) < 2 else _joblib()
    if joblib is None:
        for item in items:
            yield _measure(*item)
        return
    calls = (joblib.delayed(_measure)(*item) for item in items)
    try:
        workers = joblib.Parallel(jobs, return_as="generator_unordered")
    except ValueError:  # a backend that hands results over only at the end, such as ray's
        chunk = CHUNK * joblib.effective_n_jobs(jobs)
        while some := list(islice(calls, chunk)):
            yield from joblib.Parallel(jobs)(some)
        return
    stream = workers(calls)
    try:
        yield from stream
    finally:
        stream.close()  # an interrupted sweep leaves no worker at work


def _measure(identity: Identity, task: Task) -> tuple[Identity, Row]:
    """Run one task, here or in a worker."""
    experiment = task.repeat.experiment
    log = task.repeat.run()
    row = {**identity._asdict(), "data": log.meta["data"]["kind"], **flat(experiment)}
    return identity, row | numbers(log, task.slos, experiment.gpus)


def _joblib() -> Any:
    try:
        return importlib.import_module("joblib")
    except ImportError:
        notice("joblib is not installed, so this runs in one process (pip install minilab[sweep])")
        return None
