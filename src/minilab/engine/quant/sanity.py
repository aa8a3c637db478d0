"""sanity: the accuracy table of KV and weight formats on one text.

Each row is the same text through the same model with one thing changed. The text is read in
windows; a window's reference guesses are computed once and every row is held against them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import torch

from minilab.engine.config import DecoderConfig
from minilab.engine.quant import awq, fp8_weights, gptq
from minilab.engine.quant.calibrate import input_scales, kv_statistics, matrix_inputs
from minilab.engine.quant.divergence import Guesses, Interval, Reference, intervals
from minilab.engine.quant.grid import Grid, round_to_nearest
from minilab.engine.quant.kv_format import KVFormat
from minilab.engine.quant.passes import InputHook, KVHook, Pass, matrices
from minilab.engine.quant.scales import KVScales

WINDOW = 512
BROKEN_KL = 1.0
"""Mean KL in nats from which a format is called broken: half of the first choices are gone."""
WORSE_KL = 0.05
"""Below it a worse perplexity is taken for noise, whatever its interval says of this text."""

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Change:
    """One row's change: other weights, another cache, other inputs of the matrices."""

    weights: Weights | None = None
    kv_hook: KVHook | None = None
    input_hook: InputHook | None = None


@dataclass(frozen=True)
class Row:
    """One row of the table. ``perplexity`` of the changed model; intervals are 95 %."""

    name: str
    perplexity: float
    ppl_change: Interval
    kl: Interval
    agreement: Interval
    tokens: int

    @property
    def verdict(self) -> str:
        """See ``judge``."""
        return judge(self.kl.value, self.ppl_change.low)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "name": self.name,
            "perplexity": self.perplexity,
            "ppl_change": list(self.ppl_change),
            "kl": list(self.kl),
            "agreement": list(self.agreement),
            "tokens": self.tokens,
            "verdict": self.verdict,
        }


def judge(kl: float, ppl_change_low: float) -> str:
    """ "broken": a wrong scale or format. "worse": KL of note, and perplexity rose beyond its
    interval. "noise": neither."""
    if kl >= BROKEN_KL:
        return "broken"
    return "worse" if kl >= WORSE_KL and ppl_change_low > 0 else "noise"


def text(part: str = "evaluation") -> str:
    """The course's own text that ships with the package: "evaluation" or "calibration"."""
    source = resources.files("minilab.engine.quant").joinpath("text.json")
    return "\n\n".join(json.loads(source.read_text(encoding="utf-8"))[part])


def table(
    config: DecoderConfig,
    weights: Weights,
    changes: Mapping[str, Change],
    token_ids: Sequence[int],
    window: int = WINDOW,
    progress: Callable[[str], None] | None = None,
    seed: int = 0,
) -> list[Row]:
    """A row for the model itself ("fp32") and one for every change."""
    models = {
        name: Pass(config, change.weights or weights, change.kv_hook, change.input_hook)
        for name, change in changes.items()
    }
    base = Pass(config, weights)
    parts: dict[str, list[Guesses]] = {name: [] for name in ("fp32", *changes)}
    for start in range(0, len(token_ids) - 1, window):
        ids = token_ids[start : start + window + 1]
        logits = base.logits(ids)
        reference = Reference.of(logits, ids)
        parts["fp32"].append(reference.compare(logits))
        for name, model in models.items():
            parts[name].append(reference.compare(model.logits(ids)))
            if progress is not None:
                progress(name)
    joined = {name: Guesses.join(found) for name, found in parts.items()}
    return [row(name, found, joined["fp32"], seed) for name, found in joined.items()]


def row(name: str, found: Guesses, base: Guesses, seed: int = 0) -> Row:
    """A row from its guesses and the reference's (``base``) on the same tokens."""
    said = intervals(found, base, seed=seed)
    ppl = float(np.exp(min(700.0, found.surprise.mean())))
    return Row(name, ppl, said["ppl_change"], said["kl"], said["agreement"], len(found.kl))


KV_ROWS = (
    "bf16", "e4m3 scale 1.0", "e4m3 per tensor", "e4m3 per tensor, 99.9 %", "e4m3 per head",
    "e4m3 per token-head", "e5m2 scale 1.0", "int8 per tensor", "int8 per head",
    "int8 per token-head", "int4 per head", "int4 per token-head", "e4m3 scale / 64",
    "e4m3 scale x 4096",
)  # fmt: skip


