"""Writes training data: what the target says to many prompts, and its hidden states.

A shard (safetensors) holds some finished texts one after the other: ``tokens``, ``ends`` (where
each text ends), ``prompts`` (its prompt tokens) and ``hidden``, the last layer's output before the
final norm at every token. Stop it when you like; it goes on with the first shard that is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from safetensors.torch import save_file

from drafter.tasks import chat, training_prompts
from minilab.core.config import SchedulerConfig
from minilab.engine.load import load_llm
from minilab.engine.sampling import SamplingParams

MAX_TOKENS, PERIOD, TAIL = 192, 16, 40


class HiddenStates:
    """Keeps what the last layer puts out, by request, while an engine runs."""

    def __init__(self, llm: Any) -> None:
        self.rows: dict[int, list[torch.Tensor]] = {}
        self._forward = llm.executor.model.hidden
        llm.executor.model.hidden = self._hidden

    def _hidden(self, batch: Any) -> torch.Tensor:
        hidden: torch.Tensor = self._forward(batch)
        for request, rows in zip(batch.requests, hidden.split(batch.query_lens), strict=True):
            self.rows.setdefault(request.id, []).append(rows.clone())
        return hidden


def loops(tokens: list[int]) -> bool:
    """Whether the last tokens repeat with a short period."""
    tail = tokens[-TAIL:]
    if len(tail) < TAIL:
        return False
    return any(tail[p:] == tail[:-p] for p in range(1, PERIOD + 1))


def shard(llm: Any, states: HiddenStates, prompts: list[str], seed: int) -> dict[str, torch.Tensor]:
    """Run ``prompts`` to their ends: every third text drawn at temperature 0.8, others greedy."""
    requests = []
    for number, prompt in enumerate(prompts):
        rule = SamplingParams(
            temperature=0.8 if number % 10 in (2, 5, 8) else 0.0,
            max_tokens=MAX_TOKENS,
            seed=seed * 100_003 + number,
        )
        ids = llm.tokenizer.encode(prompt, add_special_tokens=False)
        if len(ids) + MAX_TOKENS < 512:
            requests.append(llm.add(ids, rule))
    done: list[tuple[list[int], int, torch.Tensor]] = []

    def take(request: Any) -> None:
        text = llm.executor.texts[request.id]
        hidden = torch.cat(states.rows.pop(request.id))
        # The last token was put out but never read, so it has no hidden state.
        tokens = text.tokens[: len(hidden)]
        done.append((list(tokens), text.num_prompt_tokens, hidden))

    running = list(requests)
    steps = 0
    while llm.step():
        steps += 1
        for request in list(running):
            text = llm.executor.texts[request.id]
            stuck = steps % 8 == 0 and loops(text.output)
            if text.finish_reason or stuck:
                take(request)
                running.remove(request)
                llm.abort(request)
    ends = torch.tensor([len(tokens) for tokens, _, _ in done]).cumsum(0)
    return {
        "tokens": torch.tensor([t for tokens, _, _ in done for t in tokens], dtype=torch.int32),
        "ends": ends,
        "prompts": torch.tensor([count for _, count, _ in done]),
        "hidden": torch.cat([hidden for _, _, hidden in done]).bfloat16(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, default=960)
    parser.add_argument("--per-shard", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="bfloat16", help="float32 where a CPU has no bfloat16")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    limits = SchedulerConfig(
        64 * 32, 16, max_num_batched_tokens=2048, max_num_seqs=64, enable_prefix_caching=False
    )
    llm = load_llm("smollm2", limits, dtype=options.dtype, device="cpu")
    states = HiddenStates(llm)
    prompts = training_prompts(options.texts, options.seed)
    for first in range(0, len(prompts), options.per_shard):
        path = options.folder / f"shard-{first // options.per_shard:04d}.safetensors"
        if path.exists():
            continue
        began = time.process_time()
        part = [chat(prompt) for _, prompt in prompts[first : first + options.per_shard]]
        data = shard(llm, states, part, options.seed + first)
        save_file(data, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)
        new = len(data["tokens"]) - int(data["prompts"].sum())
        seconds = time.process_time() - began
        print(
            f"{path.name}: {len(data['ends'])} texts, {new} new tokens, {seconds:.0f} CPU s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
