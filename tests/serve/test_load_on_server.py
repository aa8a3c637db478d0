"""The load client against our own server: two logs of one run, taken at both ends of the wire."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import pytest
from serving import wait_for

from minilab.facts.slo import SLOSet, goodput
from minilab.facts.workload import Workload, synthetic
from minilab.serve.limits import ServeLimits
from minilab.serve.load import Settings, play
from minilab.serve.load_wire import Target

LIMIT = SLOSet.parse("ttft=20,e2e=60")


def up(site) -> bool:
    """Whether the server listens by now."""
    try:
        return httpx.get(f"{site.url}/health").status_code == 200
    except httpx.ConnectError:
        return False


def load(site, work: Workload, chat: bool = False, **more):
    """The client's log."""
    wait_for(lambda: up(site))
    settings = Settings(warmup=0, **more)
    target = Target(site.url, "tiny", chat=chat)
    return asyncio.run(asyncio.wait_for(play(target, work, settings), 50))


def test_both_ends_agree(make_site) -> None:
    """Counts are equal, the client's times lie outside the server's, and goodput is one number."""
    site = make_site(keep_record=True)
    work = synthetic(60.0, 20, 48, 6, seed=2, groups=2, shared_tokens=64)
    seen = load(site, work)
    site.stop()
    kept = site.log.select(site.log.requests["prompt_tokens"] > 20)  # probes are shorter
    assert len(kept) == len(seen) == 20
    for name in ("prompt_tokens", "output_tokens", "cached_tokens", "status"):
        assert sorted(seen.requests[name]) == sorted(kept.requests[name]), name
    assert seen.requests["cached_tokens"].sum() >= 64  # one text of a group was found again
    assert seen.meta["lengths"]["prompt_as_asked"] == seen.meta["lengths"]["output_as_asked"] == 20
    whole = [np.sort(log.requests["finish"] - log.requests["arrival"]) for log in (seen, kept)]
    assert (whole[0] >= whole[1] - 1e-3).all()
    ours, theirs = goodput(seen, LIMIT, 1), goodput(kept, LIMIT, 1)
    assert ours.good == theirs.good == 20
    assert ours.goodput == pytest.approx(theirs.goodput, rel=0.25)


def test_salts_keep_tenants_apart(make_site) -> None:
    """The same text under two salts: each tenant finds its own copy and not the other's."""
    site = make_site()
    rows = synthetic(20.0, 6, 16, 2, seed=1, groups=1, shared_tokens=64).requests
    salted = [row._replace(cache_salt=f"tenant {row.id}") for row in rows]
    apart = load(site, Workload(salted))
    assert apart.finished.all() and apart.requests["cached_tokens"].sum() == 0
    again = load(site, Workload(salted))
    assert (again.requests["cached_tokens"] >= 64).all()


def test_full_queue_is_rejected_and_counted(make_site) -> None:
    """An engine that stands still: what its queue cannot hold comes back as 429 and stays bad."""
    site = make_site(limits=ServeLimits(max_queue=3), scheduler={"max_num_seqs": 2})
    work = Workload(
        [row._replace(arrival=0.002 * row.id) for row in synthetic(9, 12, 20, 3).requests]
    )

    async def run():
        target = Target(site.url, "tiny")
        running = asyncio.create_task(play(target, work, Settings(warmup=1, form="ids")))
        while site.llm.num_steps < 4:  # the probe and the warm-up are through
            await asyncio.sleep(0.01)
        site.gate.clear()
        await asyncio.sleep(1.0)
        site.gate.set()
        return await asyncio.wait_for(running, 30)

    log = asyncio.run(run())
    status = log.requests["status"].tolist()
    assert status.count("rejected") >= 1 and set(status) == {"finished", "rejected"}
    judged = goodput(log, LIMIT, 1)
    assert judged.total == 12 and judged.good == status.count("finished")
    assert any(what.startswith("HTTP 429") for what in log.meta["errors"])


def test_chat(make_site) -> None:
    """Text prompts through the chat template; the first chunk (the role) is no token."""
    log = load(make_site(), synthetic(30.0, 5, 90, 5, seed=3), chat=True)
    assert log.finished.all() and (log.requests["output_tokens"] == 5).all()
    assert (log.gaps.counts() == 4).all()
    assert log.meta["prompts"] == "words"
