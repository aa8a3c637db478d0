"""The loop around a model: ends, aborts, errors, the record, and nothing left behind."""

from __future__ import annotations

import pytest

from minilab.core.config import SchedulerConfig
from minilab.engine.config import DecoderConfig
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import random_weights
from minilab.facts import slo
from minilab.facts.errors import InputError

CONFIG = DecoderConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    rms_norm_eps=1e-6,
    rope_theta=10_000.0,
    tie_word_embeddings=True,
    eos_token_ids=(7,),
)


def engine(blocks: int = 64, **limits: int) -> LLM:
    return LLM(
        CONFIG,
        random_weights(CONFIG, 3),
        SchedulerConfig(blocks, 4, **{"max_num_seqs": 4, **limits}),
    )


def test_the_end_of_text_token_stops_a_request() -> None:
    """Some of many sampled texts meet token 7; each then ends with it, and says why."""
    llm = engine()
    prompts = [[k, k + 1, k + 2] for k in range(30)]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=40))
    reasons = {output.finish_reason for output in outputs}
    assert reasons == {"stop", "length"}
    for output in outputs:
        stopped = output.finish_reason == "stop"
        assert (7 in output.token_ids) == stopped
        assert (output.token_ids[-1] == 7) == stopped
    on = SamplingParams(max_tokens=40, ignore_eos=True)
    assert all(len(output.token_ids) == 40 for output in llm.generate(prompts, on))


def test_the_record_is_a_run_log_that_goodput_can_judge() -> None:
    llm = engine()
    prompts = [[k, 3, 9, k] for k in range(8)]
    llm.generate(prompts, SamplingParams(max_tokens=12, ignore_eos=True))
    log = llm.record.to_runlog(data={"name": "test", "kind": "synthetic"})
    assert log.finished.all() and (log.requests["output_tokens"] == 12).all()
    assert log.gaps is not None and (log.gaps.counts() == 11).all()
    judged = slo.goodput(log, "ttft=60,itl=5")
    assert judged.attainment == 1.0 and judged.goodput is not None and judged.goodput > 0
    assert slo.attainment(log, "ttft=1e-9") == 0.0


@pytest.mark.parametrize(
    ("prompt", "tokens", "words"),
    [
        ([], 4, "prompt is empty"),
        ([3, 50], 4, "outside 0..49"),
        ([1] * 300, 4, "the KV pool holds 256"),
    ],
)
def test_what_cannot_be_served_is_refused(prompt: list[int], tokens: int, words: str) -> None:
    llm = engine()
    with pytest.raises(InputError, match=words):
        llm.generate([prompt], SamplingParams(max_tokens=tokens))
    assert not llm.scheduler.num_waiting
