"""Calibration: what was predicted before the runs, held against what came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from minilab.facts.errors import InputError
from minilab.facts.metrics import METRICS
from minilab.judge.filed_prediction import FiledPrediction, Said, Scored
from minilab.lab.plots_base import number, percent, seconds
from minilab.lab.run_report.runs import Run

TIMES = (*METRICS, "gap")
SIMULATOR = "simulator"


class Held(NamedTuple):
    """One prediction against one run."""

    path: str
    prediction: FiledPrediction
    run: Run
    scored: list[Scored]

    @property
    def circular(self) -> bool:
        """Whether simulator and run are the same program, so that agreement says nothing."""
        return self.run.simulated and any(s.said.by == SIMULATOR for s in self.scored)

    @property
    def telling(self) -> list[Scored]:
        """The scores that can surprise: not those of a simulator on its own run."""
        return [s for s in self.scored if not (self.run.simulated and s.said.by == SIMULATOR)]


def hold(words: Sequence[str], runs: Sequence[Run]) -> list[Held]:
    """The predictions of ``FILE`` or ``SIDE=FILE`` words, each against its run.

    Raises:
        InputError: no prediction, one of another workload or filed too late, or one that may be of
            several runs.
    """
    return [_held(word, runs) for word in words]


def _held(word: str, runs: Sequence[Run]) -> Held:
    side, path = "", word
    if "=" in word and not Path(word).exists():
        side, _, path = word.partition("=")
    prediction = FiledPrediction.read(path)
    among = [run for run in runs if side in ("", run.side)]
    if not among:
        names = ", ".join(dict.fromkeys(run.side for run in runs))
        raise InputError(f"--prediction {word}: no side {side!r}; there are {names}")
    same = [run for run in among if run.workload_hash == prediction.workload_hash]
    if not same:  # let the prediction say what is wrong with the first one
        prediction.against(among[0].path, among[0].workload_hash, among[0].began, among[0].row)
    if len(same) > 1:  # the place in a grid tells runs of one workload apart
        same = [r for r in same if r.log.meta.get("point") == dict(prediction.workload)] or same
    if len(same) > 1:
        sides = list(dict.fromkeys(run.side for run in same))
        raise InputError(
            f"--prediction {path}: {len(same)} runs served its workload (sides "
            f"{', '.join(sides)}); say which: {sides[-1]}={path}"
        )
    run = same[0]
    return Held(path, prediction, run, prediction.against(
        run.path, run.workload_hash, run.began, run.row))  # fmt: skip


def rows(held: Held) -> list[list[str]]:
    """A line per predicted number: name, by whom, said, range, what came, verdict."""
    found = []
    for one in held.scored:
        word = "no range given" if one.hit is None else "within" if one.hit else "outside"
        found.append(
            [
                one.name.replace("_", " "),
                one.said.by,
                shown(one.name, one.said.value),
                _range(one.name, one.said),
                shown(one.name, one.actual),
                f"{word}; {_error(one)}",
            ]
        )
    return found


HEAD = ("number", "by", "said", "range", "came", "verdict")


def summary(held: Held) -> str:
    """How many ranges held, against how many were meant to."""
    ranged = [one for one in held.telling if one.hit is not None]
    if not held.telling:
        return "Nobody but the simulator said anything, so there is no calibration to tell."
    if not ranged:
        return "No range was given, so only the errors can be told, and not whether they surprise."
    hits = sum(bool(one.hit) for one in ranged)
    meant = percent(held.prediction.coverage)
    return (
        f"{hits} of {len(ranged)} ranges held the outcome; they were meant to hold it {meant} of "
        "the time. The numbers of one run move together, so this is one trial and not "
        f"{len(ranged)}."
    )


def shown(name: str, value: float) -> str:
    """A number of a row in its own unit."""
    if name.partition("_")[0] in TIMES:
        return seconds(value)
    if name in ("attainment", "kv_peak_usage", "token_hit_rate"):
        return percent(value)
    return number(float(value))


def _range(name: str, said: Said) -> str:
    if said.low is None or said.high is None:
        return "none"
    return f"{shown(name, said.low)} to {shown(name, said.high)}"


def _error(one: Scored) -> str:
    if one.error is None:
        return "no relative error, it was 0"
    if abs(one.error) < 0.005:
        return "right to 0.5 %"
    return f"{percent(abs(one.error))} too {'high' if one.error > 0 else 'low'}"
