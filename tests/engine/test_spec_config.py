"""--speculative-config: vLLM's keys are read, and what is wrong is named with what would do."""

from __future__ import annotations

import json

import pytest

from minilab.core.config import SchedulerConfig
from minilab.engine.load import load_llm
from minilab.engine.sampling import SamplingParams
from minilab.engine.spec.config import SpeculativeConfig
from minilab.engine.spec.ngram import NGram
from minilab.facts.errors import InputError

GOOD = {"method": "ngram", "num_speculative_tokens": 3}


def parse(**changes: object) -> SpeculativeConfig:
    return SpeculativeConfig.parse(json.dumps({**GOOD, **changes}))


def test_vllms_keys_reach_the_proposer() -> None:
    said = parse(prompt_lookup_max=6, prompt_lookup_min=3)
    assert said.options == {"prompt_lookup_max": 6, "prompt_lookup_min": 3}
    made = said.proposer(load_llm("tiny", SchedulerConfig(16), device="cpu"))
    assert isinstance(made, NGram)
    assert list(made._sizes) == [6, 5, 4, 3]
    assert said.table.k_for(1) == said.table.k_for(500) == 3


def test_vllms_table_is_read() -> None:
    said = parse(num_speculative_tokens_per_batch_size=[[1, 4, 3], [5, 8, 1], [9, 64, 0]])
    assert [said.table.k_for(batch) for batch in (1, 4, 5, 9, 65)] == [3, 3, 1, 0, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "lookahead"}, "method 'lookahead'; known: ngram, suffix"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens is 0; it must be from 1 to 32"),
        ({"num_speculative_tokens": True}, "it must be a whole number"),
        ({"num_speculative_tokens": 2.5}, "it must be a whole number"),
        ({"prompt_lookup_mx": 4}, "'prompt_lookup_mx' means nothing to ngram; known: "),
        ({"model": "tiny"}, "'model' means nothing to ngram"),
        ({"prompt_lookup_min": 9}, "shortest must be 1 or more"),
        ({"method": "eagle"}, "model is missing; give it"),
        ({"method": "eagle", "model": "nowhere.safetensors"}, "nowhere.safetensors: cannot be"),
        ({"method": "table", "model": "nowhere.safetensors"}, "nowhere.safetensors: cannot be"),
        ({"method": "draft_model", "model": "nowhere"}, "nowhere: no such folder or file"),
        ({"num_speculative_tokens_per_batch_size": [[1, 4]]}, "a row is [from, to, k]"),
        ({"num_speculative_tokens_per_batch_size": [[1, 4, 9]]}, "has 9 guesses"),
        ({"num_speculative_tokens_per_batch_size": 4}, "is a list of [from, to, k]"),
        ({"method": "mtp"}, "mtp needs a model with an MTP module, such as tiny-deepseek"),
        ({"fallback": {"method": "nobody"}}, "fallback: method 'nobody'"),
        ({"fallback": 3}, "fallback: a JSON object is needed"),
        ({"suffix_decoding_min_token_prob": "x", "method": "suffix"}, "it must be a number"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, object], words: str) -> None:
    llm = load_llm("tiny", SchedulerConfig(16), device="cpu")
    with pytest.raises(InputError) as caught:
        parse(**changes).speculation(llm)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"method": "ngram"}', '{"method": ["ngram"]}'])
def test_other_things_than_a_config_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        SpeculativeConfig.parse(text)


def test_mtp_drafts_with_the_models_own_module() -> None:
    """As ``minilab serve tiny-deepseek --speculative-config`` says it: same text, fewer steps."""
    rule = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    plain, drafting = (
        load_llm("tiny-deepseek", SchedulerConfig(32, 16), device="cpu") for _ in range(2)
    )
    guessing = parse(method="mtp", num_speculative_tokens=1).speculation(drafting)
    drafting.use_speculation(guessing)
    prompt = "def add(first, second):\n    return"
    (wanted,), (found,) = plain.generate([prompt], rule), drafting.generate([prompt], rule)
    assert found.token_ids == wanted.token_ids
    counts = guessing.counts
    assert counts.num_accepted_tokens > 0
    assert counts.num_steps + counts.num_accepted_tokens == counts.num_emitted_tokens
