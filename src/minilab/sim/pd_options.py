"""PdOptions: how two pools hand requests over, apart from what the wires are."""

from __future__ import annotations

from dataclasses import dataclass

from minilab.facts.cost_transfer import DESCRIPTOR_SECONDS
from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name

RESERVE = ("prefill-end", "arrival")
FIRST_TOKEN = ("prefill", "decode")
ON_FAILURE = ("recompute", "fail")


@dataclass(frozen=True, slots=True)
class PdOptions:
    """The handing-over of KV.

    Attributes:
        reserve: when the decode side takes blocks: at ``prefill-end`` (it pulls, as vLLM with
            NIXL) or at ``arrival``, before the prompt may start (it is pushed to, as SGLang).
        overlap: send layer by layer while the prompt is computed; needs ``reserve="arrival"``.
        gather: copy scattered blocks into one staging buffer, send that, and scatter it again.
        first_token: which side puts it out; ``decode`` recomputes the last prompt token.
        headroom_tokens: tokens kept free for each request on the decode side when blocks are
            reserved (SGLang's ``num_reserved_decode_tokens``).
        alpha: seconds per descriptor.
        max_transfers: transfers that may leave an instance at once; None: any number.
        failure_rate: share of transfers that break (a switchable fault).
        on_failure: ``recompute`` the prompt on the decode side, or ``fail`` the request.
        seed: of the failures.

    Raises:
        InputError: an unknown word, a number outside its limits, or overlap without a destination.
    """

    reserve: str = "prefill-end"
    overlap: bool = False
    gather: bool = False
    first_token: str = "prefill"
    headroom_tokens: int = 0
    alpha: float = DESCRIPTOR_SECONDS
    max_transfers: int | None = None
    failure_rate: float = 0.0
    on_failure: str = "recompute"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (
            ("reserve", RESERVE),
            ("first_token", FIRST_TOKEN),
            ("on_failure", ON_FAILURE),
        ):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        if self.overlap and self.reserve != "arrival":
            raise InputError(
                "overlap needs reserve='arrival': KV can only leave during the prefill if the "
                f"decode side has blocks for it by then, not at {self.reserve!r}"
            )
        if self.headroom_tokens < 0 or not 0 <= self.alpha < 1:
            raise InputError(
                f"headroom_tokens {self.headroom_tokens}, alpha {self.alpha}; give 0 or more "
                "tokens, and seconds from 0 to below 1"
            )
        if not 0 <= self.failure_rate <= 1:
            raise InputError(f"failure_rate is {self.failure_rate}; give a share from 0 to 1")
