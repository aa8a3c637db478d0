"""Sampling: from a row of logits to the next token, each request by its own rule and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from minilab.facts.errors import InputError


@dataclass(frozen=True)
class SamplingParams:
    """How one request draws its tokens (vLLM's names).

    Attributes:
        temperature: 0 takes the most likely token; else logits are divided by it.
        top_k: keep only so many most likely tokens; 0 or -1 keeps all.
        top_p: keep the fewest tokens whose probabilities reach this sum.
        max_tokens: most tokens to put out.
        seed: makes the draws of this request repeatable, whatever else runs beside it.
        ignore_eos: do not stop at the end-of-text token.
        stop: strings that end the text, one or several; needs a tokenizer.
        stop_token_ids: tokens that end it, besides the end-of-text token.
        include_stop_str_in_output: leave in the text what ended it.

    Raises:
        InputError: a value outside its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_tokens: int = 16
    seed: int | None = None
    ignore_eos: bool = False
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature is {self.temperature}; it must be finite, 0 or more")
        if self.top_k < -1:
            raise InputError(f"top_k is {self.top_k}; 0 keeps all tokens, 1 or more that many")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if self.max_tokens < 1:
            raise InputError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if "" in stops:
            raise InputError("a stop string is empty; every text would end before it begins")
        object.__setattr__(self, "stop", stops)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))


def probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """The distribution that ``params`` draws from: float32 [vocab_size], for a row of logits.

    Temperature first, then top_k, then top_p on what is left, as vLLM does. Ties at the border of
    top_k all stay.
    """
    if params.temperature == 0:
        chosen = torch.zeros_like(logits)
        chosen[logits.argmax()] = 1.0
        return chosen
    scaled = logits / params.temperature
    if 0 < params.top_k < len(scaled):
        least = scaled.topk(params.top_k).values[-1]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    chances = scaled.softmax(dim=-1)
    if params.top_p < 1:
        ordered, order = chances.sort(descending=True)
        # A token stays if those before it do not reach top_p yet; the first one always stays.
        dropped = order[ordered.cumsum(0) - ordered >= params.top_p]
        chances[dropped] = 0.0
        chances = chances / chances.sum()
    return chances


class Sampler:
    """Draws with one generator per request, so that batching changes nobody's text."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._generators: dict[int, torch.Generator] = {}

    def draw(self, logits: torch.Tensor, params: SamplingParams, request_id: int) -> int:
        """The next token of a request, from its logits float32 [vocab_size]."""
        if params.temperature == 0:
            return int(logits.argmax())
        generator = self.generator(params, request_id, logits.device)
        return int(torch.multinomial(probabilities(logits, params), 1, generator=generator))

    def skip(
        self, params: SamplingParams, request_id: int, vocab_size: int, device: torch.device
    ) -> None:
        """A token of this request was drawn elsewhere, with a generator of the same seed.

        How far a draw moves a generator depends on the number of logits, not on their values.
        """
        if params.temperature != 0:
            self.draw(torch.zeros(vocab_size, device=device), params, request_id)

    @property
    def num_generators(self) -> int:
        """Requests that have drawn and not ended yet; 0 at idle."""
        return len(self._generators)

    def generator(
        self, params: SamplingParams, request_id: int, device: torch.device
    ) -> torch.Generator:
        """Where the draws of a request come from."""
        found = self._generators.get(request_id)
        if found is None:
            seed = self._seed * 1_000_003 + request_id if params.seed is None else params.seed
            found = torch.Generator(device).manual_seed(seed)
            self._generators[request_id] = found
        return found

    def forget(self, request_id: int) -> None:
        """A request has ended."""
        self._generators.pop(request_id, None)
