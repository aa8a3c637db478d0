"""The on-call drill as HTML: a page of the site and a notebook show the same.

Without JavaScript everything is there, the answers folded. The page's script puts a form in front
of each answer and shows the sentences that were computed here; it computes nothing itself.
"""

from __future__ import annotations

import html
import importlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from minilab.judge.advisor.signals import Signals
from minilab.judge.drill.case import Outcome, Played, play
from minilab.judge.drill.cases import CASES, case
from minilab.judge.drill.words import (
    SUSPECTS,
    action_said,
    advisor_said,
    changes_said,
    suspect_said,
)


def _seconds(value: float) -> str:
    return f"{1e3 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.0%}"


DASHBOARD: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("TTFT, median", "ttft_p50", _seconds),
    ("TTFT, p99", "ttft_p99", _seconds),
    ("gap, median", "itl_p50", _seconds),
    ("gap, p99", "itl_p99", _seconds),
    ("queue time, mean", "queue_mean", _seconds),
    ("prefill time, mean", "prefill_mean", _seconds),
    ("KV transfer, mean", "transfer_mean", _seconds),
    ("running", "running", _count),
    ("waiting", "waiting", _count),
    ("KV usage", "kv_usage", _share),
    ("preemptions", "preemptions", _count),
    ("prefix hits", "hit_rate", _share),
    ("prompt tokens, mean", "prompt_mean", _count),
    ("output tokens, mean", "output_mean", _count),
    ("drafts accepted", "acceptance", _share),
    ("requests", "requests", _count),
)
"""What the dashboard shows: words, the advisor's signal, how to write it."""


@cache
def played(key: str) -> Played:
    """A case, simulated once per process."""
    return play(case(key))


def drill() -> Any:
    """All cases as HTML for the end of a cell of the site's page."""
    text = "".join(case_html(played(one.key), at) for at, one in enumerate(CASES, 1))
    return importlib.import_module("IPython.display").HTML(text)


def case_html(one: Played, number: int) -> str:
    """One case with its folded answer; ``data-drill`` is what the script needs."""
    found = one.case
    data = {
        "key": found.key,
        "suspects": [[key, words, suspect_said(one, key)] for key, words in SUSPECTS.items()],
        "truth": found.truth,
        "actions": [
            [
                action.key,
                action.label,
                action_said(one, action.key),
                round(one.score(action.key), 3),
            ]
            for action in found.actions
        ],
        "good": one.good,
    }
    attribute = html.escape(json.dumps(data, ensure_ascii=False))
    return (
        f'<section class="drill" id="drill-{found.key}" data-drill="{attribute}">'
        f"<h3>Call {number}</h3><p>{html.escape(found.call)}</p>{limits_html(one)}"
        f"{dashboard_html(one)}{pages_html(one)}"
        '<details class="drill-answer"><summary>What was wrong, and what each action would have '
        f"done</summary>{answer_html(one)}</details></section>"
    )


def limits_html(one: Played) -> str:
    """Limits, model and GPUs: what an engineer on call knows without looking."""
    slo, sick = one.case.slo, one.case.sick
    limits = f"TTFT {_seconds(slo['ttft'])}, ITL {_seconds(slo['itl'])}"
    served = "prefill and decode apart" if sick.split else "whole servers"
    return (
        f"<p>Promised: {limits}. Serving: {sick.experiment.model} on {sick.gpus} "
        f"{sick.experiment.gpu.upper()}, {served}.</p>"
    )


def dashboard_html(one: Played) -> str:
    """The signals that can be read off the pages, a column per server."""
    servers = one.advice.servers
    shown = [row for row in DASHBOARD if any(server.known(row[1]) for server in servers)]
    head = ["", *(_server_name(server) for server in servers)]
    body = [
        [words, *(_cell(server, name, write) for server in servers)] for words, name, write in shown
    ]
    return f'<div class="drill-wide" tabindex="0">{_table(head, body)}</div>'


def _server_name(server: Signals) -> str:
    return server.name if server.role else "server"


def _cell(server: Signals, name: str, write: Callable[[float], str]) -> str:
    value = server.get(name)
    return "not exported" if value is None else write(value)


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    first = "".join(f'<th scope="col">{html.escape(one) or "signal"}</th>' for one in head)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>'
        + "".join(f'<td class="number">{html.escape(one)}</td>' for one in row[1:])
        + "</tr>"
        for row in body
    )
    return f"<table><thead><tr>{first}</tr></thead><tbody>{rows}</tbody></table>"


def pages_html(one: Played) -> str:
    """The pages of /metrics themselves, folded, to be read or pasted elsewhere."""
    text = "".join(
        f'<p>{html.escape(role or "server")} {at}</p><pre tabindex="0">{html.escape(page)}</pre>'
        for role, pages in one.pages.items()
        for at, page in enumerate(pages)
    )
    return f'<details class="drill-raw"><summary>The raw /metrics</summary>{text}</details>'


def answer_html(one: Played) -> str:
    """The truth, what each action would have done, and what the advisor says."""
    truth = html.escape(f"{SUSPECTS[one.case.truth]}. {changes_said(one)}")
    rows = [_outcome("before it went wrong", one.healthy, ""), _outcome("as found", one.before, "")]
    for action in one.case.actions:
        mark = "good" if action.key in one.good else ""
        share = f"{one.score(action.key):.0%} {mark}".strip()
        rows.append(_outcome(action.label, one.after[action.key], share))
    head = ["action", "GPUs", "good requests", "goodput per GPU", "TTFT p99", "ITL p99", "of best"]
    return (
        f"<p>{truth}</p><div class='drill-wide' tabindex='0'>{_table(head, rows)}</div>"
        f"<p>{html.escape(advisor_said(one))}</p>"
    )


def _outcome(label: str, found: Outcome, share: str) -> list[str]:
    return [
        label,
        str(found.gpus),
        f"{found.attainment:.0%}",
        f"{found.goodput:.2f}",
        _seconds(found.ttft_p99),
        _seconds(found.itl_p99),
        share,
    ]
