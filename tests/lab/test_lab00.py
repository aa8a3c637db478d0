"""Lab 00: its engine gives the text that is computed without any cache; its bottlenecks bind."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.runlog import STAGES
from minilab.lab.bottlenecks import BOTTLENECKS, measure, split_measure, split_run, turn
from minilab.lab.experiment import Experiment
from minilab.lab.shortest_first import ShortestPromptFirst
from minilab.lab.toy_engine import TinyModel, ToyEngine, generate
from minilab.sim.conform import conform

MODEL = TinyModel()
ROOT = Path(__file__).parents[2]


# -- the toy engine -------------------------------------------------------------------------------


def filled(seed: int, engine: type[ToyEngine] = ToyEngine) -> tuple[ToyEngine, list[list[int]]]:
    """An engine with tight limits and a few requests of distinct tokens; and what they must get."""
    rng = random.Random(seed)
    made = engine(
        MODEL,
        num_blocks=rng.randint(6, 20),
        block_size=rng.choice([1, 2, 4, 8]),
        budget=rng.randint(4, 24),
        max_num_seqs=rng.randint(1, 4),
    )
    wanted = []
    for _ in range(rng.randint(1, 7)):
        longest = min(60, made.num_blocks * made.block_size)
        prompt = rng.sample(range(97), rng.randint(1, longest))
        count = rng.randint(1, 12)
        try:
            made.add(prompt, count)
        except ValueError:  # larger than the pool
            continue
        wanted.append(generate(MODEL, prompt, count))
    return made, wanted


@pytest.mark.parametrize("seeds", [range(60), range(60, 120)], ids=["one", "two"])
def test_paged_chunked_and_preempted_text_is_the_text_without_a_cache(seeds: range) -> None:
    preempted = cut = 0
    for seed in seeds:
        engine, wanted = filled(seed)
        assert engine.run() == wanted, f"seed {seed}"
        assert sorted(engine.kv.free) == list(range(engine.num_blocks)), "blocks are lost"
        preempted += sum("preempted" in line for line in engine.log)
        cut += sum(line.count("prompt ") > 1 for line in engine.log)
    assert preempted > 5 and cut > 5, "these worlds press on nothing"


def test_the_text_depends_on_every_slot() -> None:
    """Else a wrong block table would go unnoticed, and the comparison would prove nothing."""
    prompt = list(range(20))
    texts = [generate(MODEL, [*prompt[:k], 90, *prompt[k + 1 :]], 8) for k in range(20)]
    assert sum(text != generate(MODEL, prompt, 8) for text in texts) >= 18
    assert len({token for text in texts for token in text}) > 20


BAD: dict[str, tuple[str, Callable[..., object]]] = {
    "slot without table": ("slot", lambda table, p, size: p % size + size * (p // size % 3)),
    "rounded down": ("new_blocks", lambda rows, size: sum((d + n) // size - h for d, n, h in rows)),
    "nobody goes": ("victims", lambda running, free: []),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_decision_shows_in_the_engine(name: str) -> None:
    """The lab plugs a learner's functions in: a wrong one must give other text, or break down."""
    attribute, function = BAD[name]
    mine = type("Mine", (ToyEngine,), {attribute: staticmethod(function)})
    wrong = 0
    for seed in range(30):
        engine, wanted = filled(seed, mine)
        try:
            wrong += engine.run() != wanted
        except (IndexError, RuntimeError):
            wrong += 1
    assert wrong > 1


def test_an_engine_that_never_ends_says_so() -> None:
    class Stands(ToyEngine):
        @staticmethod
        def chunks(budget: int, decodes: int, prompts: object) -> list[int]:
            return [0 for _ in prompts]  # type: ignore[attr-defined]

        def step(self) -> bool:
            super().step()
            self.log.append("nothing")
            return True

    engine = Stands(MODEL)
    engine.add([1, 2, 3], 2)
    with pytest.raises(RuntimeError, match="no end after 50 steps"):
        engine.run(limit=50)


def test_a_request_larger_than_the_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="needs more than the pool's 2 blocks"):
        ToyEngine(MODEL, num_blocks=2, block_size=4).add(list(range(8)), 2)


# -- the five bottlenecks of the chapter ----------------------------------------------------------

