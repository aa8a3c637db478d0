"""Rank: one GPU's memory, explained byte by byte, and how many tokens of KV are left.

    one GPU:  utilization * memory - weights - draft - non-torch - activation - CUDA graphs = KV

Each GPU (a tensor-parallel rank of a pipeline stage) has its own budget and its own layers, the
scheduler counts blocks once for all: the smallest rank decides. What is not given is estimated, and
then the answer is a range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from minilab.facts.capacity import NON_TORCH_BYTES, activation_bytes
from minilab.facts.capacity_plan import GIB, Deployment
from minilab.facts.capacity_stages import stage_weights
from minilab.facts.models import ModelSpec

ACTIVATION_RANGE = (0.5, 2.0)
"""An activation peak that was not given lies between these multiples of its estimate."""

CUDA_GRAPH_RANGE = (0.0, float(GIB))
"""CUDA graphs that were not given: nothing (eager, or a version that does not count them) to 1 GiB,
a prior; vLLM logs 0.1 to 1 GiB for its default sizes. The estimate itself counts none."""


@dataclass(frozen=True)
class Rank:
    """One GPU's share: its layers, what a token and a sequence take, and the bytes for KV."""

    stage: int
    rank: int
    model: ModelSpec
    available: float
    per_token: int
    extra_per_token: int
    terms: tuple[tuple[str, float, str], ...]

    def tokens(self, block_size: int) -> int:
        """Tokens in whole blocks, every layer charged for every token."""
        block = (self.per_token + self.extra_per_token) * block_size
        return max(0, math.floor(self.available / block)) * block_size if block else 0

    def sequence_bytes(self, tokens: int, deployment: Deployment) -> int:
        """Bytes of one sequence of ``tokens`` in whole blocks: fixed part and slope."""
        size = deployment.block_size
        whole = math.ceil(tokens / size) * size
        own = self.model.kv_bytes(whole, deployment.kv_dtype, deployment.attention_tp)
        return own + self.extra_per_token * whole


def ranks(
    deployment: Deployment, activation_factor: float = 1.0, graphs: float = 0.0
) -> list[Rank]:
    """Every GPU's budget. The factors apply only to what was not given."""
    d = deployment
    stages = d.stages()
    weights = stage_weights(d.model, stages, d.weight_dtype, d.tp, d.dp)
    peak = activation_bytes(d.model, d.tp, d.max_num_batched_tokens, d.max_num_seqs)
    found = []
    for stage, model in enumerate(stages):
        last = stage == d.pp - 1
        extra = model.index_bytes_per_token + (d.draft_kv_bytes_per_token() if last else 0)
        per_token = model.kv_bytes_per_token(d.kv_dtype, d.attention_tp)
        for rank in range(d.tp):
            at = (stage, rank)
            if d.available is not None:
                avail = _pick(d.available, at, d)
                terms: tuple[tuple[str, float, str], ...] = (("available", avail, "given"),)
            else:
                terms = _budget(d, at, weights[stage], peak * activation_factor, graphs, last)
                avail = sum(size for _, size, _ in terms)
            found.append(Rank(stage, rank, model, avail, per_token, extra, terms))
    return found


def smallest(found: Sequence[Rank], block_size: int) -> Rank:
    """The rank with the fewest tokens: the one that decides for all."""
    return min(found, key=lambda rank: (rank.tokens(block_size), rank.available))


def _budget(
    d: Deployment, at: tuple[int, int], weights: float, peak: float, graphs: float, last: bool
) -> tuple[tuple[str, float, str], ...]:
    assert d.gpu is not None
    own = _pick(d.weights, at, d) if d.weights is not None else weights
    outside = _pick(d.non_torch, at, d) if d.non_torch is not None else float(NON_TORCH_BYTES)
    active = _pick(d.activation, at, d) if d.activation is not None else peak
    captured = _pick(d.cuda_graphs, at, d) if d.cuda_graphs is not None else graphs
    draft = d.draft_weight_bytes() if last else 0.0
    terms = [
        ("memory", float(d.gpu.mem_bytes), d.gpu.label),
        (
            "left to others",
            -d.gpu.mem_bytes * (1 - d.utilization),
            f"1 - utilization {d.utilization:g}",
        ),
        ("weights", -own, _how(d.weights, f"{d.weight_dtype}, {d.tp} x {d.pp} GPUs")),
        ("draft weights", -draft, _how(None if d.draft_weights is None else (), "drafting layers")),
        ("non-torch", -outside, _how(d.non_torch, "prior: CUDA context, NCCL")),
        (
            "activation peak",
            -active,
            _how(
                d.activation,
                f"estimate for {d.max_num_batched_tokens} tokens, {d.max_num_seqs} sequences",
            ),
        ),
        ("CUDA graphs", -captured, _how(d.cuda_graphs, "prior")),
    ]
    return tuple(term for term in terms if term[1] or term[0] in ("memory", "weights"))


def _how(given: tuple[float, ...] | None, otherwise: str) -> str:
    return otherwise if given is None else "given"


def _pick(sizes: Sequence[float], at: tuple[int, int], d: Deployment) -> float:
    """The entry for (stage, rank): one for all, one per stage, or one per GPU (stage by stage)."""
    if len(sizes) == 1:
        return sizes[0]
    stage, rank = at
    return sizes[stage * d.tp + rank] if len(sizes) == d.gpus else sizes[stage]
