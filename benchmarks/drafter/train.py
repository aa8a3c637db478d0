"""Trains a drafter for SmolLM2-135M on text that the model wrote (``generate.py``).

``eagle`` is a one-layer feature drafter, trained on its own rollouts of three steps: step j reads
its own guess and the true token, and attends to true inputs up to where it began and to its own
steps behind that, as it will when it drafts. ``medusa`` are three heads on one feature and the next
token. The loss is the cross-entropy against the target's own distribution; later steps count less.

Stop it when you like: it goes on from its last checkpoint. The same seed gives the same order of
texts; the exact weights depend on the machine's arithmetic, so ship the file and its log.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import linear, log_softmax, rms_norm, smooth_l1_loss

from drafter.data import Text, batches, draft_vocabulary, read
from drafter.starts import eagle_start, medusa_start
from minilab.engine.load import smollm2_file
from minilab.engine.loader import load
from minilab.engine.spec.eagle_layer import MATRICES, NORMS, EagleLayer
from minilab.engine.spec.medusa import HEADS, head_feature

STEPS_AHEAD, DECAY, FEATURE_SCALE = 3, 0.8, 1.945
VOCABULARY = 8192
HALF = torch.ops.mkldnn._is_mkldnn_bf16_supported()
"""Products in bfloat16, where the CPU has instructions for it; elsewhere float32 is faster."""
DTYPE = torch.bfloat16 if HALF else torch.float32


class Target:
    """What training needs of the target: embedding, final norm, and its own next-token odds."""

    def __init__(self, vocabulary: torch.Tensor, config: Any, weights: Any) -> None:
        self.config = config
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        self.rows = self.embedding[vocabulary].to(DTYPE)

    def features(self, text: Text) -> torch.Tensor:
        """float32 [len(tokens), hidden_size]: after the final norm."""
        hidden = text.hidden.float()
        return rms_norm(hidden, hidden.shape[-1:], self.norm, self.config.rms_norm_eps)

    def loss(self, guessed: torch.Tensor, true: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Cross-entropy of the drafter's odds against the target's over the draft vocabulary, and
        how often their first choices agree."""
        told = linear(guessed.to(DTYPE), self.rows).float()
        with torch.no_grad():
            wanted = linear(true.to(DTYPE), self.rows).float()
            agree = float((wanted.argmax(-1) == told.argmax(-1)).float().mean())
            wanted = wanted.softmax(-1)
        return -(wanted * log_softmax(told, dim=-1)).sum(-1).mean(), agree


def eagle_loss(target: Target, weights: dict[str, torch.Tensor], text: Text) -> Any:
    """(loss, top-1 by step) of one text."""
    layer = EagleLayer(
        target.config,
        {name: lambda x, name=name: linear(x, weights[name]) for name in MATRICES},
        {name: weights[f"norm.{name}"] for name in NORMS},
    )
    config, device = target.config, text.tokens.device
    share, scale = config.num_heads // config.num_kv_heads, config.head_dim**-0.5
    true = target.features(text)
    embedded = target.embedding[text.tokens]
    count = len(true) - STEPS_AHEAD  # bases 0..count-1
    first = text.num_prompt_tokens - 1  # bases that are judged
    times = torch.arange(len(true), device=device)
    seen = times[None, :count] <= times[first:count, None]
    loss, hits = torch.zeros(()), []
    own: list[tuple[torch.Tensor, torch.Tensor]] = []
    feature = true[:count]
    for step in range(STEPS_AHEAD):
        low = 0 if step == 0 else first  # the keys of step 0 are needed for all tokens
        x = layer.join(embedded[low + 1 + step : count + 1 + step], feature)
        query, key, value = layer.qkv(x, times[low + step : count + step])
        key, value = (each.repeat_interleave(share, dim=1) for each in (key, value))
        if step == 0:
            past, past_value = key, value
            query, x = query[first:], x[first:]
        else:
            own.append((key, value))
        scores = torch.einsum("qhd,khd->hqk", query, past) * scale
        scores = scores.masked_fill(~seen, -torch.inf)
        mine = [(query * k).sum(-1).T[..., None] * scale for k, _ in own]
        odds = torch.cat([scores, *mine], dim=-1).softmax(-1)
        found = torch.einsum("hqk,khd->qhd", odds[..., :count], past_value)
        for number, (_, v) in enumerate(own):
            found = found + odds[..., count + number].T[..., None] * v
        feature = layer.feature(x, found.flatten(1))
        wanted = true[first + 1 + step : count + 1 + step]
        part, agree = target.loss(feature, wanted)
        part = part + smooth_l1_loss(feature / FEATURE_SCALE, wanted / FEATURE_SCALE)
        loss = loss + DECAY**step * part
        hits.append(agree)
    return loss, hits


