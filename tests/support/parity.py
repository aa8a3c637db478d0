"""What the engine's parity tests compare with: small random models of transformers.

Spread logits (initializer_range 0.15) and prompts of distinct tokens: on flat logits or repeated
tokens a wrong position or a wrong block passes by accident.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from driving import check

from minilab.core.plan import StepPlan
from minilab.core.request import RequestState
from minilab.engine.families import ModelConfig, config_from_hf
from minilab.engine.llm import LLM
from minilab.engine.output import Output
from minilab.engine.sampling import SamplingParams

VOCAB = 160
FAMILIES = ("llama", "llama3", "qwen2", "qwen3")
LATENT_FAMILIES = ("deepseek_v3", "deepseek_v2")
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "eos_token_id": None,
    "bos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
}
OUTPUT = 20
"""Most tokens that a job asks for."""


@dataclass(frozen=True)
class Job:
    """One request, and the greedy text that transformers gives it."""

    prompt: list[int]
    wanted: list[int]
    salt: str | None = None

    @property
    def rule(self) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=len(self.wanted))


@dataclass(frozen=True)
class Pair:
    """A model of transformers and what the engine needs of it."""

    model: Any
    config: ModelConfig
    weights: dict[str, torch.Tensor]
    jobs: list[Job] = field(default_factory=list)


def pair(family: str) -> Pair:
    """A random model of that family; the same one for the same name."""
    import transformers

    torch.manual_seed(7)
    if family == "qwen2":
        config = transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True)
    elif family == "qwen3":
        config = transformers.Qwen3Config(**SHAPE, head_dim=32)
    elif family == "deepseek_v3":
        config = transformers.DeepseekV3Config(**{**SHAPE, **LATENT})
    elif family == "deepseek_v2":
        other = {"q_lora_rank": None, "topk_method": "group_limited_greedy"}
        config = transformers.DeepseekV2Config(**{**SHAPE, **LATENT, **other})
    else:
        rope = {"rope_parameters": LLAMA3} if family == "llama3" else {}
        config = transformers.LlamaConfig(**SHAPE, **rope)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(buffer, std=0.1)
    found = Pair(model, config_from_hf(model.config.to_dict()), public_weights(model))
    found.jobs.extend(_jobs(model))
    return found


def public_weights(model: Any) -> dict[str, torch.Tensor]:
    """The tensors under the names of public checkpoints: experts one by one."""
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        stem, _, last = name.rpartition(".")
        if last not in ("gate_up_proj", "down_proj"):
            weights[name] = tensor
            continue
        for expert, matrix in enumerate(tensor):
            at = f"{stem}.{expert}."
            if last == "down_proj":
                weights[f"{at}down_proj.weight"] = matrix
            else:
                gate, up = matrix.chunk(2)
                weights |= {f"{at}gate_proj.weight": gate, f"{at}up_proj.weight": up}
    return weights


def prompts(count: int, seed: int, shared: int = 0) -> list[list[int]]:
    """Prompts of distinct tokens; the first ``shared`` of each are the same."""
    rng = random.Random(seed)
    head = rng.sample(range(VOCAB), shared)
    rest = [token for token in range(VOCAB) if token not in head]
    return [head + rng.sample(rest, rng.randint(3, 32)) for _ in range(count)]


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """The text that transformers generates."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),  # else token 0 is taken for padding
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
    return list(out[0, len(prompt) :].tolist())


def _jobs(model: Any) -> list[Job]:
    """Eight requests: six share 9 tokens, two of those are equal; two salts; uneven lengths."""
    asked = prompts(6, seed=1, shared=9)
    asked += [asked[0], *prompts(1, seed=2)]
    texts = [greedy(model, prompt, OUTPUT) for prompt in asked]
    lengths = [OUTPUT, 1, 7, OUTPUT - 1, 12, 2, OUTPUT, 16]
    salts = [None, None, "a", "a", None, "b", None, None]
    return [
        Job(prompt, text[:length], salt)
        for prompt, text, length, salt in zip(asked, texts, lengths, salts, strict=True)
    ]


Watch = Callable[[StepPlan], None]


def serve(
    llm: LLM, jobs: list[Job], seed: int | None = None, watch: Watch = lambda plan: None
) -> list[Output]:
    """Outputs of ``jobs``, the house rules checked after every step.

    Args:
        seed: shuffles the order of arrival, and lets some arrive while others run; ``None`` queues
            all of them at once, in order.
        watch: sees every plan before it runs.
    """
    execute = llm.executor.execute

    def watched(plan: StepPlan) -> Any:
        watch(plan)
        return execute(plan)

    llm.executor.execute = watched  # type: ignore[method-assign]
    rng = random.Random(seed)
    order = list(range(len(jobs)))
    if seed is not None:
        rng.shuffle(order)
    states: dict[int, RequestState] = {}
    while order or llm.scheduler.num_waiting or llm.scheduler.num_running:
        while order and (seed is None or rng.random() < 0.3):
            number = order.pop(0)
            job = jobs[number]
            states[number] = llm.add(job.prompt, job.rule, job.salt)
        llm.step()
        check(llm.scheduler)
        budget = llm.scheduler.config.max_num_seqs
        assert llm.scheduler.num_running <= budget
    llm.executor.execute = execute  # type: ignore[method-assign]
    return [llm.output(states[number]) for number in range(len(jobs))]


def assert_same(outputs: list[Output], jobs: list[Job]) -> None:
    """Every token of every request."""
    for number, (output, job) in enumerate(zip(outputs, jobs, strict=True)):
        assert output.token_ids == job.wanted, f"request {number}"
        assert output.finish_reason == "length"


def assert_idle(llm: LLM) -> None:
    """Nothing is left behind: no block in use, no text, no generator."""
    llm.scheduler.pool.check([])
    assert llm.scheduler.pool.used == 0
    assert not llm.scheduler.num_running and not llm.scheduler.num_waiting
    assert not llm.executor.texts
    assert not llm.executor.sampler.num_generators
