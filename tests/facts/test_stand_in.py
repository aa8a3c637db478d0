"""A stand-in that passes for the trace, changes between machines, or has other statistics."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minilab.facts import trace_fetch, traces
from minilab.facts.errors import InputError
from minilab.facts.prefix_stats import lru_hits
from minilab.facts.stand_in import generate
from minilab.facts.trace_fetch import catalogue
from minilab.facts.workload import Workload

NAMES = list(catalogue())
MOONCAKE = [name for name in NAMES if "mooncake" in name]
PINNED = {
    "azure-conv-2023": "d88c5ed4cb44aee4",
    "azure-code-2023": "44f647bbebfc6851",
    "mooncake-conversation": "77f8701c7b99f9bf",
    "mooncake-synthetic": "51827116940e784a",
}


@cache
def stand_in(name: str) -> Workload:
    return generate(name)


def published(name: str) -> dict[str, Any]:
    known: dict[str, Any] = catalogue()[name]["statistics"]
    return known


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name: str) -> None:
    """Results on made-up requests that are reported as results on the trace."""
    work = stand_in(name).validate()
    assert work.source["kind"] == "stand-in" and work.source["sha256"] is None
    assert "made up" in work.source["origin"] and catalogue()[name]["url"] in work.source["origin"]
    json.dumps(work.source)


@pytest.mark.parametrize("name", NAMES)
def test_lengths_are_the_published_ones(name: str) -> None:
    """A distribution with the right median and the wrong tail has another mean, so another load."""
    now, known = stand_in(name).stats(), published(name)
    assert now["rows"] == known["rows"]
    for side in ("input", "output"):
        assert now[side]["mean"] == pytest.approx(known[side]["mean"], rel=0.05)
        for figure in ("p50", "p90", "p99", "max"):
            assert now[side][figure] == pytest.approx(known[side][figure], rel=0.1), figure
    assert now["in_out"] == pytest.approx(known["in_out"], rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_arrivals_are_as_bursty_as_published(name: str) -> None:
    """Poisson arrivals at the same rate: CV 1 where the code trace has 13, Mooncake's batches 3."""
    now, known = stand_in(name).stats(), published(name)
    assert now["rate"] == pytest.approx(known["rate"], rel=0.01)
    assert now["cv"] == pytest.approx(known["cv"], rel=0.1)
    assert now["distinct_timestamps"] == pytest.approx(known["distinct_timestamps"], rel=0.01)
    minute, real = now["per_minute"], known["per_minute"]
    assert minute["median"] == pytest.approx(real["median"], rel=0.2)
    assert minute["max"] == pytest.approx(real["max"], rel=0.2)
    # the last minute of the conversation traces is cut short, so their minimum says little
    assert minute["min"] <= 0.6 * minute["median"] or "mooncake" in name


def test_azure_code_has_silent_minutes() -> None:
    """Gaps dealt evenly would leave no minute without a request; the trace has 13 of 58."""
    times = np.array([r.arrival for r in stand_in("azure-code-2023").requests])
    minutes = np.bincount((times // 60).astype(int))
    assert 3 <= (minutes == 0).sum() <= 25


@pytest.mark.parametrize("name", MOONCAKE)
def test_reuse_is_the_published_one(name: str) -> None:
    """Block ids dealt at random share nothing; one shared block for all shares 4 % at most."""
    hits, known = lru_hits(stand_in(name).requests), published(name)["reuse"]
    assert hits.block == pytest.approx(known["block"], abs=0.02)
    assert hits.token == pytest.approx(known["token"], abs=0.02)
    assert hits.request_mean == pytest.approx(known["request_mean"], abs=0.03)
    texts = [r.prompt for r in stand_in(name).requests if r.prompt]
    blocks = [block for text in texts for block, _ in text]
    assert len(blocks) == pytest.approx(known["blocks"], rel=0.01)
    assert len(set(blocks)) == pytest.approx(known["unique_blocks"], rel=0.05)
    assert all(text[0][0] == 0 for text in texts) == (known["common_blocks"] == 1)


@pytest.mark.parametrize(("name", "near"), list(zip(MOONCAKE, (0.04, 0.1), strict=True)))
def test_hit_curve_is_close(name: str, near: float) -> None:
    """Reuse of the latest prompts only would reach the upper bound with a tiny cache."""
    for capacity, real in published(name)["reuse"]["lru_block"].items():
        hits = lru_hits(stand_in(name).requests, int(capacity))
        assert hits.block == pytest.approx(real, abs=near), capacity


def test_a_block_has_one_predecessor() -> None:
    """Ids that are chained hashes can't follow two different blocks."""
    for name in MOONCAKE:
        before: dict[int, int] = {}
        for request in stand_in(name).requests:
            ids = [-1, *(block for block, _ in request.prompt or ())]
            for parent, block in pairwise(ids):
                assert before.setdefault(block, parent) == parent


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_is_one_workload_everywhere(name: str) -> None:
    """Pages and checks built elsewhere would show other figures. The hash was the same with numpy
    1.26 and 2.4, with and without vector instructions."""
    assert stand_in(name).hash()[:16] == PINNED[name]
    assert generate(name, seed=1).hash() != stand_in(name).hash()


def test_unknown_names_are_refused() -> None:
    """A typo must not become a KeyError."""
    with pytest.raises(InputError, match="azure-conv-2023"):
        generate("azure-conv")


def test_the_stand_in_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty data folder must not make results of a stand-in look like results of the trace."""
    monkeypatch.setenv("MINILAB_DATA", str(tmp_path))
    monkeypatch.setenv("MINILAB_CACHE", str(tmp_path))
    work = traces.load("azure-code-2023", limit=50)
    assert len(work.requests) == 50 and work.source["kind"] == "stand-in"
    assert re.search("stand-in.*trace fetch azure-code-2023", traces.notice(work) or "")
    made = traces.load("synthetic", limit=20)
    assert made.source["kind"] == "synthetic" and traces.notice(made) is None
    json.dumps(traces.info("mooncake-synthetic"))


def test_a_changed_copy_is_not_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shortened or edited file under the trace's name would be reported as the trace."""
    path = tmp_path / trace_fetch.entry("azure-conv-2023")["file"]
    path.parent.mkdir()
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0.5,20,3\n")
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    monkeypatch.setenv("MINILAB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match="sha256"):
        traces.load("azure-conv-2023", folder=tmp_path)
    cached = trace_fetch.cache_folder() / trace_fetch.entry("azure-conv-2023")["file"]
    cached.parent.mkdir(parents=True)
    path.rename(cached)
    assert traces.load("azure-conv-2023", limit=5).source["kind"] == "stand-in"
    assert traces.load(str(cached)).source["kind"] == "real"
