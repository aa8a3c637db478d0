"""A model of random weights and a proposer that knows its answers: acceptance made to order.

What is measured with them are steps and scheduling; that some drafter reaches such an acceptance
is not claimed.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

ALPHA, PROMPT = 0.3, 48
SHAPE = {
    "model_type": "llama",
    "vocab_size": 2048,
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
}


def checkpoint(folder: Path) -> None:
    """A model of random weights, as a folder that ``load_llm`` reads."""
    from safetensors.torch import save_file

    from minilab.engine.config import DecoderConfig
    from minilab.engine.tiny import random_weights

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE))
    weights = random_weights(DecoderConfig.from_hf(SHAPE), 0)
    scaled = {n: w if n.endswith("norm.weight") else w * 0.4 for n, w in weights.items()}
    save_file(scaled, folder / "model.safetensors")


def foretold(answers: dict[tuple[int, ...], list[int]], seed: int) -> Any:
    """A proposer that knows each answer and is right with chance ALPHA, guess by guess."""
    from minilab.engine.spec.proposer import Drafting, TextProposer

    class Foretold(TextProposer):
        def continuation(self, asked: Drafting) -> list[int]:
            text = answers[tuple(asked.tokens[:PROMPT])]
            done = len(asked.tokens) - PROMPT
            dice = random.Random(f"{seed}/{asked.id}/{done}")
            guesses = text[done : done + asked.most]
            return [g if dice.random() < ALPHA else (g + 1) % 2048 for g in guesses]

    return Foretold()


def answers_of(setup: Any, work: Any, seed: int) -> dict[tuple[int, ...], list[int]]:
    """What the engine answers to each prompt, greedily."""
    from minilab.facts.prompt_tokens import prompt_tokens
    from minilab.judge.engine_calibrate import greedy

    llm = setup.load(prefix_cache=False)
    prompts = [prompt_tokens(r, SHAPE["vocab_size"], seed) for r in work.requests]
    outputs = llm.generate(prompts, [greedy(r.output_tokens) for r in work.requests])
    return {tuple(p): out.token_ids for p, out in zip(prompts, outputs, strict=True)}
