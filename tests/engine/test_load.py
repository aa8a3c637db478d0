"""load_llm: each kind of source, and the one line that each wrong one gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.load import load_llm
from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def test_tiny_speaks_and_is_the_same_for_the_same_seed() -> None:
    first, again, other = (
        load_llm("tiny", SchedulerConfig(64, 4), device="cpu", seed=seed).generate("hello", GREEDY)
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert first[0].prompt == "hello" and first[0].prompt_token_ids == list(b"hello")
    assert len(first[0].token_ids) == 12 and len(set(first[0].token_ids)) > 2
    tokenizer = load_llm("tiny").tokenizer
    assert tokenizer is not None and first[0].text == tokenizer.decode(first[0].token_ids)


def test_text_and_token_ids_may_be_mixed() -> None:
    llm = load_llm("tiny", device="cpu")
    text, ids = llm.generate(["hello", list(b"hello")], GREEDY)
    assert text.token_ids == ids.token_ids and (text.prompt, ids.prompt) == ("hello", None)
    assert llm.generate(list(b"hello"), GREEDY)[0].token_ids == ids.token_ids
    assert llm.generate([], GREEDY) == []


def test_a_stop_string_ends_a_text_of_the_engine() -> None:
    """Stopped at a string from the middle of its own text; the blocks come back."""
    llm = load_llm("tiny", device="cpu")
    rules = [SamplingParams(max_tokens=60, seed=k, ignore_eos=True) for k in range(8)]
    free = llm.generate(["go on"] * 8, rules)
    for whole, rule in zip(free, rules, strict=True):
        stop = whole.text[10:13]
        cut = llm.generate("go on", replace(rule, stop=stop))
        assert cut[0].text == whole.text[: whole.text.index(stop)]
        assert (cut[0].finish_reason, cut[0].stop_reason) == ("stop", stop)
        assert whole.token_ids[: len(cut[0].token_ids)] == cut[0].token_ids
    assert llm.scheduler.pool.used == 0 and not llm.executor.texts


def test_dtype_and_device_are_chosen_or_told() -> None:
    assert load_llm("tiny", device="cpu").executor.model.dtype == torch.float32
    assert load_llm("tiny", dtype="bfloat16", device="cpu").executor.model.dtype == torch.bfloat16
    wanted = "cuda" if torch.cuda.is_available() else "cpu"
    assert load_llm("tiny").executor.model.device.type == wanted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path_or_name": "no/such"}, "no/such: no such folder or file"),
        ({"dtype": "int4"}, "dtype 'int4'; give auto, float32"),
        ({"device": "tpu"}, "device 'tpu'"),
        ({"device": "cuda:99"}, "torch sees . CUDA devices"),
        ({"device": "meta"}, "runs on cpu and cuda"),
    ],
)
def test_what_cannot_be_loaded_is_named(changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_llm(**{"path_or_name": "tiny", **changes})


def test_a_text_without_a_tokenizer_is_refused() -> None:
    llm = load_llm("tiny", device="cpu")
    llm.tokenizer = None
    with pytest.raises(InputError, match="there is no tokenizer"):
        llm.generate("hello")
    with pytest.raises(InputError, match="stop strings need a tokenizer"):
        llm.generate([[1, 2]], SamplingParams(stop="x"))
    assert llm.generate([[1, 2]], GREEDY)[0].text == ""


def test_one_prompt_that_cannot_be_served_queues_none() -> None:
    """The bug: the good half of a refused call stayed in the queue and ran with the next one."""
    llm = load_llm("tiny", SchedulerConfig(64, 4), device="cpu")
    with pytest.raises(InputError, match="a request may have 257"):
        llm.generate(["fine", "x" * 300], GREEDY)
    with pytest.raises(InputError, match="2 prompts, but 1 sampling"):
        llm.generate(["fine", "good"], [GREEDY])
    assert not llm.scheduler.num_waiting and not llm.executor.texts
