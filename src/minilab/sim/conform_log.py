"""Conformance of a run log: could this have happened, and does it say what the metrics will read?

``RunLog.check`` refuses what would give wrong metrics; the rules here go on to what no server can
have done. Engines and clients of one's own write such logs by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minilab.facts import runlog_jsonl, runlog_parquet
from minilab.facts.arrays import BoolArray
from minilab.facts.errors import InputError
from minilab.facts.gaps import GapRuns
from minilab.facts.runlog import STAGES, RunLog

ENDINGS = (".jsonl", ".parquet")
SLACK = 1e-6
"""Seconds by which sums of times may be off."""


class LogFinding(NamedTuple):
    """A rule that the log breaks, the first place, and what is likely wrong."""

    rule: str
    what: str
    likely: str


@dataclass(frozen=True)
class LogReport:
    """What a run log was tried on. ``notes`` break no rule, but limit what the log can tell."""

    name: str
    requests: int
    findings: tuple[LogFinding, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether no rule was broken."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "runlog": self.name,
            "requests": self.requests,
            "passed": self.passed,
            "findings": [finding._asdict() for finding in self.findings],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.requests} requests"]
        verdict = f"conforms: {len(RULES) + 1} rules kept" if self.passed else "does not conform"
        lines.append(verdict)
        for rule, what, likely in self.findings:
            lines += ["", f"  rule    {rule}", f"  found   {what}"]
            lines += [f"  likely  {likely}"] if likely else []
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def conform_log(path: str | Path) -> LogReport:
    """Read a run log and try the rules on it.

    Raises:
        InputError: it cannot be read, or is no run log.
    """
    path = Path(path)
    form = runlog_parquet if path.suffix.lower() == ".parquet" else runlog_jsonl
    try:
        log: RunLog = form.read(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{path}: cannot be read ({reason}); give a run log's path") from error
    return judge_log(log, str(path))


def judge_log(log: RunLog, name: str = "run log") -> LogReport:
    """The same for a log in memory."""
    try:
        log.check()
    except InputError as error:
        first = LogFinding("well-formed", str(error), "the metrics would be wrong")
        return LogReport(name, len(log), (first,), ())
    findings = [found for rule in RULES if (found := rule(log)) is not None]
    return LogReport(name, len(log), tuple(findings), tuple(_notes(log)))


# -- rules ----------------------------------------------------------------------------------------


def _first(log: RunLog, rows: Any, what: str, rule: str, likely: str) -> LogFinding | None:
    at = np.flatnonzero(rows)
    if not at.size:
        return None
    more = f" ({at.size} requests)" if at.size > 1 else ""
    return LogFinding(rule, f"request {log.requests['id'][at[0]]}: {what}{more}", likely)


def _causality(log: RunLog) -> LogFinding | None:
    early = log.requests["first_token"] <= log.requests["arrival"]
    return _first(
        log, early, "its first token comes at its arrival", "causality: a prompt takes time",
        "take the arrival when the client sends, the token when it comes out",
    )  # fmt: skip


def _tokens(log: RunLog) -> LogFinding | None:
    none = log.finished & (log.requests["output_tokens"] == 0)
    return _first(
        log, none, "it finished without a token", "tokens: who finished has an answer",
        "count the first token, which ends the prompt; or is the status another one?",
    )  # fmt: skip


def _cached(log: RunLog) -> LogFinding | None:
    rows = (log.requests["cached_tokens"] >= log.requests["prompt_tokens"]) & (
        log.requests["cached_tokens"] > 0
    )
    return _first(
        log, rows, "all of its prompt was cached", "tokens: the last prompt token is computed",
        "its logits give the first token, so a hit covers at most prompt_tokens - 1",
    )  # fmt: skip


def _gaps(log: RunLog) -> LogFinding | None:
    if log.gaps is None:
        return None
    lists = log.gaps.to_lists()
    sums = np.add.reduceat(np.append(lists.values, 0.0), lists.offsets[:-1])
    sums = np.where(lists.counts() > 0, sums, 0.0)
    span = log.requests["finish"] - log.requests["first_token"]
    slack = SLACK + 4 * np.spacing(np.abs(log.requests["finish"]))
    return _first(
        log, sums > span + slack, "its gaps add up to more than first token to finish",
        "gaps: they lie between the first token and the end",
        "the time to the first token is no gap; or are gaps and times in different units?",
    )  # fmt: skip


def _stages(log: RunLog) -> LogFinding | None:
    stages = np.stack([log.requests[name] for name in STAGES])
    total = np.nansum(stages, axis=0)
    e2e = log.requests["finish"] - log.requests["arrival"]
    told = ~np.isnan(stages).all(axis=0)
    return _first(
        log, told & (total > e2e + SLACK), "its stages last longer than it was there",
        "stages: queue, prefill, transfer and decode lie within arrival and finish",
        "stages that overlap are counted twice: transfer_wait is not part of decode",
    )  # fmt: skip


def _duration(log: RunLog) -> LogFinding | None:
    said = log.meta.get("duration")
    finish, arrival = log.requests["finish"], log.requests["arrival"]
    if said is None or np.isnan(finish).all():
        return None
    real = float(np.nanmax(finish) - np.nanmin(arrival))
    if said >= real - SLACK:
        return None
    return LogFinding(
        "duration: goodput is per second of the whole run",
        f"meta says {said:g} s, first arrival to last finish is {real:g} s",
        "a shorter duration makes goodput larger than it was; milliseconds?",
    )


def _slots(log: RunLog) -> LogFinding | None:
    """Not where a request leaves its slot before its end: preempted, or sent elsewhere."""
    config = log.meta.get("config")
    slots = config.get("max_num_seqs") if isinstance(config, dict) else None
    moved = log.requests["preemptions"].any() or not np.isnan(log.requests["transfer"]).all()
    if not isinstance(slots, int) or moved:
        return None
    begin, end = log.requests["scheduled"], log.requests["finish"]
    for instance in np.unique(log.requests["instance"]):
        rows = (log.requests["instance"] == instance) & ~np.isnan(begin) & ~np.isnan(end)
        most = _most_at_once(begin[rows], end[rows])
        if most > slots:
            return LogFinding(
                "slots: at most max_num_seqs requests run at once",
                f"instance {instance} ran {most}, its config says {slots}",
                "is `scheduled` the time of arrival?",
            )
    return None


def _most_at_once(begin: Any, end: Any) -> int:
    if not begin.size:
        return 0
    times = np.concatenate([end, begin])  # at one moment, ends come first
    change = np.concatenate([-np.ones(end.size, int), np.ones(begin.size, int)])
    return int(np.cumsum(change[np.argsort(times, kind="stable")]).max())


def _blocks(log: RunLog) -> LogFinding | None:
    blocks = log.meta.get("num_blocks")
    if not isinstance(blocks, int) or not isinstance(log.gaps, GapRuns):
        return None
    used = int(log.gaps.runs["used_blocks"].max(initial=0))
    if used <= blocks:
        return None
    return LogFinding(
        "blocks: no more in use than the pool has", f"{used} in use, the pool has {blocks}",
        "count blocks, not tokens",
    )  # fmt: skip


RULES: tuple[Callable[[RunLog], LogFinding | None], ...] = (
    *(_causality, _tokens, _cached, _gaps, _stages, _duration, _slots, _blocks),
)


# -- notes ----------------------------------------------------------------------------------------


def _notes(log: RunLog) -> list[str]:
    """What limits the judgements that the log allows."""
    requests, notes = log.requests, []
    if not len(log):
        return ["the log has no requests"]
    if log.gaps is None:
        notes.append("no gaps: limits on itl and stall are unavailable")
    if np.isnan(requests["scheduled"]).all():
        notes.append("no request was scheduled: the time in the queue is unavailable")
    if len(log) > 1 and np.ptp(requests["arrival"]) == 0:
        notes.append("all requests arrive at one moment: is the arrival recorded?")
    e2e = requests["finish"] - requests["arrival"]
    if not np.isnan(e2e).all() and np.nanmedian(e2e) > 1000:
        notes.append(f"half of the requests take more than {np.nanmedian(e2e):,.0f} s: seconds?")
    unfinished: BoolArray = ~log.finished
    if unfinished.any():
        notes.append(f"{int(unfinished.sum())} requests did not finish; no SLO counts them as good")
    return notes