def medusa_loss(target: Target, weights: dict[str, torch.Tensor], text: Text) -> Any:
    """(loss, top-1 by head) of one text."""
    true = target.features(text)
    first, count = text.num_prompt_tokens - 1, len(true) - HEADS
    feature, token = true[first:count], target.embedding[text.tokens[first + 1 : count + 1]]
    loss, hits = torch.zeros(()), []
    for head in range(HEADS):
        guessed = head_feature(weights, head, feature, token, target.config.rms_norm_eps)
        wanted = true[first + 1 + head : count + 1 + head]
        part, agree = target.loss(guessed, wanted)
        loss = loss + DECAY**head * part
        hits.append(agree)
    return loss, hits


KINDS = {"eagle": (eagle_start, eagle_loss, 1.5e-3), "medusa": (medusa_start, medusa_loss, 1e-3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, help="a .safetensors file")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, loss_of, rate = KINDS[options.kind]
    texts = read(options.data)
    config, loaded = load(smollm2_file())
    state = options.out.with_suffix(".state")
    kept = load_file(state) if state.exists() else {}
    vocabulary = kept.pop("vocabulary", None)
    if vocabulary is None:
        vocabulary = draft_vocabulary(texts, VOCABULARY, config.eos_token_ids)
    target = Target(vocabulary.long(), config, loaded)
    weights = start(config, target.norm, options.seed)
    log: list[dict[str, float]] = []
    done = 0
    optimizer = torch.optim.AdamW(
        [value.requires_grad_() for value in weights.values()], rate, (0.9, 0.95), weight_decay=0.01
    )
    if kept:
        done = int(kept.pop("done"))
        log = json.loads(options.out.with_suffix(".json").read_text())["log"]
        with torch.no_grad():
            for name, value in weights.items():
                value.copy_(kept[name])
                optimizer.state[value] = {
                    "step": torch.tensor(float(done)),
                    "exp_avg": kept[f"{name}.first"],
                    "exp_avg_sq": kept[f"{name}.second"],
                }
        print(f"goes on after step {done}", flush=True)

    def save() -> None:
        moments = {}
        for name, value in weights.items():
            moments[f"{name}.first"] = optimizer.state[value]["exp_avg"]
            moments[f"{name}.second"] = optimizer.state[value]["exp_avg_sq"]
        plain = {name: value.detach() for name, value in weights.items()}
        _write({**plain, **moments, "done": torch.tensor(done), "vocabulary": vocabulary}, state)
        half = {name: value.half() for name, value in plain.items()}
        _write({**half, "vocabulary": vocabulary.int()}, options.out)
        told = {
            "what": f"{options.kind} drafter for SmolLM2-135M",
            "seed": options.seed,
            "products": str(DTYPE).removeprefix("torch."),
            "steps": done,
            "of": options.steps,
            "texts": len(texts),
            "response_tokens": sum(len(t.tokens) - t.num_prompt_tokens for t in texts),
            "parameters": sum(value.numel() for value in weights.values()),
            "host": common.host() | {"torch": torch.__version__},
            "log": log,
        }
        options.out.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")

    began = time.process_time()
    for number, batch in enumerate(batches(texts, options.batch, options.steps, options.seed)):
        if number < done:
            continue
        warm, left = min(1.0, (number + 1) / 50), number / options.steps
        for group in optimizer.param_groups:
            group["lr"] = rate * warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * left)))
        optimizer.zero_grad()
        total, hits = 0.0, []
        for text in batch:
            with torch.autocast("cpu", torch.bfloat16, enabled=HALF):
                loss, found = loss_of(target, weights, text)
            (loss / len(batch)).backward()
            total += float(loss.detach()) / len(batch)
            hits.append(found)
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        done = number + 1
        if done % 10 == 0 or done == options.steps:
            means = [sum(each) / len(each) for each in zip(*hits, strict=True)]
            row = {
                "step": done,
                "loss": round(total, 4),
                "cpu_s": round(time.process_time() - began),
            }
            log.append(row | {f"top1_{i}": round(mean, 3) for i, mean in enumerate(means)})
            print(log[-1], flush=True)
        if done % options.save_every == 0 or done == options.steps:
            save()
    return 0


def _write(tensors: dict[str, torch.Tensor], path: Path) -> None:
    temporary = path.with_suffix(path.suffix + ".tmp")
    save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
