"""Plots of one run's latencies: by prompt length, as shares of requests, and the gaps one by one.

Each returns the figure and its alternative text, with the numbers that a reader would take from the
picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from minilab.facts.arrays import FloatArray
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.slo import by_prompt_length, metric
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set
from minilab.lab.plots_base import (
    ALARM,
    NAMES,
    canvas,
    in_style,
    kind_of,
    legend_above,
    listed,
    percent,
    plural,
    seconds,
    sentences,
    source_words,
    time_axis,
)

EDGES = (256, 1024, 4096, 16384)
SHOWN = ("p50", "p90", "p99")
MARKS = ("o", "s", "^")


@in_style
def plot_latency_by_prompt_length(
    log: RunLog, edges: Sequence[int] = EDGES, slos: SLO | SLOSet | str | None = None
) -> tuple[Figure, str]:
    """TTFT and ITL (p50, p90, p99) in buckets of prompt length, side by side.

    Args:
        log: a run.
        edges: tokens at which a bucket ends and the next begins, rising.
        slos: draw the limits of the default class, and say how many requests meet all of theirs.

    Raises:
        InputError: a log without requests, edges that do not rise.
    """
    rows = [row for row in by_prompt_length(log, edges, slos) if row["n"]]
    if not rows:
        raise InputError("latency by prompt length: the log has no requests; give one that has")
    default = None if slos is None else as_slo_set(slos).default
    limits = {} if default is None else dict(default.limits)
    fig, axes = canvas(1, 2, (9.0, 4.2), sharex=True)
    told = [f"latency by prompt length of {plural(len(log), 'request')}, on logarithmic axes"]
    for ax, name in zip(axes, ("ttft", "itl"), strict=True):
        _bucket_lines(ax, rows, name)
        _limit_line(ax, limits.get(name), vertical=False)
        ax.set(yscale="log", ylabel=f"{name.upper()} (ms or s)", xlabel="prompt length (tokens)")
        ax.set_title(f"{NAMES[name]}", fontsize=10)
        time_axis(ax.yaxis)
        ax.set_xticks(range(len(rows)), [f"{_short(row)}\nn={row['n']}" for row in rows])
        told.append(_bucket_words(rows, name))
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    if slos is not None:
        shares = [f"{percent(row['attainment'])} of {_bucket(row)}" for row in rows]
        told.append(f"prompts that meet {slos}: {listed(shares)} tokens")
    return fig, sentences([*told, *source_words(kind_of(log))])


def _bucket(row: dict[str, Any]) -> str:
    if row["to"] is None:
        return f"{row['from']:,} up"
    return f"{row['from']:,}–{row['to'] - 1:,}"


def _short(row: dict[str, Any]) -> str:
    """For a tick, in thousands of 1024: "under 256", "1k–4k", "16k up"."""
    low, high = (
        f"{edge // 1024}k" if edge and edge % 1024 == 0 else edge
        for edge in (row["from"], row["to"])
    )
    if row["to"] is None:
        return f"{low} up"
    return f"{low}–{high}" if row["from"] else f"under {high}"


def _bucket_lines(ax: Axes, rows: Sequence[dict[str, Any]], name: str) -> None:
    for part, mark in zip(SHOWN, MARKS, strict=True):
        found = [np.nan if row[name] is None else row[name][part] for row in rows]
        ax.plot(range(len(rows)), found, marker=mark, label=part)


def _bucket_words(rows: Sequence[dict[str, Any]], name: str) -> str:
    known = [row for row in rows if row[name] is not None]
    if not known:
        return f"{name.upper()} is unavailable in this log"

    def at(row: dict[str, Any]) -> str:
        parts = [f"{part} {seconds(row[name][part])}" for part in SHOWN]
        return f"{listed(parts)} for prompts of {_bucket(row)} tokens (n={row['n']})"

    words = f"{name.upper()} is {at(known[0])}"
    return words if len(known) == 1 else f"{words}, and {at(known[-1])}"


@in_style
def plot_cdf(
    logs: RunLog | Mapping[str, RunLog], limit: float | None = None, *, name: str = "ttft"
) -> tuple[Figure, str]:
    """Which share of all requests has at most so much TTFT (or another metric), against its SLO.

    A request without the value (failed, rejected) stays in the denominator, so its curve ends below
    100 %.

    Args:
        logs: a run, or runs by name.
        limit: the SLO in seconds.
        name: a metric of ``facts.metrics``.

    Raises:
        InputError: no such metric, a log without requests or without that metric.
    """
    runs = logs if isinstance(logs, Mapping) else {"": logs}
    fig, (ax,) = canvas()
    told = [f"share of requests against {NAMES.get(name, name)} ({name.upper()})"]
    for label, log in runs.items():
        values = _known(log, name, label)
        share = np.arange(1, values.size + 1) / len(log)
        ax.step(values, 100 * share, where="post", label=label or None)
        told.append(_cdf_words(values, len(log), limit, label))
    _limit_line(ax, limit, vertical=True)
    ax.set(ylabel="requests at or below (%)", ylim=(0, 103), xscale="log")
    ax.set(xlabel=f"{NAMES[name]} (ms or s)", title=f"{name.upper()} of all requests")
    time_axis(ax.xaxis)
    if len(runs) > 1 or limit is not None:
        ax.legend(loc="upper left")
    return fig, sentences([*told, *source_words(*map(kind_of, runs.values()))])


def _known(log: RunLog, name: str, label: str) -> FloatArray:
    values = metric(log, name)
    where = f"run {label!r}" if label else "the log"
    if values is None or not len(log):
        lacks = "no requests" if not len(log) else f"no {name}: it was not recorded"
        raise InputError(f"plot of {name}: {where} has {lacks}; give another log or metric")
    return np.sort(values[~np.isnan(values)])


def _cdf_words(values: FloatArray, total: int, limit: float | None, label: str) -> str:
    words = f"for {label}, " if label else ""
    if not values.size:
        return f"{words}none of {plural(total, 'request')} has a value"
    p50, p90, p99 = (seconds(v) for v in np.quantile(values, [0.5, 0.9, 0.99]))
    words += f"p50 is {p50}, p90 {p90} and p99 {p99}"
    if limit is not None:
        within = np.count_nonzero(values <= limit + 1e-9)
        words += (
            f"; {percent(within / total)} of {total:,} are within the limit of {seconds(limit)}"
        )
    if values.size < total:
        words += f"; {total - values.size:,} never got there"
    return words


@in_style
def plot_gaps(log: RunLog, limit: float | None = None) -> tuple[Figure, str]:
    """How long the gaps between tokens are, all pooled, and each request's largest (its stall).

    Pooled gaps hide stalls: one gap in a thousand is invisible in their p99, yet may hit every
    request. So the second histogram counts requests, by their largest gap. Gaps of 0 (tokens of one
    speculative step) stand at the left edge.

    Args:
        log: a run with gaps.
        limit: the SLO on a gap in seconds.

    Raises:
        InputError: a log without gaps.
    """
    gaps = np.array([]) if log.gaps is None else log.gaps.to_lists().values
    if log.gaps is None or not gaps.size:
        lacks = "recorded no gaps" if log.gaps is None else "has no request of two tokens"
        raise InputError(f"plot of gaps: the log {lacks}; give one with gaps between tokens")
    stalls = log.gaps.per_request_max()
    stalls = stalls[~np.isnan(stalls)]
    fig, (top, bottom) = canvas(2, 1, (7.0, 5.0), sharex=True)
    low = float(np.clip(gaps.min(initial=np.inf, where=gaps > 0), 1e-4, 1.0))
    bins = np.geomspace(0.9 * low, 1.1 * max(float(gaps.max()), low), 60)
    for ax, values, what, colour in (
        (top, gaps, "number of gaps", "C0"),
        (bottom, stalls, "requests", "C1"),
    ):
        ax.hist(np.clip(values, bins[0], None), bins=bins.tolist(), color=colour)
        ax.set(xscale="log", ylabel=what)
        _limit_line(ax, limit, vertical=True)
    top.set(title="All gaps between tokens", yscale="log")
    bottom.set(title="Requests by their largest gap", xlabel="gap between tokens (ms or s)")
    time_axis(bottom.xaxis)
    top.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if limit is not None:
        legend_above(bottom)
    p50, p99, most = (seconds(v) for v in np.quantile(gaps, [0.5, 0.99, 1.0]))
    told = [
        f"two histograms over the gap length: {plural(gaps.size, 'gap')} between tokens, and "
        f"{plural(stalls.size, 'request')} by their largest gap",
        f"of all gaps, p50 is {p50}, p99 {p99} and the largest {most}",
        f"half of the requests have a gap of {seconds(np.median(stalls))} or more",
    ]
    if limit is not None:
        over, hit = gaps > limit + 1e-9, stalls > limit + 1e-9
        told.append(
            f"{percent(over.mean())} of the gaps are above {seconds(limit)}, and they hit "
            f"{percent(hit.mean())} of the requests"
        )
    return fig, sentences([*told, *source_words(kind_of(log))])


def _limit_line(ax: Axes, limit: float | None, *, vertical: bool) -> None:
    if limit is None:
        return
    draw = ax.axvline if vertical else ax.axhline
    draw(limit, color=ALARM, linewidth=1.5, linestyle=(0, (4, 2)), label=f"SLO {seconds(limit)}")
