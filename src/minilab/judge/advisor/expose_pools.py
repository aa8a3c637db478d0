"""expose_pools: a run on two pools as the pages that its prefill and its decode servers would show.

Each server sees its own part of a request. The prefill server computes the prompt, answers with one
token and is done. The decode server is asked then: its first token waits for the KV to arrive, for
a running slot and for a step; the long gap that a client sees lies before that token.
"""

from __future__ import annotations

import numpy as np

from minilab.facts.gap_lists import GapLists
from minilab.facts.runlog import Column, RunLog
from minilab.judge.advisor.expose import expose

NEVER = ("transfer_wait", "transfer", "decode_wait")


def expose_pools(log: RunLog, *, start: float, model: str = "model") -> tuple[str, list[str]]:
    """(page of the prefill pool, a page per decode instance) of a ``PdExperiment``'s run.

    Requests that never left the prefill pool are left out of the decode pages. ``start``: as for
    ``expose``; each server gets its own.
    """
    sent = ~np.isnan(log.requests["transfer"])
    moved = log.select(sent)
    where = moved.requests["instance"]
    decodes = [
        expose(_decode_side(moved.select(where == index)), start=start + 1 + at, model=model)
        for at, index in enumerate(np.unique(where))
    ]
    return expose(_prefill_side(log), start=start, model=model), decodes


def _prefill_side(log: RunLog) -> RunLog:
    columns = _copied(log)
    done = columns["arrival"] + columns["queue"] + columns["prefill"]
    columns["first_token"] = columns["finish"] = done
    columns["output_tokens"] = np.ones(len(log), dtype=np.int64)
    for name in (*NEVER, "decode"):
        columns[name] = np.full(len(log), np.nan)
    return RunLog(columns, None, None, log.meta)


def _decode_side(log: RunLog) -> RunLog:
    assert log.gaps is not None
    columns, lists = _copied(log), log.gaps.to_lists()
    rows = [lists.row(at) for at in range(len(log))]
    # The first gap of a client is the decode server's time to its own first token.
    first = np.array([row[0] if len(row) else np.nan for row in rows])
    columns["arrival"] = columns["arrival"] + columns["queue"] + columns["prefill"]
    columns["first_token"] = columns["arrival"] + first
    columns["output_tokens"] = np.maximum(columns["output_tokens"] - 1, 0)
    columns["queue"] = columns["decode_wait"]
    columns["prefill"] = np.full(len(log), np.nan)
    return RunLog(columns, GapLists.of([row[1:].tolist() for row in rows]), None, log.meta)


def _copied(log: RunLog) -> dict[str, Column]:
    return {name: column.copy() for name, column in log.requests.items()}
