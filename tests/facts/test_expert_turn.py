"""Where ranks overtake slices: a batch per server, not per expert, and none without experts."""

import pytest

from minilab.facts.expert_turn import ranks_ahead_from
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model

H200 = get_gpu("h200")


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-120b", "qwen3-235b-a22b", "mixtral-8x7b"])
def test_it_is_some_dozens_to_some_hundreds_of_sequences(name):
    batch = ranks_ahead_from(get_model(name), H200, 8)
    assert batch is not None and 32 <= batch <= 512 and batch % 8 == 0


def test_longer_contexts_bring_it_forward():
    """The latent is read once with ranks and eight times in slices."""
    short, long = (
        ranks_ahead_from(get_model("deepseek-v3"), H200, 8, context=c) for c in (500, 16_000)
    )
    assert long < short


def test_there_is_none_without_experts_or_partners():
    assert ranks_ahead_from(get_model("llama-3.1-8b"), H200, 8) is None
    assert ranks_ahead_from(get_model("deepseek-v3"), H200, 1) is None
    assert ranks_ahead_from(get_model("deepseek-v3"), H200, 3) is None
