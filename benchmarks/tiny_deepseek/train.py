"""Trains the tiny DeepSeek-V3 on what ``corpus.py`` wrote.

A step is 4 windows of 256 tokens. The loss is the next token's cross-entropy plus 0.3 times that of
the MTP module. Experts are balanced without a loss of their own: after each step a busy expert's
routing bias falls (DeepSeek-V3's rule), until the last 5 % of the steps, where it stays.

The learning rate warms up, stays, and falls over the last 30 % of the steps. So up to there a run
doesn't depend on its length: stop a long one, and go on from its checkpoint with as many steps as
there is time for.

Stop it when you like: it goes on from its last checkpoint. The same seed gives the same windows;
the exact weights depend on the machine's arithmetic, so ship the file and its log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tiny_deepseek.config import MOE_LAYERS
from tiny_deepseek.model import Model
from tiny_deepseek.parameters import start

BATCH, LENGTH = 4, 256
PEAK, WARM_UP, DECAY, LAST = 2.5e-3, 100, 0.3, 0.05
MTP_WEIGHT, BALANCE_STEP, FROZEN = 0.3, 0.002, 0.05
LOG_EVERY, SAVE_EVERY = 20, 40


def windows(tokens: np.ndarray, step: int, seed: int) -> torch.Tensor:
    """int64 [BATCH, LENGTH + 2], the windows of a step: they depend on the seed and the step."""
    dice = np.random.default_rng((seed, step))
    starts = dice.integers(0, len(tokens) - LENGTH - 2, BATCH)
    return torch.from_numpy(np.stack([tokens[s : s + LENGTH + 2] for s in starts]).astype("i8"))


def learning_rate(step: int, steps: int) -> float:
    """Warm-up, a plateau, then a straight line down to LAST of the peak."""
    decaying = max(0.0, (step - (1 - DECAY) * steps) / (DECAY * steps))
    return PEAK * min((step + 1) / WARM_UP, 1 - (1 - LAST) * decaying)


class Run:
    """Model, optimiser and how far they have come."""

    def __init__(self, seed: int) -> None:
        self.model = Model({k: v.requires_grad_() for k, v in start(seed).items()})
        params = self.model.params
        matrices = [p for p in params.values() if p.dim() > 1]
        norms = [p for p in params.values() if p.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95), fused=True)
        self.step, self.seconds = 0, 0.0

    def save(self, path: Path) -> None:
        """Parameters, moments and biases in one file; never half of one."""
        tensors = {f"bias.{layer}": bias for layer, bias in self.model.bias.items()}
        for name, param in self.model.params.items():
            tensors[f"param.{name}"] = param.detach()
            for key, moment in self.optimiser.state[param].items():
                tensors[f"{key}.{name}"] = moment
        said = {"step": str(self.step), "seconds": str(self.seconds)}
        fresh = path.with_suffix(".new")
        save_file({k: v.contiguous() for k, v in tensors.items()}, fresh, said)
        os.replace(fresh, path)

    @torch.no_grad()
    def restore(self, path: Path) -> None:
        """Go on from a file that ``save`` wrote."""
        with safe_open(path, "pt") as file:
            said = file.metadata()
            self.step, self.seconds = int(said["step"]), float(said["seconds"])
            for layer in self.model.bias:
                self.model.bias[layer] = file.get_tensor(f"bias.{layer}").clone()
            for name, param in self.model.params.items():
                param.copy_(file.get_tensor(f"param.{name}"))
                self.optimiser.state[param] = {
                    key: file.get_tensor(f"{key}.{name}").clone()
                    for key in ("step", "exp_avg", "exp_avg_sq")
                }

    def advance(self, batch: torch.Tensor, steps: int) -> tuple[float, float, float]:
        """One step; returns both cross-entropies and the gradient's norm."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, steps)
        first, second = self.model.losses(batch)
        (first + MTP_WEIGHT * second).backward()
        size = torch.nn.utils.clip_grad_norm_(self.model.params.values(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if self.step < (1 - FROZEN) * steps:
            self.model.balance(BALANCE_STEP)
        self.step += 1
        return first.item(), second.item(), size.item()


def train(run: Run, tokens: np.ndarray, steps: int, seed: int, out: Path) -> None:
    """Up to ``steps``; a line of log.jsonl every LOG_EVERY steps, averages since the last."""
    sums, count = [0.0, 0.0, 0.0], 0
    load = {layer: torch.zeros_like(each) for layer, each in run.model.load.items()}
    began = time.perf_counter()
    while run.step < steps:
        parts = run.advance(windows(tokens, run.step, seed), steps)
        sums, count = [a + b for a, b in zip(sums, parts, strict=True)], count + 1
        for layer in MOE_LAYERS:
            load[layer] += run.model.load[layer]
        if run.step % SAVE_EVERY == 0 or run.step == steps:
            run.seconds += time.perf_counter() - began
            began = time.perf_counter()
            run.save(out / "checkpoint.safetensors")
        if run.step % LOG_EVERY == 0 or run.step == steps:
            spent = run.seconds + time.perf_counter() - began
            line: dict[str, Any] = {
                "step": run.step,
                "tokens": run.step * BATCH * LENGTH,
                "seconds": round(spent),
                "ce1": round(sums[0] / count, 4),
                "ce2": round(sums[1] / count, 4),
                "grad_norm": round(sums[2] / count, 3),
                "load_max_over_mean": [
                    round((each.max() / each.float().mean()).item(), 3) for each in load.values()
                ],
            }
            with (out / "log.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
            sums, count = [0.0, 0.0, 0.0], 0
            for each in load.values():
                each.zero_()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder that corpus.py wrote")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tokens = np.load(options.data / "train.npy")
    run = Run(options.seed)
    checkpoint = options.out / "checkpoint.safetensors"
    if checkpoint.is_file():
        run.restore(checkpoint)
        print(f"going on from step {run.step}", flush=True)
    train(run, tokens, options.steps, options.seed, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
