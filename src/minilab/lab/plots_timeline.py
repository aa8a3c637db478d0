"""One run over time: queue, KV and busy share of the servers, and a few requests stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from minilab.facts.arrays import FloatArray
from minilab.facts.errors import InputError
from minilab.facts.gaps import GapRuns
from minilab.facts.runlog import STAGES, RunLog
from minilab.facts.ticks import TICKS_PER_SECOND
from minilab.lab.plots_base import (
    ALARM,
    INK,
    canvas,
    digits,
    in_style,
    kind_of,
    legend_above,
    listed,
    percent,
    plural,
    seconds,
    sentences,
    source_words,
)

LOOKS = {
    "queue": ("#e5e7eb", "////", "in the queue"),
    "prefill": ("#e76306", "", "prefill"),
    "transfer_wait": ("#d1d5db", "....", "waiting for the transfer"),
    "transfer": ("#8d0578", "", "KV transfer"),
    "decode_wait": ("#f3f4f6", "xxxx", "waiting to decode"),
    "decode": ("#0442ca", "", "decode"),
}
"""Colour, hatch and words of each stage; what waits is hatched."""


class Windows(NamedTuple):
    """A run in equal windows of time; float64[W], seconds from the first arrival.

    waiting: requests in the queue, averaged over the window; queue: p90 of the queue time of those
    who arrived in it, NaN if nobody did; kv, busy: shares of 1, averaged over the instances, or
    None if they were not recorded.
    """

    edges: FloatArray
    waiting: FloatArray
    queue: FloatArray
    kv: FloatArray | None
    busy: FloatArray | None

    @classmethod
    def of(cls, log: RunLog, count: int) -> Windows:
        """Cut a run's duration into ``count`` windows.

        Raises:
            InputError: a run without a duration, or without queue times.
        """
        arrival, scheduled = log.requests["arrival"], log.requests["scheduled"]
        if not len(log) or not log.duration > 0 or np.isnan(scheduled).all():
            raise InputError("timeline: the log has no times of scheduling; give a server's log")
        start = float(np.nanmin(arrival))
        edges = start + np.linspace(
            0.0, float(np.nanmax(log.requests["finish"])) - start, count + 1
        )
        left = np.where(np.isnan(scheduled), log.requests["finish"], scheduled)
        waiting = (_area(arrival, edges) - _area(left, edges)) / np.diff(edges)
        slot = np.clip(np.searchsorted(edges, arrival, side="right") - 1, 0, count - 1)
        wait = scheduled - arrival
        queue = [_p90(wait[slot == k]) for k in range(count)]
        return cls(edges - start, waiting, np.array(queue), _kv(log, edges), _busy(log, edges))


def _area(since: FloatArray, edges: FloatArray) -> FloatArray:
    """Per window: the integral over time of how many of ``since`` lie in the past, float64[W]."""
    times = np.sort(since[~np.isnan(since)])
    past = np.searchsorted(times, edges, side="right")
    summed = np.concatenate([[0.0], np.cumsum(times)])
    area: FloatArray = np.diff(past * edges - summed[past])
    return area


def _p90(values: FloatArray) -> float:
    values = values[~np.isnan(values)]
    return float(np.quantile(values, 0.9)) if values.size else float("nan")


def _kv(log: RunLog, edges: FloatArray) -> FloatArray | None:
    """From samples at the ends of runs, linear in between."""
    if log.series is None or not log.series["t"].size:
        return None
    middle = (edges[1:] + edges[:-1]) / 2
    found = []
    for instance in np.unique(log.series["instance"]):
        here = log.series["instance"] == instance
        order = np.argsort(log.series["t"][here], kind="stable")
        t, usage = log.series["t"][here][order], log.series["kv_usage"][here][order]
        found.append(np.interp(middle, t, usage, left=0.0))
    return np.asarray(np.mean(found, axis=0))


def _busy(log: RunLog, edges: FloatArray) -> FloatArray | None:
    """From the runs of steps, exactly."""
    if not isinstance(log.gaps, GapRuns) or not log.gaps.runs["n"].size:
        return None
    start, first, slope, n = (log.gaps.runs[name] for name in ("start", "first", "slope", "n"))
    end = start + n * first + slope * (n * (n - 1) // 2)
    instances = np.unique(log.gaps.runs["instance"]).size
    ran = _area(start / TICKS_PER_SECOND, edges) - _area(end / TICKS_PER_SECOND, edges)
    return np.asarray(ran / np.diff(edges) / instances)


@in_style
def plot_timeline(
    log: RunLog, windows: int = 100, *, queue_alarm: float = 0.1
) -> tuple[Figure, str]:
    """Requests waiting, their queue time, KV use and busy share over time, in one picture.

    A server is busy whenever anyone is served, so its busy share is high long before anything is
    wrong; time in the queue is what rises when it is. ``queue_alarm`` (s) is drawn into it.

    Raises:
        InputError: a log that has no times of scheduling (a client's), or fewer than 2 windows.
    """
    if windows < 2:
        raise InputError(f"timeline: {windows} windows; at least 2")
    found = Windows.of(log, windows)
    fig, (length, wait, share) = canvas(3, 1, (7.5, 6.4), sharex=True)
    length.stairs(found.waiting, found.edges, color="C0", fill=True, alpha=0.3)
    length.stairs(found.waiting, found.edges, color="C0")
    length.set(ylabel="requests waiting", title="Queue, KV use and busy share over time", ylim=0)
    wait.stairs(found.queue, found.edges, baseline=None, color="C1", linewidth=1.5)
    wait.axhline(queue_alarm, color=ALARM, linewidth=1.5, label=f"alarm {seconds(queue_alarm)}")
    wait.set(ylabel="queue time, p90 (s)", ylim=0)
    legend_above(wait)
    lines = ((found.busy, "busy", "C2", "-"), (found.kv, "KV blocks in use", "C3", "--"))
    for values, label, colour, dashes in lines:
        if values is not None:
            look: dict[str, Any] = {"color": colour, "linestyle": dashes, "label": label, "lw": 1.5}
            share.stairs(100 * values, found.edges, baseline=None, **look)
    share.set(ylabel="share (%)", ylim=(0, 105), xlabel="time since the first arrival (seconds)")
    legend_above(share)
    told = _timeline_words(found, len(log), queue_alarm)
    return fig, sentences([*told, *source_words(kind_of(log))])


def _timeline_words(found: Windows, requests: int, alarm: float) -> list[str]:
    worst = int(np.argmax(found.waiting))
    told = [
        f"a run of {plural(requests, 'request')} over {seconds(float(found.edges[-1]))}",
        f"the queue is longest around {seconds(_middle(found, worst))}, with "
        f"{digits(float(found.waiting[worst]), 2)} requests waiting on average",
    ]
    late = np.flatnonzero(found.queue > alarm)
    if late.size:
        first = int(late[0])
        words = f"queue time passes {seconds(alarm)} first around {seconds(_middle(found, first))}"
        if found.busy is not None and first:
            words += (
                f"; the busy share is {percent(float(found.busy[first]))} there, and "
                f"{percent(float(found.busy[:first].mean()))} on average before"
            )
        told.append(words)
    else:
        top = float(np.nanmax(found.queue))
        told.append(f"queue time never passes {seconds(alarm)}; its highest p90 is {seconds(top)}")
    for values, what in ((found.busy, "busy share"), (found.kv, "KV use")):
        if values is None:
            told.append(f"{what} was not recorded")
            continue
        mean, most = float(values.mean()), float(values.max())
        told.append(f"{what} is {percent(mean)} on average and {percent(most)} at most")
    return told


def _middle(found: Windows, k: int) -> float:
    return float(found.edges[k] + found.edges[k + 1]) / 2


@in_style
def plot_gantt(log: RunLog, requests: int | Sequence[int] = 12) -> tuple[Figure, str]:
    """A few requests as bars, from arrival to last token, divided into their stages.

    ``requests``: how many (the first to arrive), or the ids of those to show.

    Raises:
        InputError: none of them is in the log, or the log has no stage spans.
    """
    wanted = log.requests["id"][:requests] if isinstance(requests, int) else np.array(requests)
    rows = np.flatnonzero(np.isin(log.requests["id"], wanted))
    spans = {stage: np.nan_to_num(log.requests[stage][rows]) for stage in STAGES}
    spans = {stage: values for stage, values in spans.items() if values.any()}
    if not rows.size or not spans:
        lacks = "none of these requests" if not rows.size else "no stage spans for them"
        raise InputError(f"requests over time: the log has {lacks}; give ids of a server's log")
    arrival = log.requests["arrival"][rows] - log.requests["arrival"][rows].min()
    fig, (ax,) = canvas(1, 1, (7.5, 1.4 + 0.27 * rows.size))
    left, shown = arrival.copy(), []
    for stage, values in spans.items():
        colour, hatch, words = LOOKS[stage]
        look: dict[str, Any] = {"fc": colour, "hatch": hatch, "ec": INK, "lw": 0.4}
        ax.barh(range(rows.size), values, left=left, height=0.72, **look)
        shown.append(Patch(**look, label=words))
        left += values
    ax.set_yticks(range(rows.size), [str(number) for number in log.requests["id"][rows]])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set(xlabel="time since the first of these arrivals (seconds)", ylabel="request")
    fig.legend(handles=shown, loc="outside upper left", ncols=len(shown))
    return fig, sentences([*_gantt_words(log, rows, spans), *source_words(kind_of(log))])


def _gantt_words(log: RunLog, rows: NDArray[np.intp], spans: dict[str, FloatArray]) -> list[str]:
    total = sum(float(values.sum()) for values in spans.values())
    shares = [
        f"{percent(float(values.sum()) / total)} {LOOKS[stage][2]}"
        for stage, values in spans.items()
    ]
    told = [
        f"bars over time for {plural(len(rows), 'request')}, divided into their stages",
        f"of their time together, {listed(shares)}",
    ]
    if "queue" in spans:
        worst = int(np.argmax(spans["queue"]))
        number, wait = int(log.requests["id"][rows[worst]]), float(spans["queue"][worst])
        told.append(f"request {number} waits longest, {seconds(wait)} in the queue")
    return told
