"""CapacityReport: the answer to "how much fits", with its terms, its range and its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minilab.facts.capacity_flags import launch_flags
from minilab.facts.capacity_limits import max_concurrency, max_length, uniform
from minilab.facts.capacity_plan import GIB, Deployment
from minilab.facts.capacity_ranks import (
    ACTIVATION_RANGE,
    CUDA_GRAPH_RANGE,
    Rank,
    ranks,
    smallest,
)
from minilab.facts.errors import InputError
from minilab.facts.kv_pool import KVPool, kv_pool


@dataclass(frozen=True)
class CapacityReport:
    """Capacity of one deployment. Bytes per GPU; tokens of one replica (``dp`` of them).

    ``low`` and ``high`` are the ranks at the ends of what was not given; None where all was.
    """

    deployment: Deployment
    max_len: int
    concurrency: int
    found: tuple[Rank, ...]
    low: tuple[Rank, ...] | None
    high: tuple[Rank, ...] | None

    @property
    def deciding(self) -> Rank:
        """The GPU with the fewest tokens."""
        return smallest(self.found, self.deployment.block_size)

    @property
    def tokens(self) -> int:
        """KV tokens in whole blocks, every layer charged for every token: what engines print."""
        return self.deciding.tokens(self.deployment.block_size)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes per token on the GPU that has most (drafts and indexer left out)."""
        return max(rank.per_token for rank in self.found)

    @property
    def pool(self) -> KVPool | None:
        """vLLM's block pool on the deciding GPU."""
        d = self.deployment
        model, tp = self.deciding.model, d.attention_tp
        return kv_pool(model, d.kv_dtype, tp, d.block_size, d.draft_layers)

    def as_dict(self) -> dict[str, Any]:
        """What ``minilab capacity --json`` prints: plain JSON values."""
        d, rank = self.deployment, self.deciding
        per_request = rank.sequence_bytes(self.max_len, d)
        length = max_length(d, self.found, self.concurrency)
        return {
            "model": d.model.name,
            "gpus": d.gpus,
            "tp": d.tp,
            "pp": d.pp,
            "dp_attention": d.dp,
            "kv_dtype": d.kv_dtype,
            "block_size": d.block_size,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "extra_bytes_per_token": rank.extra_per_token,
            "available_bytes": rank.available,
            "available_gib": rank.available / GIB,
            "tokens": self.tokens,
            "blocks": self.tokens // d.block_size,
            "tokens_all_replicas": self.tokens * d.dp,
            "max_len_asked": self.max_len,
            "max_concurrency": max_concurrency(d, self.found, self.max_len),
            "concurrency": self.concurrency,
            "max_len": length,
            "model_max_len": d.model.max_len or None,
            "sequence": {
                "bytes": per_request,
                "fixed_bytes": self.fixed_bytes,
                "slope_bytes_per_token": self.slope,
            },
            "range": self.range,
            "deciding": {"stage": rank.stage, "rank": rank.rank, "layers": rank.model.layers},
            "terms": [
                {"name": name, "bytes": size, "gib": size / GIB, "how": how}
                for name, size, how in rank.terms
            ],
            "vllm_pool": self._pool_dict(),
            "notes": self.notes(),
            "flags": launch_flags(d, self.max_len, rank.available, self.tokens),
        }

    @property
    def slope(self) -> int:
        """Bytes that each token adds on the deciding GPU once every window is full."""
        d, rank = self.deployment, self.deciding
        full = rank.model.full_kv_bytes_per_token(d.kv_dtype, d.attention_tp)
        return full + rank.extra_per_token

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a sequence that do not grow with it: full windows and linear states."""
        d, model = self.deployment, self.deciding.model
        window = model.window_kv_bytes_per_token(d.kv_dtype, d.attention_tp) * model.window
        return window + model.state_bytes(d.attention_tp)

    @property
    def range(self) -> dict[str, list[float]] | None:
        """[least, most] where the activation peak was not given."""
        if self.low is None or self.high is None:
            return None
        d, ends = self.deployment, (self.low, self.high)
        return {
            "available_gib": [smallest(end, d.block_size).available / GIB for end in ends],
            "tokens": [smallest(end, d.block_size).tokens(d.block_size) for end in ends],
            "max_concurrency": [max_concurrency(d, end, self.max_len) for end in ends],
        }

    def _pool_dict(self) -> dict[str, Any] | None:
        pool, d = self.pool, self.deployment
        if pool is None:
            return None
        avail, chunk = self.deciding.available, d.max_num_batched_tokens
        together = pool.concurrency(avail, self.max_len, chunk)
        return {
            "groups": [
                {"kind": g.kind, "tables": g.count, "layers": g.layers, "block_size": g.block_size}
                for g in pool.groups
            ],
            "page_bytes": pool.page_bytes,
            "block_bytes": pool.block_bytes,
            "padding_layers": pool.padding_layers,
            "blocks": pool.blocks(avail),
            "blocks_per_request": pool.request_blocks(self.max_len, chunk),
            "printed_tokens": pool.printed_tokens(avail),
            "printed_tokens_group_aware": int(together * self.max_len),
            "printed_concurrency": together,
        }

    def notes(self) -> list[str]:
        """Why the number is what it is, one sentence each."""
        d, m, said = self.deployment, self.deployment.model, []
        if d.gpus > 1:
            said.append(
                "The scheduler counts blocks once for all GPUs: the minimum over ranks and stages "
                "decides, and a rank that logs more GiB keeps the difference unused."
            )
        if m.kv_lora and d.attention_tp > 1:
            said.append(
                f"MLA: every tensor-parallel rank keeps the whole latent, so tp={d.attention_tp} "
                "buys no KV tokens per GPU; DP attention does."
            )
        elif m.kv_heads and d.attention_tp > m.kv_heads:
            said.append(
                f"{m.kv_heads} KV heads on {d.attention_tp} ranks: a head is never split, so "
                "each is kept on several ranks."
            )
        if d.dp > 1:
            said.append(f"DP attention: {d.dp} replicas, each with the tokens above for itself.")
        if not uniform(m):
            said.append(
                "Not every layer keeps every token: 'tokens' charges them all (what engines "
                "printed before their capacity was group-aware); max_concurrency and max_len use "
                f"{self.fixed_bytes:,} B fixed + {self.slope:,} B a token for each sequence."
            )
        if m.index_layers:
            said.append(
                f"The sparse-attention indexer keeps {m.index_bytes_per_token:,} B a token more."
            )
        if m.strides:
            said.append("Compressed KV: the compressors' own states are not counted.")
        if self.pool is not None and self.pool.padding_layers:
            said.append(
                f"vLLM pads its groups with {self.pool.padding_layers} layers that hold nothing."
            )
        if m.max_len and self.max_len > m.max_len:
            said.append(f"{self.max_len:,} tokens is past the model's own limit, {m.max_len:,}.")
        if self.range is not None:
            said.append(
                "A range: the activation peak was estimated; give it (and the CUDA graphs) as the "
                "engine's log states them to narrow it."
            )
        return said


def capacity(deployment: Deployment, max_len: int = 8192, concurrency: int = 1) -> CapacityReport:
    """The capacity of ``deployment`` for requests of ``max_len`` tokens (and for ``concurrency``).

    Raises InputError when no GPU memory is left for KV, or for a model that keeps no KV at all.
    """
    middle = ranks(deployment)
    if not any(rank.per_token for rank in middle) and not deployment.model.linear_layers:
        raise InputError(f"{deployment.model.name} keeps no KV; there is no capacity to compute")
    _refuse_if_full(deployment, middle)
    low = high = None
    d = deployment
    if d.available is None and d.activation is None:
        low = tuple(ranks(d, ACTIVATION_RANGE[1], CUDA_GRAPH_RANGE[1]))
        high = tuple(ranks(d, ACTIVATION_RANGE[0], CUDA_GRAPH_RANGE[0]))
    return CapacityReport(deployment, max_len, concurrency, tuple(middle), low, high)


def _refuse_if_full(d: Deployment, found: Sequence[Rank]) -> None:
    worst = smallest(found, d.block_size)
    if worst.available > 0 or d.available is not None:
        return
    assert d.gpu is not None
    needed = -sum(size for name, size, _ in worst.terms if name not in ("memory", "left to others"))
    have = d.gpu.mem_bytes * d.utilization
    raise InputError(
        f"{d.model.name} in {d.weight_dtype} on {d.gpus} x {d.gpu.name} (tp={d.tp}, pp={d.pp}) "
        f"needs {needed / GIB:.2f} GiB per GPU before any KV, utilization {d.utilization:g} leaves "
        f"{have / GIB:.2f} GiB; use more GPUs (tp, pp), quantised weights, fewer batched tokens or "
        "a higher utilization"
    )
