"""Metrics recorded from a real server: what was done to it must be what the advisor suspects."""

from __future__ import annotations

import pytest
from advised import SLO, ids

from minilab.judge.advisor.advise import advise
from minilab.judge.advisor.sources import Sources


@pytest.fixture
def judge(data_folder):
    """``judge("idle", "low")``: the advice on these recorded pages of one server, in order."""

    def of(*names, slo=SLO):
        sources = Sources()
        for name in names:
            sources.add(str(data_folder("serving-metrics") / f"vllm032_{name}.metrics.txt"))
        return advise({"": sources}, slo)

    return of


@pytest.mark.parametrize(
    ("pages", "first"),
    [
        (("idle", "low"), {"healthy"}),
        (("low", "overload"), {"queueing"}),
        (("kvfull_midrun_18", "kvfull_midrun_26"), {"kv_capacity", "preemption"}),
        (("kvfull",), {"kv_capacity", "preemption"}),
        (("bigbudget",), {"prefill_interference"}),
        (("ngram",), {"spec_idle", "spec_low_acceptance"}),
        (("bigbudget", "prefix"), {"healthy"}),
        (("idle",), {"unknown"}),
    ],
    ids=lambda value: ">".join(value) if isinstance(value, tuple) else "",
)
def test_first_suspect(judge, pages, first):
    assert ids(judge(*pages))[0] in first


def test_a_cache_that_is_off_is_a_hint_and_no_fault(judge):
    """Whether prompts share anything is not exported, so nobody may be told that it is wrong."""
    found = {finding.id: finding.kind for finding in judge("noprefix").diagnosis.suspects}
    assert found == {"prefix_off": "hint", "healthy": "state"}


def test_counters_are_judged_as_differences(judge):
    """The second half of this server's life was healthy; its whole life was not."""
    assert ids(judge("prefix"))[0] == "prefill_interference"
    assert ids(judge("bigbudget", "prefix")) == ["healthy"]


def test_gauges_after_the_load_are_unknown(judge):
    """A gauge of 0 from an idle server must not be read as "KV is empty"."""
    advice = judge("kvfull")
    assert advice.servers[0].get("kv_usage") is None
    assert "kv_usage" in [name for name, _ in advice.diagnosis.unknown]
    assert judge("kvfull_midrun_18").servers[0].get("kv_usage") == pytest.approx(0.983, abs=1e-3)


def test_another_process_is_a_restart(judge):
    """A difference of two servers' counters means nothing."""
    advice = judge("overload", "bigbudget")
    assert any("restarted" in note for note in advice.notes)
    assert ids(advice) == ids(judge("bigbudget"))


def test_a_looser_limit_is_met(judge):
    assert ids(judge("bigbudget", slo={"ttft": 1.0, "itl": 0.6})) == ["healthy"]


def test_the_benchmark_of_the_same_run_agrees(data_folder, judge):
    """Client's file and server's page of one run name the same first suspect."""
    sources = Sources()
    sources.add(str(data_folder("serving-metrics") / "vllm032_bigbudget.bench.json.gz"))
    assert ids(advise({"": sources}, SLO))[0] == ids(judge("bigbudget"))[0]


def test_old_names_of_sglang_are_read(data_folder):
    """The published page has a mean TTFT of 214 s, 2,826 waiting and a KV pool at 28 %."""
    sources = Sources()
    path = data_folder("serving-metrics") / "sglang_docs_production_metrics.txt"
    sources.add(str(path))
    advice = advise({"": sources}, SLO)
    values = advice.servers[0].values
    assert values["ttft_mean"] == pytest.approx(213.66, abs=0.01)
    assert values["waiting"] == 2826 and values["kv_usage"] == pytest.approx(0.28)
    assert {"decode_bound", "queueing"} <= set(ids(advice))
