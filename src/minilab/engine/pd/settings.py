"""PdSettings: everything that both processes of a split must agree on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from minilab.core.config import SchedulerConfig
from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name

TRANSPORTS = ("gloo", "nccl", "nixl")
FIRST_TOKEN = ("prefill", "decode")
ON_FAILURE = ("fail", "recompute")
_CHOICES = {"transport": TRANSPORTS, "first_token": FIRST_TOKEN, "on_failure": ON_FAILURE}


def _default_limits() -> SchedulerConfig:
    return SchedulerConfig(num_blocks=256, max_num_batched_tokens=512, max_num_seqs=64)


@dataclass(frozen=True)
class PdSettings:
    """One prefill and one decode engine.

    Attributes:
        model, dtype, device, seed: see ``load.load_llm``. With ``nccl`` the prefill process takes
            cuda:0 and the decode process cuda:1; otherwise both take ``device``.
        prefill, decode: limits of the two schedulers; their block sizes are equal.
        transport: ``gloo`` (through host memory, also for two processes on one GPU), ``nccl`` (two
            GPUs; untested until two cards have run it) or ``nixl`` (the decode process reads).
        gather: copy the blocks of a request into one buffer before they are sent; else each block
            of each layer is sent from where it lies. NIXL always does the latter.
        first_token: which side puts it out; ``decode`` computes the last prompt token again.
        on_failure: what the decode side does when a transfer breaks: ``fail`` the request, or
            ``recompute`` its prompt.
        timeout: seconds. So long may a transfer last, may blocks wait on the prefill side for a
            decode side that gives no sign of life, and may a process be silent.

    Raises:
        InputError: an unknown word, a timeout that is none, block sizes that differ.
    """

    model: str = "tiny"
    dtype: str = "auto"
    device: str = "auto"
    seed: int = 0
    prefill: SchedulerConfig = field(default_factory=_default_limits)
    decode: SchedulerConfig = field(default_factory=_default_limits)
    transport: str = "gloo"
    gather: bool = True
    first_token: str = "prefill"
    on_failure: str = "fail"
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        if not 0 < self.timeout < float("inf"):
            raise InputError(f"timeout is {self.timeout}; give seconds above 0")
        sizes = self.prefill.block_size, self.decode.block_size
        if sizes[0] != sizes[1]:
            raise InputError(
                f"block_size is {sizes[0]} on the prefill side and {sizes[1]} on the decode side; "
                "blocks are sent as they are, so give both the same"
            )

    @property
    def prefill_puts_out(self) -> bool:
        """Whether the first token comes from the prefill side."""
        return self.first_token == "prefill"

    def to_json(self) -> str:
        """For the command line of a process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PdSettings:
        """The reverse of ``to_json``."""
        values: dict[str, Any] = json.loads(text)
        for side in ("prefill", "decode"):
            values[side] = SchedulerConfig(**values[side])
        return cls(**values)
