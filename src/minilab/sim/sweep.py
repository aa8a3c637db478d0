"""Sweep: many experiments, one row each, in parallel if asked, resumable after a kill.

    rows = sweep(grid(Experiment(), rate=[2, 4, 8], policy=["mixed", "prefill-first"]),
                 "ttft=0.5,itl=0.05", jobs=2, out="sweep.jsonl")

``jobs`` processes come from joblib; without it everything runs in this process. One line before
``sweep`` sends it to other machines instead (``jobs=-1``: as many as there are):

    joblib.parallel_config(backend="dask")                            # after dask's Client(...)
    ray.util.joblib.register_ray(); joblib.parallel_config(backend="ray")
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minilab.facts.errors import InputError
from minilab.facts.metrics import summary
from minilab.facts.runlog import RunLog
from minilab.facts.slo import goodput
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set
from minilab.sim.experiment import Experiment
from minilab.sim.progress_bar import progress_bar
from minilab.sim.repeats import Repeat
from minilab.sim.sweep_store import Identity, SweepStore, code_version, notice, write_csv
from minilab.sim.workload_spec import WorkloadSpec

Row = dict[str, Any]
SLOs = str | SLO | SLOSet | None
CHUNK = 8  # results a worker gathers where a backend gives them back only at the end


class Task(NamedTuple):
    """One row to make: what runs, and the SLOs (in their written form) that judge it."""

    repeat: Repeat
    slos: str | None = None

    def identity(self) -> Identity:
        """What the row will be the answer to."""
        inputs = self.repeat.inputs()["inputs"]
        return Identity(self.repeat.key, self.slos, inputs, code_version())


def sweep(
    experiments: Iterable[Experiment],
    slos: SLOs = None,
    *,
    jobs: int = 1,
    out: Path | str | None = None,
    progress: bool = True,
) -> list[Row]:
    """One flat, JSON-able row per experiment, in the order given.

    A row has the fields in which the experiments differ (those of the workload by their own names),
    ``key``, and the numbers of ``numbers``.

    Args:
        experiments: what to run; one that occurs twice runs once.
        slos: judge every run by these; ``None``: attainment and goodput are None.
        jobs: processes, -1 for one per core (see the module for other machines).
        out: keep rows in this file. ``.jsonl``: one finished row a line; the same sweep started
            again reads them and runs the rest, after Ctrl-C and after a kill alike. ``.csv``: the
            table, written when all is done, with the ``.jsonl`` beside it. Rows of other code or
            other data behind the same names run anew.
        progress: a bar on stderr (tqdm, or a counter without it).

    Raises:
        InputError: an experiment that cannot run (said before the first one does), SLOs that cannot
            be read, or a file that cannot be written (the rows so far stay in it).
    """
    chosen = list(experiments)
    text = None if slos is None else str(as_slo_set(slos))
    store, table = _places(out)
    tasks = [Task(Repeat(experiment), text) for experiment in chosen]
    measured = run_all(tasks, jobs=jobs, out=store, progress=progress)
    fields = [flat(experiment) for experiment in chosen]
    differ = [name for name in fields[0] if len({repr(f[name]) for f in fields}) > 1]
    rows = [
        {**{name: f[name] for name in differ}, **row}
        for f, row in zip(fields, measured, strict=True)
    ]
    if table is not None:
        write_csv(table, rows)
    return rows


def grid(base: Experiment, **axes: Sequence[Any]) -> list[Experiment]:
    """Every combination of the axes' values, the last axis fastest: ``grid(base, rate=[2, 4])``.

    Raises:
        InputError: no such field, or an axis that is no list of at least one value.
    """
    for name, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable) or not len(values):
            raise InputError(f"grid: {name}={values!r}; an axis is a list of values, at least one")
    points = product(*(map(plain, values) for values in axes.values()))
    return [base.with_(**dict(zip(axes, point, strict=True))) for point in points]


def plain(value: Any) -> Any:
    """A number of numpy's as Python's own: an experiment must be JSON-able."""
    return value.item() if isinstance(value, np.generic) else value


def numbers(log: RunLog, slos: str | None = None, gpus: float = 1) -> Row:
    """What a row says of a run; None is unavailable.

    requests, completed, duration (s), gpus; METRIC_p50, _p90, _p99 and _mean of each metric of
    ``facts.metrics`` and of the pooled gaps (s); attainment, throughput, goodput, goodput_per_gpu
    (requests/s); kv_peak_usage (share of the blocks), preemptions, token_hit_rate (prompt tokens
    found in the prefix cache, of all scheduled prompts).
    """
    row: Row = {"requests": len(log), "completed": int(log.finished.sum())}
    row |= {"duration": log.duration if log.duration > 0 else None, "gpus": gpus}
    result = None if slos is None else goodput(log, slos, gpus)
    for name in ("attainment", "throughput", "goodput", "goodput_per_gpu"):
        row[name] = None if result is None else getattr(result, name)
    for name, found in summary(log).items():
        for part in ("p50", "p90", "p99", "mean"):
            row[f"{name}_{part}"] = None if found is None else found[part]
    scheduled = log.requests["scheduled"] >= 0  # not NaN: its prompt was looked up
    prompt = int(log.requests["prompt_tokens"][scheduled].sum())
    cached = int(log.requests["cached_tokens"][scheduled].sum())
    return row | {
        "kv_peak_usage": log.meta.get("kv_peak_usage"),
        "preemptions": log.meta.get("preemptions"),
        "token_hit_rate": cached / prompt if prompt else None,
    }


def flat(experiment: Experiment) -> Row:
    """All fields, those of the workload among them."""
    values = experiment.to_dict()
    return {**values.pop("workload"), **values}


# -- what sweeps, load curves and regime maps share ------------------------------------------------


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
        stream = joblib.Parallel(jobs, return_as="generator_unordered")(calls)
    except ValueError:  # a backend that knows no callbacks, such as ray's: row by row is too slow
        workers = joblib.Parallel(jobs)
        while chunk := list(islice(calls, CHUNK * abs(workers.n_jobs))):
            yield from workers(chunk)
        return
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


def _places(out: Path | str | None) -> tuple[Path | None, Path | None]:
    """The store and the table that ``out`` asks for."""
    if out is None:
        return None, None
    path = Path(out)
    if path.suffix not in (".jsonl", ".csv"):
        raise InputError(
            f"{path}: a sweep writes .jsonl (rows) or .csv (a table); name one of them"
        )
    return path.with_suffix(".jsonl"), path if path.suffix == ".csv" else None
