"""The load curve: what a server delivers, and how much of it is good, as the rate rises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from minilab.facts.errors import InputError
from minilab.facts.rate_search import RateResult
from minilab.lab.plots_base import (
    ALARM,
    QUIET,
    canvas,
    digits,
    in_style,
    percent,
    plural,
    sentences,
    source_words,
)

Points = Sequence[Mapping[str, Any]]


@in_style
def plot_load_curve(
    points: Points, knee: RateResult | None = None, *, target: float = 0.9
) -> tuple[Figure, str]:
    """Goodput and attainment over the offered rate, per GPU, with the knee if one was searched.

    Args:
        points: from ``sim.knee.load_curve``; bands are its 95 % intervals over the seeds.
        knee: from ``sim.knee.find_knee``; its target replaces ``target``.
        target: share of requests that should be good.

    Raises:
        InputError: no points, or goodput that is unavailable at each of them.
    """
    known = [point for point in points if point["goodput_per_gpu"] is not None]
    if not known:
        raise InputError(f"load curve: none of {len(points)} points has a goodput; give SLOs")
    target = target if knee is None else knee.target
    fig, (top, bottom) = canvas(2, 1, (7.0, 5.6), sharex=True)
    rate = [point["rate_per_gpu"] for point in known]
    top.plot(
        [0, max(rate)], [0, max(rate)], color=QUIET, linewidth=1, linestyle=":", label="offered"
    )
    _band(top, known, "throughput_per_gpu", "finished", "C1", "s")
    _band(top, known, "goodput_per_gpu", "good (goodput)", "C0", "o")
    _band(bottom, known, "attainment", "attainment", "C0", "o", scale=100)
    bottom.axhline(100 * target, color=ALARM, linewidth=1.5, label=f"target {percent(target)}")
    top.set(ylabel="requests/s per GPU", title="What is delivered, and what of it is good", ylim=0)
    bottom.set(ylabel="good requests (%)", xlabel="offered rate (requests/s per GPU)")
    bottom.set(ylim=(0, 103), xlim=(0, None))
    if knee is not None and knee.rate_per_gpu > 0:
        for ax in (top, bottom):
            ax.axvline(knee.rate_per_gpu, color=ALARM, linewidth=1.5, linestyle=(0, (4, 2)))
        bottom.annotate(
            f" knee {digits(knee.rate_per_gpu)}", (knee.rate_per_gpu, 4), color=ALARM, fontsize=10
        )
    top.legend(loc="upper left")
    bottom.legend(loc="lower left")
    return fig, _alt(known, knee, target)


def _band(
    ax: Axes, points: Points, name: str, label: str, colour: str, mark: str, scale: float = 1
) -> None:
    rate = [point["rate_per_gpu"] for point in points]

    def column(part: str) -> Any:
        return scale * np.array([np.nan if p[part] is None else p[part] for p in points], float)

    dashes = "--" if mark == "s" else "-"
    ax.plot(rate, column(name), color=colour, marker=mark, linestyle=dashes, label=label)
    ax.fill_between(rate, column(f"{name}_low"), column(f"{name}_high"), color=colour, alpha=0.15)


def _alt(points: Points, knee: RateResult | None, target: float) -> str:
    first, last = points[0], points[-1]
    source = source_words(first["data"])
    best = max(points, key=lambda point: float(point["goodput_per_gpu"]))
    told = [
        f"goodput and attainment at {plural(len(points), 'rate')} from "
        f"{digits(first['rate_per_gpu'])} to {digits(last['rate_per_gpu'])} requests/s per GPU",
        f"goodput is highest at a rate of {digits(best['rate_per_gpu'])}, where "
        f"{digits(best['goodput_per_gpu'])} requests/s per GPU are good",
    ]
    if best is not last:
        told.append(
            f"at the highest rate it is {digits(last['goodput_per_gpu'])}, although "
            f"{digits(last['throughput_per_gpu'])} requests/s per GPU are finished"
        )
    told.append(
        f"attainment goes from {percent(first['attainment'])} to {percent(last['attainment'])}"
    )
    if knee is None:
        return sentences([*told, *source])
    words = {
        "found": f"the highest rate with {percent(target)} good requests (the knee) is "
        f"{digits(knee.rate_per_gpu)} requests/s per GPU",
        "at least": f"{percent(target)} of the requests are still good at the highest rate "
        f"searched, {digits(knee.rate_per_gpu)} requests/s per GPU, so the knee lies above it",
        "never met": f"{percent(target)} good requests are never reached: {knee.reason}",
    }[knee.verdict]
    if knee.low is not None and knee.high is not None:
        words += f" (95 % interval {digits(knee.low)} to {digits(knee.high)})"
    return sentences([*told, words, *source])
