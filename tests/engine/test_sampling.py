"""Sampling: the distribution that is drawn from, and that batching changes nobody's draws."""

from __future__ import annotations

import pytest
import torch

from minilab.engine.sampling import Sampler, SamplingParams, probabilities
from minilab.facts.errors import InputError

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 1.0])


def test_temperature_then_top_k_then_top_p() -> None:
    """By hand: softmax(2, 1, 0, -1, 1) = .5150 .1895 .0697 .0256 .1895 to four digits."""
    full = probabilities(LOGITS, SamplingParams())
    torch.testing.assert_close(full, LOGITS.softmax(0))
    top2 = probabilities(LOGITS, SamplingParams(top_k=2))
    assert (top2 > 0).tolist() == [True, True, False, False, True], "ties at the border stay"
    assert top2[0] == pytest.approx(0.5761, abs=1e-4)
    nucleus = probabilities(LOGITS, SamplingParams(top_p=0.6))
    assert (nucleus > 0).sum() == 2 and nucleus.sum() == pytest.approx(1.0)
    only = probabilities(LOGITS, SamplingParams(top_p=0.3))
    assert only.tolist() == [1, 0, 0, 0, 0], "the most likely token always stays"
    hot, cold = (probabilities(LOGITS, SamplingParams(temperature=t)) for t in (100.0, 0.01))
    assert hot.max() - hot.min() < 0.01 and cold[0] > 0.999


def test_a_request_draws_the_same_whatever_runs_beside_it() -> None:
    params = SamplingParams(seed=5)
    alone = Sampler()
    text = [alone.draw(LOGITS, params, 1) for _ in range(30)]
    crowd = Sampler(seed=99)
    mixed = []
    for _ in range(30):
        crowd.draw(LOGITS, SamplingParams(), 7)
        mixed.append(crowd.draw(LOGITS, params, 1))
    assert mixed == text and len(set(text)) > 1


def test_requests_without_a_seed_differ_from_each_other() -> None:
    sampler = Sampler()
    one, two = ([sampler.draw(LOGITS, SamplingParams(), k) for _ in range(40)] for k in (1, 2))
    assert one != two


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": -2}, "top_k is -2"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"stop": ["a", ""]}, "stop string is empty"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
    ],
)
def test_values_out_of_range_are_named(wrong: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        SamplingParams(**wrong)