def kv_changes(
    config: DecoderConfig, weights: Weights, calibration: Sequence[int]
) -> dict[str, Change]:
    """The rows for KV formats: granularities, contrasts, a scale that saturates and one too big."""
    seen = kv_statistics(config, weights, calibration)
    constant = KVScales.constant("e4m3", config.num_layers)
    e4m3 = seen.scales("e4m3", "tensor")
    formats = {  # in the order of KV_ROWS
        "bf16": KVFormat("bf16"),
        "e4m3 scale 1.0": KVFormat("e4m3", constant),
        "e4m3 per tensor": KVFormat("e4m3", e4m3),
        "e4m3 per tensor, 99.9 %": KVFormat("e4m3", seen.scales("e4m3", "tensor", 99.9)),
        "e4m3 per head": KVFormat("e4m3", seen.scales("e4m3", "head"), "head"),
        "e4m3 per token-head": KVFormat("e4m3", granularity="token-head"),
        "e5m2 scale 1.0": KVFormat("e5m2", KVScales.constant("e5m2", config.num_layers)),
        "int8 per tensor": KVFormat("int8", seen.scales("int8", "tensor")),
        "int8 per head": KVFormat("int8", seen.scales("int8", "head"), "head"),
        "int8 per token-head": KVFormat("int8", granularity="token-head"),
        "int4 per head": KVFormat("int4", seen.scales("int4", "head"), "head"),
        "int4 per token-head": KVFormat("int4", granularity="token-head"),
        "e4m3 scale / 64": KVFormat("e4m3", e4m3.times(1 / 64)),
        "e4m3 scale x 4096": KVFormat("e4m3", e4m3.times(4096)),
    }
    return {name: Change(kv_hook=found.stored) for name, found in formats.items()}


def weight_changes(
    config: DecoderConfig,
    weights: Weights,
    calibration: Sequence[int],
    group_size: int = 128,
    only: Sequence[str] | None = None,
) -> dict[str, Change]:
    """The rows for weight formats; ``only`` makes some of them."""
    made = dict(_weight_rows(config, weights, calibration, group_size, only))
    return {name: made[name] for name in (only or made)}


WEIGHT_ROWS = ("W8A8 e4m3 dynamic", "W8A8 e4m3 static", "int4 RTN", "int4 AWQ", "int4 GPTQ")


def _weight_rows(
    config: DecoderConfig,
    weights: Weights,
    calibration: Sequence[int],
    group_size: int,
    only: Sequence[str] | None,
) -> Iterator[tuple[str, Change]]:
    names = matrices(config)
    wanted = set(only or WEIGHT_ROWS)
    inputs = matrix_inputs(config, weights, calibration)
    if wanted & set(WEIGHT_ROWS[:2]):
        eight = fp8_weights.rounded(weights, names)
        yield WEIGHT_ROWS[0], Change(eight, input_hook=fp8_weights.dynamic)
        yield WEIGHT_ROWS[1], Change(eight, input_hook=fp8_weights.static(input_scales(inputs)))
    if WEIGHT_ROWS[2] in wanted:
        grids = {n: round_to_nearest(weights[n + ".weight"], group_size) for n in names}
        yield WEIGHT_ROWS[2], Change(in_place(weights, grids))
    if WEIGHT_ROWS[3] in wanted:
        folded, grids = awq.quantise(config, weights, inputs, group_size)
        yield WEIGHT_ROWS[3], Change(in_place(folded, grids))
    if WEIGHT_ROWS[4] in wanted:
        grids = {n: gptq.quantise(weights[n + ".weight"], inputs[n], group_size) for n in names}
        yield WEIGHT_ROWS[4], Change(in_place(weights, grids))


def in_place(weights: Weights, grids: Mapping[str, Grid]) -> dict[str, torch.Tensor]:
    """``weights`` with every matrix that has a grid replaced by what the grid stands for."""
    changed = {
        f"{name}.weight": grid.weight().to(weights[f"{name}.weight"].dtype)
        for name, grid in grids.items()
    }
    return {**weights, **changed}
