"""Anchors: two model reports of each direction, made anew from seeded runs by every build.

One asks for which workload the change wins and for which it loses. The other is what is handed in
when a feature was built and tried once: the same change, a baseline that suits it, one point, no
prediction. Both are made by the same program; what differs is what was asked.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from minilab.facts.slo import SLOSet
from minilab.lab.capstone.directions import MODEL, Point, direction
from minilab.lab.capstone.workbook import Workbook
from minilab.lab.run_report import Run, Wanted, report_parts
from minilab.lab.run_report.verdicts import Finding

REQUESTS = 100


@dataclass(frozen=True)
class Anchor:
    """A model report: its parts as HTML, and the findings in it."""

    title: str
    parts: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def html(self) -> str:
        """All of it."""
        return "\n".join(self.parts)

    def count(self, verdict: str, side: str | None = None) -> int:
        """Points of the map at which a side has this verdict in goodput per GPU."""
        return sum(
            f.verdict == verdict and f.what == "goodput_per_gpu" and side in (None, f.side)
            for f in self.findings
        )


WORDS = {
    "A": "I compare with two whole servers at their best, which means chunks cut to the promise on "
    "the gap, and also with large chunks, because most comparisons use those. Large chunks lose to "
    "small ones at most points, so a split that beats them has beaten a server nobody should run."
    "\n\nThe mechanism: a split takes prompts out of other people's gaps and pays with a transfer "
    "and with a GPU that only decodes. With answers of a few tokens that GPU has nothing to do, so "
    "half of the prompt compute is missing.\n\nWhat would refute me: a wire ten times slower, "
    "prompts that share prefixes, or a measured step cost in which small chunks are dearer.",
    "B": "Drafting is free in this simulator and only verifying costs, so each win is an upper "
    "bound. My prediction was of the plain server, to know how full it is before I change it."
    "\n\nThe mechanism: one forward pass gives more than one token, and it computes every draft, "
    "also those that are thrown away. While the step is bound by reading weights, they ride along. "
    "Once the batch is large the step is bound by arithmetic, and a rejected draft takes the place "
    "of somebody's token.\n\nWhat would refute me: a drafter with a cost, or acceptance that falls "
    "along the draft instead of staying level.",
    "C": "I compare with round robin and with least load, and I search for the workload where "
    "affinity must lose: one document that everybody asks about.\n\nThe mechanism: a router that "
    "sends a prefix back to where its KV lies saves its prefill, and gives up balance. With many "
    "documents the cache of each replica holds its own share of them. With one document every "
    "replica holds it after the first request, so affinity has nothing to save and only the "
    "imbalance is left.\n\nTenants: each would carry its own cache salt, and prefixes are shared "
    "within a tenant only. The hit rate falls to what one tenant's traffic gives, and I would "
    "repeat the map at that rate.",
    "D": "I count what fits before I run: half the bytes per token, twice the tokens in flight. "
    "Then I look for workloads in which nobody asks for them.\n\nThe mechanism: a request waits "
    "for KV blocks only when the pool is full. Short prompts or a low rate never fill it, and then "
    "FP8 KV changes little but the bytes read in a step. Long prompts at a high rate fill it, and "
    "then requests wait or are preempted.\n\nAccuracy is not in these runs: the table of chapter 5 "
    "is the sanity check that belongs beside them, on the task that is served. What would refute "
    "me: an attention backend that is slower on FP8 than on bf16.",
}

ONLY_BUILT = {
    "A": ("whole, large chunks", "split", (128, 8.0)),
    "B": ("plain", "drafts", (0.85, 1.0)),
    "C": ("round robin", "prefix aware", (20, 40.0)),
    "D": ("bf16 KV", "fp8 KV", (2000, 0.9)),
}
"""Baseline, side and the one point that was tried."""

BRAG = {
    "A": "I split my scheduler into a prefill queue and a decode queue, with a transfer between "
    "them. It works. The gaps between tokens are much shorter than before, so P/D separation is "
    "the better architecture.",
    "B": "I built speculative decoding with four drafts and a rejection sampler. The output is the "
    "same and decoding is much faster: use it.",
    "C": "I hash prompt prefixes and send equal ones to the same replica. The time to first token "
    "is far lower than with round robin.",
    "D": "I store the KV cache in FP8. Twice as many tokens fit, so the server carries more.",
}


def data(letter: str) -> str:
    """What the runs of both reports are made of: the workload's source and its seed."""
    chosen = direction(letter, MODEL, REQUESTS)
    work = chosen.work(chosen.points[0])
    return f"{work.source['name']} requests at {len(chosen.points)} points (seed {work.seed})"


def good(letter: str) -> Anchor:
    """The report that asks where it loses: all sides, all points, a prediction filed first."""
    chosen = direction(letter, MODEL, REQUESTS)
    with tempfile.TemporaryDirectory() as folder:
        book = Workbook(chosen, Path(folder))
        point = chosen.points[len(chosen.points) // 2]
        prediction = _predicted(book, point)
        book.run(progress=False)
        wanted = Wanted(
            SLOSet.parse(chosen.slo),
            title=f"Model report {letter}, a good one: {chosen.title}",
            baseline=chosen.baseline,
            words=WORDS[letter],
            predictions=(f"{chosen.baseline}={prediction}",),
        )
        parts, found = report_parts(_named(book), wanted, level=3)
    return Anchor(wanted.title, tuple(parts), tuple(found))


def _predicted(book: Workbook, point: Point) -> Path:
    """A range of a factor 1.5 to both sides of the selector's closed form, filed before the run."""
    side = book.direction.baseline
    closed = book._closed_form(side, point)
    ranges = {name: (said.value / 1.5, said.value * 1.5) for name, said in closed.items()}
    return book.predict(
        side, point, ranges, "the selector's arithmetic, which I trust to a factor of 1.5"
    )


def feature_only(letter: str) -> Anchor:
    """The report of somebody who built it: one point, one flattering baseline, no prediction."""
    chosen = direction(letter, MODEL, REQUESTS)
    baseline, side, point = ONLY_BUILT[letter]
    few = replace(chosen, sides=(baseline, side))
    with tempfile.TemporaryDirectory() as folder:
        book = Workbook(few, Path(folder))
        book.run([point], progress=False)
        wanted = Wanted(
            SLOSet.parse(few.slo),
            title=f"Model report {letter}, one that only built the feature: {few.title}",
            baseline=baseline,
            words=BRAG[letter],
        )
        parts, found = report_parts(_named(book), wanted, level=3)
    return Anchor(wanted.title, tuple(parts), tuple(found))


def _named(book: Workbook) -> list[Run]:
    """The runs under short names: a temporary folder's path says nothing to a reader."""
    return [replace(run, path=Path(run.path).name) for run in book.runs()]
