"""diagnose: servers in, ranked suspects out. Runs in the page too."""

from minilab.judge.advisor.finding import FAULT, HINT, STATE, Finding
from minilab.judge.advisor.rules_fleet import FLEET_RULES
from minilab.judge.advisor.rules_load import LOAD_RULES
from minilab.judge.advisor.rules_memory import MEMORY_RULES
from minilab.judge.advisor.rules_spec import SPEC_RULES
from minilab.judge.advisor.signals import Signals

ORDER = [FAULT, HINT, STATE]
"""What to touch comes first: a fault, then a hint, then the state of health."""

RULES = LOAD_RULES + MEMORY_RULES + SPEC_RULES

DOWN = {"queueing": ["config_limit", "kv_capacity", "preemption", "router_imbalance", "pd_ratio"]}
"""A queue is the consequence of these; where one of them is confirmed it comes first."""


class Diagnosis:
    """What was found.

    Attributes:
        suspects: the strongest first; one per id and server.
        unknown: (signal, why and how to learn it).
    """

    def __init__(self, suspects: list[Finding], unknown: list[tuple[str, str]]) -> None:
        self.suspects = suspects
        self.unknown = unknown

    @property
    def first(self) -> str:
        """Id of the first suspect."""
        return self.suspects[0].id


def diagnose(servers: list[Signals]) -> Diagnosis:
    """Rank what the rules suspect.

    A server's own findings and those of the fleet are put together; of one id only the strongest
    stays, so that four replicas with a queue are one suspect.
    """
    found: list[Finding] = []
    for server in servers:
        for rule in RULES:
            for finding in rule(server):
                finding.where = server.name if len(servers) > 1 else ""
                found.append(finding)
    for fleet_rule in FLEET_RULES:
        found.extend(fleet_rule(servers))
    return Diagnosis(rank(found), _unknown(servers))


def rank(found: list[Finding]) -> list[Finding]:
    """One finding per id, faults first; "unknown" only where there is nothing else."""
    best = _strongest(found)
    _put_causes_first(best)
    if any(finding.kind == FAULT for finding in best):
        best = [finding for finding in best if finding.id != "healthy"]
    if len(best) > 1:
        best = [finding for finding in best if finding.id != "unknown"]
    if not best:
        best = [Finding("unknown", 0.5, STATE, ["no rule recognises these numbers"])]
    best.sort(key=lambda finding: (ORDER.index(finding.kind), -finding.score))
    return best


def _strongest(found: list[Finding]) -> list[Finding]:
    best: dict[str, Finding] = {}
    for finding in found:
        if finding.id not in best or finding.score > best[finding.id].score:
            best[finding.id] = finding
    return list(best.values())


def _put_causes_first(found: list[Finding]) -> None:
    by_id = {finding.id: finding for finding in found}
    for effect, causes in DOWN.items():
        if effect not in by_id:
            continue
        strong = [by_id[cause].score for cause in causes if cause in by_id]
        if strong and max(strong) >= 0.6:
            by_id[effect].score = min(by_id[effect].score, max(strong) - 0.05)


def _unknown(servers: list[Signals]) -> list[tuple[str, str]]:
    """Each unknown signal once; with its server where there are several."""
    lines = []
    for server in servers:
        for name in sorted(server.unknown):
            where = f"{server.name}: " if len(servers) > 1 else ""
            lines.append((name, where + server.unknown[name]))
    return lines
