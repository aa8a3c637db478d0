"""Sweep: many experiments, one row each, in parallel if asked, resumable after a kill.

    rows = sweep(grid(Experiment(), rate=[2, 4, 8], policy=["mixed", "prefill-first"]),
                 "ttft=0.5,itl=0.05", jobs=2, out="sweep.jsonl")

``jobs`` processes come from joblib; without it everything runs in this process. One line before
``sweep`` sends it to other machines instead (``jobs=-1``: as many as there are):

    joblib.parallel_config(backend="dask")                            # after dask's Client(...)
    ray.util.joblib.register_ray(); joblib.parallel_config(backend="ray")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from minilab.facts.errors import InputError
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set
from minilab.sim.experiment import Experiment
from minilab.sim.repeats import Repeat
from minilab.sim.sweep_row import Row, flat
from minilab.sim.sweep_store import write_csv
from minilab.sim.sweep_tasks import Task, run_all

SLOs = str | SLO | SLOSet | None


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
    ``key``, and the numbers of ``sweep_row.NUMBERS``.

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


def plain(value: Any) -> Any:
    """A number of numpy's as Python's own: an experiment must be JSON-able."""
    return value.item() if isinstance(value, np.generic) else value