SLOS = "ttft=1,tpot=0.02,stall=0.2"
BASE = Experiment(prefix_cache=False, max_num_batched_tokens=512).with_(
    trace="synthetic", limit=300, prompt_tokens=1500, output_tokens=200, rate=4.0, jitter=0.5
)


def test_the_five_have_their_ids_and_metrics() -> None:
    ids = [one.id for one in BOTTLENECKS]
    assert ids == ["prefill_compute", "decode_bandwidth", "kv_capacity", "kv_transfer", "queueing"]
    assert all(text for one in BOTTLENECKS for text in one)


def test_one_knob_makes_each_bottleneck_bind_and_its_sign_shows_it() -> None:
    """By signs and not by milliseconds: these hold for other cards and other constants too."""
    base = measure(BASE, SLOS)
    assert base["attainment"] == 1 and base["full_share"] < 0.4 and base["kv_peak_usage"] < 0.2
    _, prefill = turn(BASE, "prompt_tokens", range(3000, 12_001, 1000), SLOS, least=0.5)
    assert prefill["full_share"] > 0.7 and prefill["kv_peak_usage"] < 0.7
    _, decode = turn(BASE, "output_tokens", range(400, 2401, 200), SLOS, least=0.5)
    assert decode["tpot_p50"] > 0.02 and decode["full_share"] < 0.5
    _, memory = turn(BASE, "kv_blocks", (2000, 1000, 800, 700, 600, 500), SLOS, least=0.5)
    assert memory["kv_peak_usage"] > 0.99 and memory["preemptions"] > 10
    assert memory["tpot_p50"] < 1.5 * base["tpot_p50"], "who runs, runs fast"
    bursty = BASE.with_(arrivals="gamma")
    _, bursts = turn(bursty, "cv", (2.0, 4.0, 6.0, 8.0, 10.0), SLOS, least=0.5)
    assert bursts["queue_p99"] > 2 and bursts["busy_share"] < 0.8
    for name, row in (("prefill", prefill), ("decode", decode), ("memory", memory)):
        assert row["attainment"] < 0.5, name
    with pytest.raises(InputError, match="the shares are of one"):
        measure(BASE.with_(instances=2), SLOS)


def test_a_knob_is_turned_no_further_than_it_must() -> None:
    value, row = turn(BASE, "kv_blocks", (4000, 600, 300), SLOS, least=0.9)
    assert value == 600 and row["attainment"] < 0.9
    value, row = turn(BASE, "kv_blocks", (8000, 4000), SLOS, least=0.5)
    assert value == 4000 and row["attainment"] > 0.9, "the last value, though it does not bind"


def test_the_page_and_the_lab_judge_a_scheduler_that_conforms() -> None:
    """The lab's cell is that of the package, which the page shows; and it may be used."""
    assert conform(ShortestPromptFirst, worlds=60).passed
    solution = json.loads((ROOT / "solutions" / "00_from_engine.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in solution["cells"]]
    (shown,) = [cell for cell in cells if "class ShortestPromptFirst" in cell]
    lab: dict[str, object] = {}
    exec(shown, lab)
    theirs = conform(lab["ShortestPromptFirst"], worlds=60)  # type: ignore[arg-type]
    ours = conform(ShortestPromptFirst, worlds=60)
    assert theirs.to_dict() == ours.to_dict()


def test_a_slow_wire_shows_as_one_gap_and_a_fast_one_does_not() -> None:
    fast = split_measure(BASE, SLOS, "infiniband-400")
    slow = split_measure(BASE, SLOS, "ethernet-10")
    assert fast["attainment"] == 1 and slow["attainment"] < 0.7
    assert slow["stall_p50"] > 5 * fast["stall_p50"]
    assert slow["itl_p99"] == pytest.approx(fast["itl_p99"], rel=0.2), "p99 forgives one gap"
    assert slow["wire_share"] > 0.5


def test_a_split_run_loses_nothing_and_its_stages_add_up() -> None:
    log = split_run(BASE.with_(limit=100), "ethernet-25")
    assert log.finished.all() and len(log) == 100
    parts = [log.requests[name] for name in STAGES]
    e2e = log.requests["finish"] - log.requests["arrival"]
    np.testing.assert_allclose(np.sum(parts, axis=0), e2e, atol=1e-9)
    assert (log.requests["output_tokens"] >= 100).all()
