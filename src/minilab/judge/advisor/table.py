"""The decision table as data: symptoms, what to check, what to do first, what not to rush into."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

IDS = [
    "healthy",
    "queueing",
    "config_limit",
    "prefill_heavy",
    "prefill_interference",
    "decode_bound",
    "kv_capacity",
    "preemption",
    "prefix_miss",
    "prefix_off",
    "tier_slower",
    "kv_transfer",
    "pd_ratio",
    "router_imbalance",
    "spec_idle",
    "spec_low_acceptance",
    "spec_draft_cost",
    "spec_high_batch",
    "numerics_tie",
    "implementation_bug",
    "quant_accuracy",
    "quant_no_gain",
    "weight_only_compute_bound",
    "backend_unsupported",
    "mla_replicated",
    "moe_imbalance",
    "moe_communication",
    "network",
    "measurement",
    "unknown",
]
"""Everything that the advisor may suspect."""


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        key: its name, also the anchor on the page.
        core: one of the course's six rows.
        suspects: ids, the first suspect first.
        check: the numbers that confirm or refute it.
        actions: what to do, in order.
        dont: what not to rush into.
        page: the chapter that explains it.
    """

    key: str
    core: bool
    symptom: str
    suspects: tuple[str, ...]
    check: str
    actions: tuple[str, ...]
    dont: str
    page: str


@cache
def _data() -> dict[str, Any]:
    place = files("minilab.judge.advisor") / "decision_table.json"
    data: dict[str, Any] = json.loads(place.read_text("utf-8"))
    return data


def rows() -> tuple[Row, ...]:
    """All rows, the course's six first."""
    return tuple(
        Row(
            row["key"],
            row.get("core", False),
            row["symptom"],
            tuple(row["suspects"]),
            row["check"],
            tuple(row["actions"]),
            row["dont"],
            row["page"],
        )
        for row in _data()["rows"]
    )


def row_of(suspect: str) -> Row:
    """The row in which an id is the first suspect, else the first one that names it.

    Raises:
        KeyError: no row has it.
    """
    named = [row for row in rows() if suspect in row.suspects]
    if not named:
        raise KeyError(suspect)
    return next((row for row in named if row.suspects[0] == suspect), named[0])


def looked_at() -> dict[str, str]:
    """Versions of the servers whose metric names and flags the table uses."""
    return dict(_data()["looked_at"])


def alert_rules(slo: dict[str, float]) -> str:
    """Prometheus alert rules (YAML) for the suspects that a query can see.

    ``slo``: seconds by name; rules on a limit that is not in it are left out.
    """
    lines = ["groups:", "  - name: minilab", "    rules:"]
    for name, query in _data()["alerts"].items():
        try:
            expression = query.format(**{key: f"{value:g}" for key, value in slo.items()})
        except KeyError:
            continue
        row = row_of(name)
        words = "".join(part.capitalize() for part in name.split("_"))
        lines += [
            f"      - alert: Minilab{words}",
            f"        expr: {json.dumps(expression)}",
            "        for: 5m",
            "        annotations:",
            f"          summary: {json.dumps(row.symptom)}",
            f"          description: {json.dumps('First: ' + row.actions[0] + ' ' + row.dont)}",
        ]
    return "\n".join(lines) + "\n"
