"""SchedulerConfig: the knobs of one scheduler, under vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass

POLICIES = ("mixed", "prefill-first", "decode-first")
PREFIX_INDEXES = ("hash-chain", "radix")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits and policy of a scheduler. Sizes are tokens, except ``num_blocks``.

    Attributes:
        num_blocks: KV blocks in the pool.
        block_size: tokens per block.
        max_num_batched_tokens: token budget of one step.
        max_num_seqs: requests that may run at once.
        policy: ``mixed`` shares each step between decodes and prompt chunks (vLLM v1, Sarathi);
            ``prefill-first`` stops all decodes while a prompt can be computed (vLLM v0, Orca);
            ``decode-first`` starts no prompt before every running request is done
            (FasterTransformer).
        enable_prefix_caching: keep and reuse KV blocks by content.
        prefix_index: how content is found: ``hash-chain`` (vLLM) or ``radix`` (SGLang).

    Raises:
        ValueError: a limit below 1, an unknown policy, or a budget below ``max_num_seqs``, with
            which running requests could not all decode in one step.
    """

    num_blocks: int
    block_size: int = 16
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    policy: str = "mixed"
    enable_prefix_caching: bool = True
    prefix_index: str = "hash-chain"

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.policy not in POLICIES:
            raise ValueError(f"policy is {self.policy!r}; known are {', '.join(POLICIES)}")
        if self.prefix_index not in PREFIX_INDEXES:
            names = ", ".join(PREFIX_INDEXES)
            raise ValueError(f"prefix_index is {self.prefix_index!r}; known are {names}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, below max_num_seqs "
                f"{self.max_num_seqs}: running requests could not all decode in one step; "
                "raise the budget or lower max_num_seqs"
            )
