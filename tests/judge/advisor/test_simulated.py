"""Rows 4 and 5, and speculation, on pages of several servers that a simulation really ran.

Each test names the cause that the run was given; the advisor sees the servers' pages only.
"""

from __future__ import annotations

import numpy as np
import pytest
from advised import SLO, ids, pages

from minilab.facts.workload import synthetic
from minilab.judge.advisor.advise import advise
from minilab.judge.advisor.expose import expose
from minilab.judge.advisor.expose_pools import expose_pools
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment


def split(prefills, decodes, work, slo=SLO, **more):
    """The advice on the pools of a split that served ``work``."""
    whole = Experiment(instances=prefills + decodes, router="least-load")
    run = PdExperiment.split(whole, prefills, decodes, **more).run(work)
    prefill, decode = expose_pools(run, start=1e9)
    return advise({"prefill": pages(prefill), "decode": pages(*decode)}, slo)


def test_a_split_with_a_fast_wire_is_healthy():
    """What follows must not be said of every split."""
    advice = split(1, 1, synthetic(1.5, 100, 3000, 120, seed=1), link="infiniband-400")
    assert ids(advice) == ["healthy"]


def test_a_split_over_a_slow_wire():
    """Row 4: 0.8 GB per prompt over 1.25 GB/s."""
    advice = split(1, 1, synthetic(1.0, 100, 6000, 120, seed=1), link="ethernet-10")
    assert ids(advice)[0] == "kv_transfer"
    said = " ".join(advice.diagnosis.suspects[0].evidence)
    assert "a transfer takes" in said


def test_a_prefill_pool_that_is_too_small():
    """Row 4: one prefill instance for the prompts of three decode instances."""
    advice = split(1, 3, synthetic(9.0, 400, 6000, 40, seed=2), link="infiniband-400")
    assert ids(advice)[0] == "pd_ratio"


def test_a_decode_pool_that_is_too_small():
    """Row 4: three prefill instances feed one that has few running slots."""
    work = synthetic(12.0, 400, 500, 400, seed=3)
    advice = split(3, 1, work, {"ttft": 1.0, "itl": 0.03}, link="infiniband-400", max_num_seqs=16)
    assert ids(advice)[0] == "pd_ratio"


def hot_document(**router):
    """Pages of four replicas: one document about which 30 callers a second ask."""
    work = synthetic(30.0, 400, 200, 200, seed=4, groups=1, shared_tokens=12000)
    log = Experiment(instances=4, **router).run(work)
    where = log.requests["instance"]
    return [expose(log.select(where == at), start=1e9 + at) for at in range(4)]


def test_a_router_that_follows_the_prefix_and_knows_no_load():
    """Row 5's other side: every caller is sent to where the document is."""
    texts = hot_document(router="longest-prefix", router_faults="no-load")
    advice = advise({"replica": pages(*texts)}, SLO)
    assert ids(advice)[0] == "router_imbalance"
    assert "4.00 times the mean" in advice.diagnosis.suspects[0].evidence[0]


def test_a_router_that_knows_load_too():
    texts = hot_document(router="bounded-prefix")
    assert "router_imbalance" not in ids(advise({"replica": pages(*texts)}, SLO))


def test_many_documents_and_a_router_that_does_not_know_them():
    """Row 5: each document is asked for twice, and the second caller lands elsewhere."""
    work = synthetic(8.0, 240, 200, 40, seed=5, groups=120, shared_tokens=12000)
    found = {}
    for router in ("round-robin", "bounded-prefix"):
        log = Experiment(instances=4, router=router).run(work)
        where = log.requests["instance"]
        texts = [expose(log.select(where == at), start=1e9 + at) for at in range(4)]
        found[router] = advise({"replica": pages(*texts)}, {"ttft": 0.2, "itl": 1.0})
    assert "prefix_miss" in ids(found["round-robin"])[:2]
    hits = {
        router: np.mean([server.at("hit_rate") for server in advice.servers])
        for router, advice in found.items()
    }
    assert hits["bounded-prefix"] > 1.5 * hits["round-robin"]


def drafted(rate, acceptance, **more):
    """The page of a server that drafts four tokens per step."""
    made = Experiment(num_speculative_tokens=4, acceptance_rate=acceptance)
    return made.run(synthetic(rate, 200, 500, 200, seed=6)), more


def test_drafts_that_are_rejected():
    log, _ = drafted(4.0, 0.15)
    advice = advise({"": pages(expose(log, start=1e9))}, SLO)
    assert "spec_low_acceptance" in ids(advice)[:2]
    signals = advice.servers[0]
    assert signals.get("acceptance") == pytest.approx(
        sum(0.15**at for at in range(1, 5)) / 4, rel=0.1
    )


def test_drafts_that_are_accepted_in_a_full_server():
    """Acceptance is good; the batch is what makes verifying dear."""
    log, _ = drafted(60.0, 0.8)
    assert log.series is not None
    running = float(log.series["running"].max())
    text = expose(log, start=1e9, during={"num_requests_running": running})
    advice = advise({"": pages(text)}, {"ttft": 1.0, "itl": 0.02})
    assert running > 40
    assert "spec_high_batch" in ids(advice)[:2] and "spec_low_acceptance" not in ids(advice)


def test_replicas_of_which_one_drafts_badly():
    """The suspect names its server."""
    good, _ = drafted(4.0, 0.8)
    bad, _ = drafted(4.0, 0.1)
    texts = [expose(good, start=1e9), expose(bad, start=2e9)]
    suspects = advise({"replica": pages(*texts)}, SLO).diagnosis.suspects
    (found,) = [one for one in suspects if one.id == "spec_low_acceptance"]
    assert found.where == "server1"
