"""Deployment and capacity: from a model, GPUs and settings to KV tokens, explained byte by byte.

    one GPU:  utilization * memory - weights - draft - non-torch - activation - CUDA graphs = KV

Each GPU (a tensor-parallel rank of a pipeline stage) has its own budget and its own layers, the
scheduler counts blocks once for all: the smallest rank decides. What is not given is estimated, and
then the answer is a range. Sizes are bytes per GPU, lengths tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from minilab.facts.capacity import NON_TORCH_BYTES, activation_bytes
from minilab.facts.capacity_stages import stage_layers, stage_models, stage_weights
from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU
from minilab.facts.kv_layout import dtype_bytes
from minilab.facts.models import ModelSpec

GIB = 2**30
ACTIVATION_RANGE = (0.5, 2.0)
"""An activation peak that was not given lies between these multiples of its estimate."""

CUDA_GRAPH_RANGE = (0.0, float(GIB))
"""CUDA graphs that were not given: nothing (eager, or a version that does not count them) to 1 GiB,
a prior; vLLM logs 0.1 to 1 GiB for its default sizes. The estimate itself counts none."""


@dataclass(frozen=True)
class Deployment:
    """What is served where. A size that is None is estimated; a list has one entry per GPU.

    ``available``: bytes for KV, as an engine logged them; then the budget is not computed.
    ``dp``: attention replicas among the ``tp`` GPUs (DP attention), each with a KV of its own.
    ``draft``: a draft model that shares the GPUs; ``draft_layers``: layers of the model's own shape
    that draft (MTP, EAGLE). ``pp_layers``: the user's own split of the layers.
    """

    model: ModelSpec
    gpu: GPU | None = None
    kv_dtype: str = "bf16"
    weight_dtype: str = "native"
    tp: int = 1
    pp: int = 1
    dp: int = 1
    pp_layers: tuple[int, ...] | None = None
    block_size: int = 16
    utilization: float = 0.9
    available: tuple[float, ...] | None = None
    weights: tuple[float, ...] | None = None
    non_torch: tuple[float, ...] | None = None
    activation: tuple[float, ...] | None = None
    cuda_graphs: tuple[float, ...] | None = None
    draft: ModelSpec | None = None
    draft_layers: int = 0
    draft_weights: float | None = None
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "block_size", "max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a whole number, 1 or more")
        if self.tp % self.dp:
            raise InputError(f"dp is {self.dp}, tp is {self.tp}; dp must divide tp")
        if not 0 < self.utilization <= 1:
            raise InputError(
                f"utilization is {self.utilization}; give a share of GPU memory, 0 to 1"
            )
        if self.available is None and self.gpu is None:
            raise InputError("neither memory for KV nor a GPU given; give one of the two")
        for name in ("available", "weights", "non_torch", "activation", "cuda_graphs"):
            sizes = getattr(self, name)
            if sizes is not None and len(sizes) not in (1, self.pp, self.tp * self.pp):
                raise InputError(
                    f"{len(sizes)} sizes for {name}; give one, one per stage ({self.pp}) or one "
                    f"per GPU ({self.tp * self.pp})"
                )

    @property
    def attention_tp(self) -> int:
        """GPUs that share one replica's attention heads."""
        return self.tp // self.dp

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.pp

    def stages(self) -> list[ModelSpec]:
        """The model's stages, one ModelSpec each."""
        return stage_models(self.model, stage_layers(self.model.layers, self.pp, self.pp_layers))


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
        extra = model.index_bytes_per_token + (_draft_per_token(d) if last else 0)
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


def max_concurrency(deployment: Deployment, found: Sequence[Rank], length: int) -> float:
    """Sequences of ``length`` tokens that fit at once in one replica, as vLLM prints it ("1.56x").

    Blocks over blocks per request where every layer keeps every token; else bytes over the bytes
    of a sequence, windows and states counted as they fill.
    """
    if length < 1:
        raise InputError(f"max_len is {length}; give a whole number of tokens, 1 or more")
    d = deployment
    if uniform(d.model):
        blocks = min(rank.tokens(d.block_size) for rank in found) // d.block_size
        return blocks / math.ceil(length / d.block_size)
    return max(0.0, min(rank.available / rank.sequence_bytes(length, d) for rank in found))


def max_length(deployment: Deployment, found: Sequence[Rank], sequences: int) -> int | None:
    """Longest length, in whole blocks, at which ``sequences`` fit at once in one replica.

    None where nothing grows with the length. The model's own limit is not applied.
    """
    if sequences < 1:
        raise InputError(f"concurrency is {sequences}; give a whole number of 1 or more")
    lengths = [_rank_length(deployment, rank, sequences) for rank in found]
    known = [length for length in lengths if length is not None]
    return min(known) if known else None


def uniform(model: ModelSpec) -> bool:
    """Every layer keeps every token."""
    return not (model.window_layers or model.linear_layers or model.strides)


def _rank_length(d: Deployment, rank: Rank, sequences: int) -> int | None:
    if uniform(d.model):
        return rank.tokens(d.block_size) // d.block_size // sequences * d.block_size
    share = rank.available / sequences
    grows = rank.model.full_kv_bytes_per_token(d.kv_dtype, d.attention_tp) + rank.extra_per_token
    horizon = max(rank.model.window, d.block_size)
    if grows == 0 and rank.sequence_bytes(horizon, d) <= share:
        return None
    fits, too_long = 0, 1
    while rank.sequence_bytes(too_long * d.block_size, d) <= share:
        fits, too_long = too_long, too_long * 2
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if rank.sequence_bytes(middle * d.block_size, d) <= share:
            fits = middle
        else:
            too_long = middle
    return fits * d.block_size


def _budget(
    d: Deployment, at: tuple[int, int], weights: float, peak: float, graphs: float, last: bool
) -> tuple[tuple[str, float, str], ...]:
    assert d.gpu is not None
    own = _pick(d.weights, at, d) if d.weights is not None else weights
    outside = _pick(d.non_torch, at, d) if d.non_torch is not None else float(NON_TORCH_BYTES)
    active = _pick(d.activation, at, d) if d.activation is not None else peak
    captured = _pick(d.cuda_graphs, at, d) if d.cuda_graphs is not None else graphs
    draft = _draft_weights(d) if last else 0.0
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


def _draft_per_token(d: Deployment) -> int:
    """KV bytes per token and GPU of what drafts."""
    tp = d.attention_tp
    own = 0
    if d.draft_layers:
        full = replace(
            d.model, full_layers=d.draft_layers, window_layers=0, linear_layers=0, strides=()
        )
        own = full.kv_bytes_per_token(d.kv_dtype, tp)
        if d.model.index_layers:
            own += d.draft_layers * d.model.index_bytes_per_token // d.model.index_layers
    return own + (d.draft.kv_bytes_per_token(d.kv_dtype, tp) if d.draft else 0)


def _draft_weights(d: Deployment) -> float:
    """Bytes per GPU of what drafts: given, or the model's, or layers of the target's own shape.

    A drafting layer also has a projection of two hidden vectors to one (2 * hidden^2).
    """
    if d.draft_weights is not None:
        return d.draft_weights
    size = d.draft.weight_bytes("native") / d.tp if d.draft else 0.0
    if d.draft_layers:
        m = d.model
        dense, expert = m.weight_dtypes(d.weight_dtype)
        layer = (m.body_params / m.layers + 2 * m.hidden**2) * dtype_bytes(dense)
        if m.moe_layers:
            layer += m.routed_params / m.moe_layers * dtype_bytes(expert)
        size += d.draft_layers * layer / d.tp
    return size
