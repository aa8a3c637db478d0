"""Random arrivals, aborts, salts, stops and a tiny pool, for many steps, each one checked."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest
from driving import check
from parity import assert_idle

from minilab.core.config import SchedulerConfig
from minilab.core.request import RequestState
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights
from minilab.engine.tokenizer import Tokenizer

CONFIG = replace(TINY, num_layers=1, eos_token_ids=(97, 256))
WEIGHTS = random_weights(CONFIG, 2)
TOKENIZER = Tokenizer.of_bytes()
MOST = 24
"""Longest output that anyone asks for."""


def prompts() -> list[tuple[int, ...]]:
    """Twelve texts that begin alike, of 3 to 30 tokens."""
    rng = random.Random(8)
    heads = [rng.sample(range(256), 12) for _ in range(3)]
    return [
        tuple(heads[k % 3][: rng.randint(2, 12)] + rng.sample(range(256), rng.randint(1, 18)))
        for k in range(12)
    ]


@cache
def alone(prompt: tuple[int, ...], rule: SamplingParams) -> tuple[list[int], str, str]:
    """The result of a request that runs by itself, without a prefix cache."""
    llm = LLM(CONFIG, WEIGHTS, SchedulerConfig(64, 4, enable_prefix_caching=False), 0, TOKENIZER)
    (output,) = llm.generate([prompt], rule)
    return output.token_ids, output.text, output.finish_reason


class Life:
    """One engine and whoever is in it."""

    def __init__(self, seed: int, policy: str) -> None:
        limits = SchedulerConfig(20, 4, max_num_batched_tokens=11, max_num_seqs=5, policy=policy)
        self.llm = LLM(CONFIG, WEIGHTS, limits, 0, TOKENIZER)
        self.random = random.Random(seed)
        self.prompts = prompts()
        self.alive: dict[int, tuple[RequestState, tuple[int, ...], SamplingParams]] = {}
        self.ended = {"stop": 0, "length": 0, "abort": 0}
        self.shown: dict[int, str] = {}

    def arrive(self) -> None:
        prompt = self.random.choice(self.prompts)
        kinds = [
            SamplingParams(temperature=0, max_tokens=self.random.choice((1, 5, MOST))),
            SamplingParams(max_tokens=MOST, seed=self.random.randrange(4), top_k=40, top_p=0.9),
            SamplingParams(temperature=0, max_tokens=MOST, ignore_eos=True, stop=("\n", "e")),
        ]
        rule = self.random.choice(kinds)
        state = self.llm.add(prompt, rule, self.random.choice((None, "a", "b")))
        self.alive[state.id] = (state, prompt, rule)

    def leave(self) -> None:
        number = self.random.choice(list(self.alive))
        self.llm.abort(self.alive.pop(number)[0])
        self.ended["abort"] += 1

    def step(self) -> None:
        """One step; all house rules; who ended has the text that it would have alone."""
        self.llm.step()
        check(self.llm.scheduler)
        for number in list(self.alive):
            text = self.llm.executor.texts[number]
            assert text.text.startswith(self.shown.get(number, "")), "text was taken back"
            self.shown[number] = text.text
            if text.finish_reason:
                state, prompt, rule = self.alive.pop(number)
                output = self.llm.output(state)
                found = (output.token_ids, output.text, output.finish_reason)
                assert found == alone(prompt, rule)
                self.ended[output.finish_reason] += 1


def live(steps: int, seed: int, policy: str = "mixed") -> Life:
    life = Life(seed, policy)
    for _ in range(steps):
        if life.random.random() < 0.12 and len(life.alive) < 12:
            life.arrive()
        if life.alive and life.random.random() < 0.02:
            life.leave()
        life.step()
    while life.alive:
        life.step()
    assert_idle(life.llm)
    assert min(life.ended.values()) > steps // 200, life.ended
    assert life.llm.scheduler.num_preemptions > steps // 200
    log = life.llm.record.to_runlog(data={"name": "stress", "kind": "synthetic"})
    status = log.requests["status"].tolist()
    assert status.count("aborted") == life.ended["abort"]
    assert status.count("finished") == life.ended["stop"] + life.ended["length"]
    return life


@pytest.mark.parametrize("policy", ["mixed", "prefill-first", "decode-first"])
def test_500_steps_of_everything(policy: str) -> None:
    live(500, 1, policy)


@pytest.mark.slow
def test_10000_steps_of_everything_leak_nothing() -> None:
    """What is kept per request at the end: its row of the record, and nothing else."""
    life = live(10_000, 2)
    llm = life.llm
    assert llm.num_steps > 5_000
    states = llm.record.requests
    assert len(states) == sum(life.ended.values())
    assert not any(state.block_table or state.block_hashes for state in states)
