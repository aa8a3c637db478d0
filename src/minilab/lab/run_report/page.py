"""The report as one page of HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from minilab import __version__
from minilab.facts.slo import SLOSet
from minilab.lab.html_page import (
    bullets,
    document,
    folded,
    heading,
    paragraphs,
    section,
    table,
)
from minilab.lab.plots_base import number, percent
from minilab.lab.progress import Picture
from minilab.lab.run_report import calibration, measured, pictures
from minilab.lab.run_report.grid import Grid, Point, grid_of, plain_name
from minilab.lab.run_report.runs import Run
from minilab.lab.run_report.verdicts import UNKNOWN, Finding, findings
from minilab.lab.show import img
from minilab.sim.regime_cell import EQUAL, LOSES, NEITHER, WINS, Judge

MORE_CSS = """
body { max-width: 60rem; }
img { display: block; }
.first { font-size: 1.1rem; }
details { margin: 1rem 0; }
"""


NO_WIN = "Nowhere in these runs."
NO_LOSS = (
    "Nowhere in these runs; which workload would it be? A report that knows none has not looked."
)


@dataclass(frozen=True)
class Wanted:
    """What a report is asked for.

    ``words``: the author's own text; ``predictions``: as ``calibration.hold`` takes them;
    ``margin``, ``least_attainment``: as in ``sim.regime_map``.
    """

    slos: SLOSet
    title: str = "Report"
    baseline: str | None = None
    words: str = ""
    predictions: tuple[str, ...] = ()
    margin: float = 0.05
    least_attainment: float = 0.5
    metric: str = "goodput_per_gpu"


def report_page(runs: Sequence[Run], wanted: Wanted) -> tuple[str, list[Finding]]:
    """The page, and the findings on it.

    Raises:
        InputError: runs that span no grid, or a prediction that is none.
    """
    parts, found = report_parts(runs, wanted)
    return document(wanted.title, parts, MORE_CSS), found


def report_parts(
    runs: Sequence[Run], wanted: Wanted, level: int = 1
) -> tuple[list[str], list[Finding]]:
    """The parts of the page, its title as a heading of ``level``; for a page around it."""
    grid = grid_of(runs, wanted.baseline)
    held = calibration.hold(wanted.predictions, runs)
    judge = Judge(wanted.metric, wanted.margin, wanted.least_attainment)
    found = findings(grid, wanted.slos, judge)
    sections = [
        ("In the author's words", paragraphs(wanted.words)),
        ("Workload", _workload(runs, wanted)),
        ("Settings", _settings(runs)),
        ("Numbers", _numbers(grid)),
        ("Regime map", _maps(grid, judge, str(wanted.slos))),
        ("Where it wins", _listed(grid, found, (WINS,), NO_WIN)),
        ("Where it loses", _listed(grid, found, (LOSES,), NO_LOSS)),
        ("Where there is no telling", _listed(grid, found, (EQUAL, NEITHER, UNKNOWN), "")),
        ("Curves", _curves(grid, found, wanted.slos, level + 2)),
        ("Prediction and calibration", _calibration(held)),
        ("How this was measured", _how(grid, runs, wanted)),
        ("Environment", _environment(runs)),
    ]
    parts = [
        heading(wanted.title, level),
        f'<p class="first">{html.escape(headline(grid, found))}</p>',
    ]
    return [*parts, *(section(title, text, level + 1) for title, text in sections)], found


def _environment(runs: Sequence[Run]) -> str:
    return bullets([*measured.environment(runs), f"this page: minilab {__version__}"])


def headline(grid: Grid, found: Sequence[Finding]) -> str:
    """The sentence that a report stands for."""
    if not grid.others:
        return f"One side only ({grid.baseline}): there is nothing to win or to lose against."
    told = []
    for side in grid.others:
        heads = [f for f in found if f.side == side and f.what == "goodput_per_gpu"]
        counts = {v: sum(f.verdict == v for f in heads) for v in (WINS, LOSES, EQUAL, NEITHER)}
        if len(heads) == 1:
            told.append(f"{side} against {grid.baseline}: {heads[0].text}.")
            continue
        told.append(
            f"{side} against {grid.baseline}, in goodput per GPU over {len(heads)} points: wins at "
            f"{counts[WINS]}, loses at {counts[LOSES]}, no difference at {counts[EQUAL]}, neither "
            f"serves at {counts[NEITHER]}."
        )
    return " ".join(told)


def _workload(runs: Sequence[Run], wanted: Wanted) -> str:
    rows = measured.workloads(runs)
    parts = [
        table(measured.WORKLOAD_HEAD, rows, "Workloads"),
        paragraphs(f"Limits (SLO): {wanted.slos}, in seconds."),
        paragraphs(measured.shared_of_prompts(runs)),
    ]
    return "\n".join(part for part in parts if part)


def _settings(runs: Sequence[Run]) -> str:
    names, differ, same = measured.settings(runs)
    head = ("setting", *names)
    parts = []
    if differ:
        parts.append(table(head, differ, "Settings that differ"))
    if same:
        parts.append(folded("Settings that all sides share", table(head, same, "Shared settings")))
    return "\n".join(parts) or paragraphs("These logs name no settings.")


NUMBERS = ("attainment", "goodput_per_gpu", "ttft_p50", "ttft_p99", "tpot_mean", "itl_p99")


def _numbers(grid: Grid) -> str:
    head = ("run", "seeds", *(plain_name(name).replace(" per gpu", "/GPU") for name in NUMBERS))
    rows = []
    for point in grid.points:
        for side, points in grid.sides.items():
            there = points.get(point, ())
            if there:
                name = f"{side}, {grid.at(point)}" if grid.axes else side
                cells = [_mean(there, metric) for metric in NUMBERS]
                rows.append([name, str(len(there)), *cells])
    return table(head, rows, "Numbers of each run")


def _mean(runs: Sequence[Run], metric: str) -> str:
    values = [run.row[metric] for run in runs]
    if None in values:
        return "unavailable"
    return calibration.shown(metric, sum(values) / len(values))


def _maps(grid: Grid, judge: Judge, slos: str) -> str:
    found = [_figure(picture) for _, picture in pictures.maps(grid, judge, slos)]
    if found:
        return "\n".join(found)
    if len(grid.axes) == 2 and grid.others:
        return paragraphs("No map: some points lack a run, or cannot be compared; see below.")
    return ""


def _listed(grid: Grid, found: Sequence[Finding], verdicts: Sequence[str], nothing: str) -> str:
    if not grid.others:
        return ""
    lines = []
    for one in (f for f in found if f.verdict in verdicts):
        place = f" at {grid.at(one.point)}" if grid.axes else ""
        what = "goodput" if one.what == "goodput_per_gpu" else one.what
        lines.append(f"{one.side}{place}, {what}: {one.text}.")
    return bullets(lines) or paragraphs(nothing)


def _curves(grid: Grid, found: Sequence[Finding], slos: SLOSet, level: int) -> str:
    parts = [_figure(picture) for picture in pictures.curves(grid)]
    point = _telling(grid, found)
    if grid.axes:
        parts.append(paragraphs(f"The rest is at {grid.at(point)}, where the sides differ most."))
    parts += [_figure(picture) for picture in pictures.shares(grid, point, slos)]
    lengths = [
        heading(name, level) + _figure(picture)
        for name, picture in pictures.by_length(grid, point, slos)
    ]
    if lengths:
        parts.append(folded("Latency by prompt length", "\n".join(lengths)))
    return "\n".join(parts)


def _telling(grid: Grid, found: Sequence[Finding]) -> Point:
    heads = [f for f in found if f.what == "goodput_per_gpu" and f.verdict != UNKNOWN]
    return max(heads, key=lambda f: abs(f.size)).point if heads else grid.points[0]


def _figure(picture: Picture) -> str:
    return f"<figure>{img(picture)}<figcaption>{html.escape(picture.alt)}</figcaption></figure>"


def _calibration(held: Iterable[calibration.Held]) -> str:
    parts = []
    for one in held:
        filed = f"Filed {one.prediction.filed}, before the run of {one.run.side}"
        why = f" Reason given: {one.prediction.why}" if one.prediction.why else ""
        parts.append(paragraphs(f"{filed} ({Path(one.path).name}).{why}"))
        parts.append(table(calibration.HEAD, calibration.rows(one), "Prediction against outcome"))
        parts.append(paragraphs(calibration.summary(one)))
        if one.circular:
            parts.append(paragraphs(
                "The run came from the simulator that made the prediction. That they agree says "
                "nothing about a real server."))  # fmt: skip
    return "\n".join(parts) or paragraphs(
        "No prediction was filed before these runs. Whoever explains them now explains the past."
    )


def _how(grid: Grid, runs: Sequence[Run], wanted: Wanted) -> str:
    seeds = max(len(there) for side in grid.sides.values() for there in side.values())
    rule = (
        f"A side wins where its goodput per GPU is better by more than {percent(wanted.margin)} "
        f"of the better side; neither serves where fewer than {percent(wanted.least_attainment)} "
        "of the requests are good on both."
    )
    rule += (
        " One seed: there is no interval, the margin decides alone."
        if seeds == 1
        else f" Up to {seeds} seeds: the 95 % interval of the paired differences excludes 0, too."
    )
    return bullets([rule, *measured.how(runs), f"GPUs: {_gpus(runs)}."])


def _gpus(runs: Sequence[Run]) -> str:
    found = dict.fromkeys(f"{run.side} {number(float(run.row['gpus']))}" for run in runs)
    return ", ".join(found)
