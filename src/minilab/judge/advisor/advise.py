"""advise: sources in, one diagnosis with actions out. ``minilab diagnose`` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minilab.judge.advisor.diagnose import Diagnosis, diagnose, rank
from minilab.judge.advisor.exposition import Scrape
from minilab.judge.advisor.finding import STATE, Finding
from minilab.judge.advisor.from_log import signals_of_log
from minilab.judge.advisor.names import START
from minilab.judge.advisor.series import scrapes_of
from minilab.judge.advisor.signals import Signals, read_signals
from minilab.judge.advisor.sources import Sources
from minilab.judge.advisor.startup import signals_of_startup
from minilab.judge.advisor.symptoms import suspects_of
from minilab.judge.advisor.table import looked_at, row_of
from minilab.judge.advisor.window import Window


@dataclass(frozen=True)
class Advice:
    """A diagnosis, the servers it is of, and what could not be read."""

    diagnosis: Diagnosis
    servers: tuple[Signals, ...]
    slo: dict[str, float]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "slo": self.slo,
            "suspects": [_suspect(finding) for finding in self.diagnosis.suspects],
            "unknown": [{"signal": name, "how": how} for name, how in self.diagnosis.unknown],
            "notes": list(self.notes),
            "servers": [_server(server) for server in self.servers],
            "looked_at": looked_at(),
        }


def advise(
    roles: dict[str, Sources], slo: dict[str, float], baseline: Sources | None = None
) -> Advice:
    """Diagnose what was handed in.

    Args:
        roles: "" (one server), "prefill", "decode", "replica" -> what was read of it.
        slo: limits in seconds: ttft, itl (or tpot).
        baseline: the same load without speculation, to compare time per output token with.
    """
    servers: list[Signals] = []
    said: list[Finding] = []
    notes: list[str] = []
    for role, sources in roles.items():
        notes += sources.notes
        servers += _servers(role, sources, slo)
        for name, text in sources.startups:
            signals, found = signals_of_startup(text, name)
            said += found
            servers.append(signals)
        for _, text in sources.reports:
            said += suspects_of(text)
    if baseline is not None:
        notes += baseline.notes
        _compare(servers, _servers("", baseline, slo))
    for server in servers:
        where = f"{server.name}: " if len(servers) > 1 else ""
        notes += [where + note for note in server.notes]
    found_there = diagnose(_loaded(servers, said))
    words = [finding for finding in said if finding.kind != STATE]
    suspects = rank(found_there.suspects + words)
    return Advice(Diagnosis(suspects, found_there.unknown), tuple(servers), slo, tuple(notes))


def _loaded(servers: list[Signals], said: list[Finding]) -> list[Signals]:
    """Servers that rules can judge; a start-up log has no load, so it is judged by what it says."""
    return [server for server in servers if "load" not in server.unknown or not said]


def _servers(role: str, sources: Sources, slo: dict[str, float]) -> list[Signals]:
    servers = []
    for name, pages in _grouped(role, sources.scrapes):
        servers.append(read_signals(Window(pages), slo, name, role))
    if sources.answers:
        found = scrapes_of(sources.answers)
        several = role or ("replica" if len(found) > 1 else "")
        for where in sorted(found):
            servers.append(read_signals(Window(found[where]), slo, where or "server", several))
    servers += [signals_of_log(log, slo, name, role) for name, log in sources.logs]
    return servers


def _grouped(role: str, scrapes: Sequence[tuple[str, Scrape]]) -> list[tuple[str, list[Scrape]]]:
    """Pages by server. Without a role all are of one server, in order of time; replicas and pools
    are told apart by their process start time, and a page without one is a server of its own.
    """
    if not role:
        return [(scrapes[-1][0], [page for _, page in scrapes])] if scrapes else []
    groups: dict[object, tuple[str, list[Scrape]]] = {}
    for at, (name, page) in enumerate(scrapes):
        started = page.total(START)
        groups.setdefault(at if started is None else ("start", started), (name, []))[1].append(page)
    return list(groups.values())


def _compare(servers: list[Signals], before: list[Signals]) -> None:
    if not before:
        return
    for server in servers:
        server.values["baseline_tpot_mean"] = before[0].get("tpot_mean")


def _suspect(finding: Finding) -> dict[str, Any]:
    row = row_of(finding.id)
    return {
        "id": finding.id,
        "score": round(finding.score, 3),
        "kind": finding.kind,
        "where": finding.where or None,
        "evidence": finding.evidence,
        "row": row.key,
        "check": row.check,
        "first_action": row.actions[0],
        "actions": list(row.actions),
        "dont_rush": row.dont,
    }


def _server(server: Signals) -> dict[str, Any]:
    values = {name: value for name, value in server.values.items() if value is not None}
    return {"name": server.name, "role": server.role or None, "signals": values}
