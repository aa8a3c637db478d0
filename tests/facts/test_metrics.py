"""The metric dictionary and the tables made from it.

What these tests exist for: a word that means something else than its definition says, a stall that
a mean hides, a pooled gap taken for a request's own ITL.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.slo import METRICS, attainment, by_prompt_length, metric, summary


def fail(log: RunLog, row: int, status: str = "failed") -> RunLog:
    requests = {name: column.copy() for name, column in log.requests.items()}
    requests["status"][row] = status
    return RunLog(requests, log.gaps, log.series, log.meta)


def without(log: RunLog, *dropped: str) -> RunLog:
    """As from a tool that did not record these columns, or the "gaps"."""
    requests = {name: column.copy() for name, column in log.requests.items()}
    for name in set(dropped) - {"gaps"}:
        requests[name][:] = np.nan
    return RunLog(requests, None if "gaps" in dropped else log.gaps)


def test_each_metric_by_hand(three) -> None:
    log = three()
    want = {
        "ttft": [0.2, 0.4, 0.6],
        "tpot": [0.01, 0.059, np.nan],
        "itl": [0.01, np.quantile([0.01] * 9 + [0.5], 0.99), np.nan],
        "stall": [0.01, 0.5, np.nan],
        "e2e": [2.2, 0.99, 0.6],
        "queue": [0.1, 0.2, 0.3],
    }
    assert list(want) == list(METRICS)
    for name, values in want.items():
        np.testing.assert_allclose(metric(log, name), values, rtol=1e-12)


def test_a_mean_hides_the_stall_that_itl_and_stall_show(served) -> None:
    log = served([(0.0, 0.1, [0.01] * 98 + [0.9, 0.9])])
    assert attainment(log, "tpot=0.05") == 1.0
    assert attainment(log, "itl=0.05") == 0.0 and attainment(log, "stall=0.05") == 0.0


def test_failed_requests_have_no_end_to_end_time(three) -> None:
    # a request turned away at once would otherwise improve the e2e quantiles
    log = fail(three(), 0, "rejected")
    assert np.isnan(np.asarray(metric(log, "e2e"))[0])
    assert np.isnan(np.asarray(metric(log, "tpot"))[0])


def test_unknown_metric_names_the_closest(three) -> None:
    with pytest.raises(InputError, match="'tftt': unknown, did you mean 'ttft'; known: ttft, tpot"):
        metric(three(), "tftt")


def test_every_word_is_defined_with_what_others_call_it() -> None:
    for name, word in METRICS.items():
        assert word.name == name and word.unit == "s"
        assert len(word.definition) > 15 and len(word.elsewhere) > 15


def test_summary_pools_gaps_apart_from_itl(three) -> None:
    log = three()
    found = summary(log)
    json.dumps(found, allow_nan=False)
    pooled = np.concatenate([log.gaps.row(r) for r in range(3)])  # type: ignore[union-attr]
    assert found["gap"]["p99"] == pytest.approx(np.quantile(pooled, 0.99))
    assert found["gap"]["mean"] == pytest.approx(pooled.mean())
    itl = np.asarray(metric(log, "itl"))[:2]  # the one-token request has none
    assert found["itl"]["p90"] == pytest.approx(np.quantile(itl, 0.9))
    assert found["itl"]["mean"] == pytest.approx(itl.mean())
    assert summary(without(log, "gaps"))["gap"] is None


def test_prompt_length_buckets_hold_the_edge_on_their_left(three) -> None:
    log = three()  # prompts of 100, 200, 300 tokens
    rows = by_prompt_length(log, [200, 1000])
    assert [(row["from"], row["to"], row["n"]) for row in rows] == [
        (0, 200, 1),
        (200, 1000, 2),
        (1000, None, 0),
    ]
    assert rows[0]["ttft"]["p99"] == pytest.approx(0.2)
    assert rows[1]["ttft"]["p50"] == pytest.approx(0.5)
    assert rows[2]["ttft"] is None and "attainment" not in rows[0]
    assert by_prompt_length(without(log, "gaps"), [200], "itl=1")[0]["attainment"] is None
    for edges in ([200, 100], [0, 5], [5, 5]):
        with pytest.raises(InputError, match="edges must rise"):
            by_prompt_length(log, edges)
