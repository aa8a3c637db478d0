"""The decision table as data: complete, reachable, and usable as alerts."""

from __future__ import annotations

import inspect
import re

import pytest

from minilab.judge.advisor import rules_fleet, rules_load, rules_memory, rules_spec, symptoms
from minilab.judge.advisor.table import IDS, alert_rules, row_of, rows


def test_the_six_rows_have_their_four_cells():
    core = [row for row in rows() if row.core]
    assert len(core) == 6
    for row in core:
        assert row.symptom and row.suspects and row.check and row.dont
        assert len(row.actions) >= 3


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("ttft-long-itl-fine", ["bucket", "prefix cache", "route", "prefill pool"]),
        ("itl-p99-explodes", ["chunk", "split", "speculative", "time per output token"]),
        ("kv-nearly-full", ["fp8", "max_model_len", "admit", "tier"]),
        ("split-is-slower", ["kv bytes per request", "topology", "short prompts"]),
        ("rag-same-document", ["document first", "cache_salt", "router", "lmcache"]),
        ("moe-throughput-poor", ["all-to-all", "expert-parallel", "hot experts", "deepep"]),
    ],
)
def test_every_action_of_the_outline_is_there(key, words):
    (row,) = [row for row in rows() if row.key == key]
    text = " ".join(row.actions).lower()
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("name", IDS)
def test_every_id_has_a_row(name):
    assert name in row_of(name).suspects


def test_no_row_names_an_unknown_id():
    assert {name for row in rows() for name in row.suspects} <= set(IDS)


def test_every_id_can_be_suspected():
    """An id that no rule and no phrase names would be dead text."""
    source = "".join(
        inspect.getsource(module) for module in (rules_fleet, rules_load, rules_memory, rules_spec)
    )
    named = set(re.findall(r'Finding\(\s*"(\w+)"', source)) | set(symptoms._phrases())
    assert set(IDS) <= named


def test_alerts_name_only_limits_that_were_given():
    text = alert_rules({"ttft": 0.5})
    assert "> 0.5 * 0.5" in text and "MinilabPrefillInterference" not in text
    assert "{" not in re.sub(r"\{\{.*?\}\}", "", text)
