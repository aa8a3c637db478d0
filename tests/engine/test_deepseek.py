"""Latent attention in both ways, and checkpoints of DeepSeek that must or must not load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deepseek_worlds import CONFIG, HF, random_weights
from safetensors.torch import save_file

from minilab.core.config import SchedulerConfig
from minilab.engine.deepseek.attention import Absorbed, Expanded
from minilab.engine.deepseek.model import DeepseekDecoder
from minilab.engine.llm import LLM
from minilab.engine.load import load_llm
from minilab.engine.loader import load
from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError

BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"
WEIGHTS = random_weights()
PROMPTS = [torch.randperm(97, generator=torch.Generator().manual_seed(s)).tolist() for s in (1, 2)]
GREEDY = SamplingParams(temperature=0, max_tokens=12)


def folder(path: Path, weights: dict[str, torch.Tensor], **changes: Any) -> Path:
    (path / "config.json").write_text(json.dumps({**HF, **changes}))
    save_file(weights, path / "model.safetensors")
    return path


def logits_of(attention: Any) -> torch.Tensor:
    """Of every step of two requests that are prefilled in chunks and decode together."""
    llm = LLM(CONFIG, WEIGHTS, SchedulerConfig(96, 4, max_num_batched_tokens=16, max_num_seqs=4))
    model = llm.executor.model
    assert isinstance(model, DeepseekDecoder)
    model.attention = attention
    seen: list[torch.Tensor] = []
    forward = model.forward
    model.forward = lambda batch: seen.append(forward(batch)) or seen[-1]  # type: ignore
    llm.generate(PROMPTS, GREEDY)
    return torch.cat(seen)


def test_absorbed_is_expanded_to_1e_4() -> None:
    """The reordered products change no logit; a wrong scale, head or mask would."""
    absorbed, expanded = logits_of(Absorbed(32)), logits_of(Expanded(32))
    torch.testing.assert_close(absorbed, expanded, rtol=0, atol=1e-4)
    assert absorbed.std() > 0.5 and not torch.equal(absorbed, expanded)


def test_a_token_leaves_one_row_per_layer_whatever_the_heads() -> None:
    model = DeepseekDecoder(CONFIG, WEIGHTS, 8, 4)
    assert model.kv_cache.shape == (2, 1, 8, 4, 32 + 16)


@pytest.mark.parametrize("mtp", [True, False])
def test_a_checkpoint_loads_with_and_without_its_mtp_module(mtp: bool, tmp_path: Path) -> None:
    """transformers drops the module when it saves; public files repeat embedding and head in it."""
    weights = random_weights(mtp)
    if mtp:
        weights["model.layers.2.embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
        weights["model.layers.2.shared_head.head.weight"] = weights["lm_head.weight"].clone()
    llm = load_llm(folder(tmp_path, weights), device="cpu")
    assert isinstance(llm.executor.model, DeepseekDecoder)
    assert (llm.executor.model.mtp is not None) == mtp
    wanted = LLM(CONFIG, random_weights(mtp)).generate(PROMPTS, GREEDY)
    assert [o.token_ids for o in llm.generate(PROMPTS, GREEDY)] == [o.token_ids for o in wanted]


def test_the_bias_of_the_router_stays_float32(tmp_path: Path) -> None:
    """In bfloat16 experts whose biases differ by a thousandth would become equal."""
    _, weights = load(folder(tmp_path, WEIGHTS), dtype=torch.bfloat16)
    assert torch.equal(weights[BIAS], WEIGHTS[BIAS])
    assert weights["lm_head.weight"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("model.layers.1.mlp.experts.7.up_proj.weight", None, "no tensor .*experts.7.up_proj"),
        ("model.layers.2.eh_proj.weight", None, r"no tensor model\.layers\.2\.eh_proj"),
        ("model.layers.1.self_attn.o_proj.bias", torch.ones(48), "o_proj.bias has no use"),
        ("model.layers.3.eh_proj.weight", torch.ones(48, 96), "layers.3.eh_proj.weight has no use"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(name: str, tensor: Any, words: str) -> None:
    weights = {k: v for k, v in WEIGHTS.items() if k != name}
    if tensor is not None:
        weights[name] = tensor
    with pytest.raises(InputError, match=words):
        LLM(CONFIG, weights)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_scaling": {"type": "yarn", "factor": 40}}, "rope_type is 'yarn'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is"),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"moe_layer_freq": 2}, "moe_layer_freq is 2"),
        ({"kv_lora_rank": None}, "kv_lora_rank is None"),
        ({"model_type": "deepseek_v2", "norm_topk_prob": True}, "norm_topk_prob is True"),
    ],
)
def test_what_is_not_built_is_refused(changes: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        load_llm(folder(tmp_path, WEIGHTS, **changes), device="cpu")


def test_a_pair_outside_the_mixture_is_an_mlp() -> None:
    """first_k_dense_replace and a model without experts."""
    assert [CONFIG.has_experts(layer) for layer in range(3)] == [False, True, True]
    assert not replace(CONFIG, routing=None).has_experts(1)
    assert len(DeepseekDecoder(CONFIG, WEIGHTS, 8, 4).mixtures) == 1
