"""Several servers, with pages made from simulated runs: routers, replicas, experts."""

from __future__ import annotations

import pytest
from advised import SLO, ids, pages

from minilab.judge.advisor.advise import advise
from minilab.judge.advisor.expose import expose
from minilab.sim.experiment import Experiment


@pytest.fixture(scope="module")
def log():
    """A simulated run that meets its limits."""
    return Experiment().with_(trace="synthetic", rate=2.0, limit=60, instances=2).run()


@pytest.fixture(scope="module")
def replicas():
    """Two replicas of which one gets four of five requests, at a load that one cannot carry."""
    log = Experiment().with_(trace="synthetic", rate=60.0, limit=400, max_num_seqs=16).run()
    busy = log.requests["id"] % 5 != 0
    quick = Experiment().with_(trace="synthetic", rate=2.0, limit=60).run()
    return expose(log.select(busy), start=1e9), expose(quick, start=2e9)


def test_a_hot_replica(replicas):
    advice = advise({"replica": pages(*replicas)}, SLO)
    assert ids(advice)[0] == "router_imbalance"


def test_equal_replicas_are_not_suspected(log):
    texts = [expose(log.select(log.requests["instance"] == at), start=1e9 + at) for at in range(2)]
    assert ids(advise({"replica": pages(*texts)}, SLO)) == ["healthy"]


def test_pages_of_one_replica_are_joined_by_their_start(log):
    """Before and after pages of a replica must not count as two replicas."""
    text = expose(log, start=1e9)
    advice = advise({"replica": pages(text, text)}, SLO)
    assert len(advice.servers) == 1


def test_documents_that_no_router_follows():
    """Row 5: every replica computes the same long prompts again, and TTFT shows it."""
    rag = Experiment().with_(
        trace="synthetic", rate=1.0, limit=80, prompt_tokens=12000, instances=4, jitter=0.1
    )
    log = rag.run()
    texts = [expose(log.select(log.requests["instance"] == at), start=1e9 + at) for at in range(4)]
    advice = advise({"replica": pages(*texts)}, {"ttft": 0.2, "itl": 0.1})
    assert "prefix_miss" in ids(advice)[:2]
    assert "router_imbalance" not in ids(advice)


def test_a_mixture_of_experts_says_what_is_not_exported(log):
    """Row 6: vLLM has no metric of expert balance, so the advisor must not pretend."""
    text = expose(log, start=1e9, model="deepseek-ai/DeepSeek-V3")
    unknown = dict(advise({"": pages(text)}, SLO).diagnosis.unknown)
    assert "exports no expert balance" in unknown["expert_balance"]


def test_an_uneven_balance_is_read():
    late = Experiment().with_(trace="synthetic", rate=200.0, limit=200, max_num_seqs=64).run()
    text = expose(late, start=1e9, model="deepseek-v3") + "sglang:eplb_balancedness 0.3\n"
    assert "moe_imbalance" in ids(advise({"": pages(text)}, SLO))[:2]
