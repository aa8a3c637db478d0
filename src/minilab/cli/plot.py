"""The picture of a run: how long requests waited, and how loaded the instances were.

It carries its alternative text as metadata, for a page that shows it to read aloud.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure

from minilab.cli.output import duration, share
from minilab.facts.atomic import whole_file
from minilab.facts.runlog import RunLog
from minilab.facts.slo import SLOSet, metric
from minilab.lab.show import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = ("ttft", "itl", "stall", "e2e")
_ALT_KEY = {".png": "Description", ".svg": "Description", ".pdf": "Subject"}
_COLUMNS = 400
"""Bins of the load over time: more than a screen has no use for."""


def write(log: RunLog, result: dict[str, Any], path: str) -> None:
    """Draw ``log`` into ``path`` (.png, .svg or .pdf), whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    ending = Path(path).suffix.lower()
    with matplotlib.rc_context():
        matplotlib.style.use(STYLE)
        figure = Figure(figsize=(9.0, 7.0))
        upper, middle, lower = figure.subplots(3, 1, height_ratios=(2, 1, 1))
        _latencies(upper, log, result["slo"])
        _load(middle, lower, log)
        upper.set_title(f"{result['data']['name']} ({result['data']['kind']})")
        with whole_file(path) as file:
            figure.savefig(file, format=ending[1:], metadata={_ALT_KEY[ending]: alt(result)})


def alt(result: dict[str, Any]) -> str:
    """What the picture shows, for those who can't see it."""
    text = [
        f"Share of requests below a latency, and load over time: {result['requests']} requests of "
        f"{result['data']['name']} ({result['data']['kind']})."
    ]
    for name in SHOWN:
        known = result[name]
        if known is not None:
            text.append(f"{name}: median {duration(known['p50'])}, p99 {duration(known['p99'])}.")
    if result["slo"] is not None:
        text.append(f"{share(result['attainment'])} of the requests meet {result['slo']}.")
    text.append(f"KV use peaks at {share(result['kv']['peak_usage'])}.")
    return " ".join(text)


def _latencies(axes: Axes, log: RunLog, slo: str | None) -> None:
    """The share of requests that took no longer, for each metric, with the limits."""
    default = SLOSet.parse(slo).default if slo else None
    limits = dict(default.limits) if default else {}
    for name in SHOWN:
        values = metric(log, name)
        if values is None or np.isnan(values).all():
            continue
        known = np.sort(values[~np.isnan(values)])
        # Requests that never got there keep the curve below 1.
        (line,) = axes.plot(known, np.arange(1, known.size + 1) / len(log), label=name)
        if name in limits:
            axes.axvline(limits[name], color=line.get_color(), linewidth=1.0, alpha=0.6)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("seconds" + (f" (upright lines: SLO {slo})" if limits else ""))
    axes.set_ylabel("share of requests")
    axes.legend(loc="lower right")


def _load(upper: Axes, lower: Axes, log: RunLog) -> None:
    """Running and waiting requests, and KV use: the largest of each bin of time."""
    series = log.series
    if series is None or not series["t"].size:
        return
    t = series["t"]
    edges = np.linspace(t.min(), t.max(), _COLUMNS + 1)
    at = np.clip(np.searchsorted(edges, t, side="right") - 1, 0, _COLUMNS - 1)
    for axes, names in ((upper, ("running", "waiting")), (lower, ("kv_usage",))):
        for name in names:
            top = np.full(_COLUMNS, np.nan)
            np.fmax.at(top, at, series[name].astype(np.float64))
            axes.plot(edges[:-1], top, label=name, linewidth=1.2)
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right")
    upper.set_ylabel("requests, busiest\ninstance")
    lower.set_ylabel("share of KV,\nfullest instance")
    lower.set_xlabel("seconds")
