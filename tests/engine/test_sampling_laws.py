"""Draws against the exact law, and seeds that hold whatever else is in the batch."""

from __future__ import annotations

import random

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.llm import LLM
from minilab.engine.sampling import Sampler, SamplingParams
from minilab.engine.tiny import TINY, random_weights

LOGITS = [1.4, 0.9, 0.9, 0.1, -0.3, -0.8, -1.5, -2.0]
DRAWS = 20_000
# 99.9 % points of chi-square by degrees of freedom (any table; e.g. NIST/SEMATECH, 1.3.6.7.4).
LIMIT = {1: 10.828, 2: 13.816, 3: 16.266, 4: 18.467, 5: 20.515, 6: 22.458, 7: 24.322}
RULES = {
    "plain": {},
    "cold": {"temperature": 0.5},
    "hot": {"temperature": 2.0},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.7},
    "all three": {"temperature": 1.5, "top_k": 6, "top_p": 0.8},
}


def law(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> list[float]:
    """The same distribution worked out anew in plain Python, by the definitions."""
    weights = [2.718281828459045 ** (x / temperature) for x in LOGITS]
    order = sorted(range(len(LOGITS)), key=lambda i: -weights[i])
    kept = order[: top_k or len(order)]
    total = sum(weights[i] for i in kept)
    chosen, reached = [], 0.0
    for i in kept:
        if reached >= top_p:
            break
        chosen.append(i)
        reached += weights[i] / total
    share = sum(weights[i] for i in chosen)
    return [weights[i] / share if i in chosen else 0.0 for i in range(len(LOGITS))]


def chi_square(counts: list[int], chances: list[float]) -> tuple[float, int]:
    """Statistic and degrees of freedom; a draw that should not happen is infinitely bad."""
    if any(count and not chance for count, chance in zip(counts, chances, strict=True)):
        return float("inf"), 1
    terms = [(n - DRAWS * p) ** 2 / (DRAWS * p) for n, p in zip(counts, chances, strict=True) if p]
    return sum(terms), len(terms) - 1


def draws(seed: int, **rule: float) -> list[int]:
    sampler, params = Sampler(), SamplingParams(seed=seed, **rule)  # type: ignore[arg-type]
    row = torch.tensor(LOGITS)
    counts = [0] * len(LOGITS)
    for _ in range(DRAWS):
        counts[sampler.draw(row, params, 0)] += 1
    return counts


@pytest.mark.parametrize("name", RULES)
def test_draws_follow_the_exact_law(name: str) -> None:
    statistic, freedom = chi_square(draws(17, **RULES[name]), law(**RULES[name]))
    assert statistic < LIMIT[freedom]


def test_the_law_test_can_fail() -> None:
    """Draws by one rule, judged by the law of another: top_p before top_k, or a wrong heat."""
    counts = draws(17, temperature=0.9)
    statistic, freedom = chi_square(counts, law())
    assert statistic > LIMIT[freedom]
    assert chi_square(counts, law(temperature=0.9, top_k=7))[0] == float("inf")


def test_a_seed_gives_the_same_text_alone_and_in_any_crowd() -> None:
    """Through the whole engine: other neighbours, other chunks, other order of arrival."""
    weights = random_weights(TINY)
    rules = [
        SamplingParams(max_tokens=25, seed=seed, top_k=50, top_p=0.95, ignore_eos=True)
        for seed in range(6)
    ]
    prompt = [5, 80, 31, 12, 140]
    alone = [
        LLM(TINY, weights, seed=seed).generate([prompt], rule)[0].token_ids
        for seed, rule in enumerate(rules)
    ]
    assert len({tuple(text) for text in alone}) == 6, "different seeds give different texts"
    rng = random.Random(1)
    for budget, blocks in ((6, 64), (9, 24), (64, 64)):
        llm = LLM(TINY, weights, SchedulerConfig(blocks, 4, budget, 6), seed=99)
        crowd = [*enumerate(rules), *((-1, SamplingParams(max_tokens=30)) for _ in range(4))]
        rng.shuffle(crowd)
        asked = [prompt if k >= 0 else rng.sample(range(256), 9) for k, _ in crowd]
        outputs = llm.generate(asked, [rule for _, rule in crowd])
        for (k, _), output in zip(crowd, outputs, strict=True):
            assert k < 0 or output.token_ids == alone[k]


def test_without_a_seed_the_engines_own_makes_a_run_repeatable() -> None:
    weights, rule = random_weights(TINY), SamplingParams(max_tokens=20, ignore_eos=True)
    texts = [
        [o.token_ids for o in LLM(TINY, weights, seed=seed).generate([[1, 2, 3]] * 2, rule)]
        for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0][0] != texts[0][1], "two requests of one run draw apart"
