"""Workbook: a folder with the predictions, run logs and the report of one capstone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from minilab.facts import runlog_io
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.slo import SLOSet
from minilab.facts.user_input import unknown_name
from minilab.judge.filed_prediction import FiledPrediction, Said, now
from minilab.judge.predicting import selected
from minilab.lab.capstone.directions import Direction, Point
from minilab.lab.run_report import Run, Wanted, report_page, run_of
from minilab.lab.workdir import relative, work_folder, write_whole
from minilab.sim.progress_bar import progress_bar
from minilab.sim.sweep_row import NUMBERS


@dataclass(frozen=True)
class Workbook:
    """The work on one direction. ``folder`` need not exist yet."""

    direction: Direction
    folder: Path

    @classmethod
    def of(cls, direction: Direction) -> Workbook:
        """In ``capstone_X`` of the learner's own folder."""
        return cls(direction, work_folder() / f"capstone_{direction.letter.lower()}")

    def predict(
        self, side: str, point: Point, ranges: Mapping[str, tuple[float, float]], why: str
    ) -> Path:
        """File your ranges for a side at a point, beside what the selector's arithmetic says.

        ``ranges``: (low, high) by a name of ``sim.sweep_row.NUMBERS``, each meant to hold the
        outcome four times out of five. A prediction that was filed stays.

        Raises:
            InputError: no such side or number, no range, a range upside down, one filed already,
                or a run at this point that has been made.
        """
        self._check(side, point)
        if self.log_path(side, point).exists():
            raise InputError(
                f"{side} at {point} has been run; a prediction comes before: take another point"
            )
        said = dict(self._closed_form(side, point))
        for name, (low, high) in ranges.items():
            if name not in NUMBERS:
                raise unknown_name("number", name, NUMBERS)
            if not low < high:
                raise InputError(f"{name}: {low:g} is not below {high:g}; write the lower first")
            said[name] = Said((low + high) / 2, low, high, "person")
        if not ranges:
            raise InputError("no range is given; say what you expect: {'attainment': (0.5, 0.8)}")
        work = self.direction.work(point)
        prediction = FiledPrediction(
            filed=now(),
            workload_hash=work.hash(),
            workload=dict(zip(self.direction.axes, point, strict=True)),
            settings={"side": side},
            slo=self.direction.slo,
            said=said,
            why=why,
            requests=len(work.requests),
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"prediction-{_stem(side, point)}.json"
        prediction.write(path)
        return path

    def _closed_form(self, side: str, point: Point) -> Mapping[str, Said]:
        if side != self.direction.baseline:
            return {}
        experiment = self.direction.experiment(side, point)
        try:
            return selected(
                experiment, self.direction.work(point), SLOSet.parse(self.direction.slo)
            )
        except InputError:  # it has no word for this one
            return {}

    def run(self, points: Iterable[Point] | None = None, progress: bool = True) -> None:
        """Simulate every side at the points (default: all); a log that is there is not made again.

        Raises:
            InputError: a point that the direction does not have.
        """
        wanted = [
            (side, point)
            for point in (self.direction.points if points is None else points)
            for side in self.direction.sides
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        left = [one for one in wanted if not self.log_path(*one).exists()]
        with progress_bar("runs", len(wanted), len(wanted) - len(left), progress) as tick:
            for side, point in left:
                self.keep(side, point, self.simulate(side, point))
                tick()

    def simulate(self, side: str, point: Point) -> RunLog:
        """One simulated run, with its date and its place in the grid."""
        self._check(side, point)
        started = now()
        work = self.direction.work(point)
        log = self.direction.experiment(side, point).run(work)
        log.meta.update(started=started, seed=work.seed)
        log.meta["point"] = dict(zip(self.direction.axes, point, strict=True))
        return log

    def keep(self, side: str, point: Point, log: RunLog) -> Path:
        """Put a log in the workbook: a simulated one, or one of your own engine or server."""
        log.meta["point"] = dict(zip(self.direction.axes, point, strict=True))
        path = self.log_path(side, point)
        runlog_io.write(log, path)
        return path

    def log_path(self, side: str, point: Point) -> Path:
        """Where a run is kept."""
        return self.folder / f"{_stem(side, point)}.jsonl"

    def runs(self) -> list[Run]:
        """The runs that are there, side by side.

        Raises:
            InputError: none is.
        """
        slos = SLOSet.parse(self.direction.slo)
        found = [
            run_of(side, str(path), runlog_io.read(path), slos)
            for side in self.direction.sides
            for point in self.direction.points
            if (path := self.log_path(side, point)).exists()
        ]
        if not found:
            raise InputError(f"{relative(self.folder)}: no run is kept there; call run() first")
        return found

    def report(self, words: str) -> Path:
        """Write ``report.html`` from everything that is kept. ``words``: your conclusion."""
        filed = [
            f"{side}={path}"
            for side in self.direction.sides
            for point in self.direction.points
            if (path := self.folder / f"prediction-{_stem(side, point)}.json").exists()
            and self.log_path(side, point).exists()
        ]
        wanted = Wanted(
            SLOSet.parse(self.direction.slo),
            title=f"Capstone {self.direction.letter}: {self.direction.title}",
            baseline=self.direction.baseline,
            words=words,
            predictions=tuple(filed),
        )
        page, _ = report_page(self.runs(), wanted)
        path = self.folder / "report.html"
        write_whole(path, page)
        print(f"Report: {relative(path)}")
        return path

    def _check(self, side: str, point: Point) -> None:
        if side not in self.direction.sides:
            raise unknown_name("side", side, self.direction.sides)
        if tuple(point) not in self.direction.points:
            raise InputError(f"point {point}; the direction has {list(self.direction.points)}")


def _stem(side: str, point: Point) -> str:
    words = "-".join(side.replace(",", "").split())
    return f"{words}-{point[0]:g}-{point[1]:g}"
