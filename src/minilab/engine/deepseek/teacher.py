"""Teacher forcing: the model and its MTP module over whole windows of a text, without a cache.

What comes out where the text is given says how good the model is and how often its MTP module
would be right, at every position at once; generation visits one position a step, and the model's
own texts at that.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import embedding

from minilab.engine.deepseek.attention import LatentStep, UpProjection, expanded
from minilab.engine.deepseek.layer import DeepseekLayer
from minilab.engine.deepseek.model import DeepseekDecoder
from minilab.facts.errors import InputError

WINDOWS = 16
"""Windows that are computed together."""


@dataclass(frozen=True)
class Forced:
    """What was found at each position of W windows of L tokens.

    Attributes:
        nll: float32 [W, L - 1], -ln p of each token but the first, given those before it.
        confidence: float32 [W, L - 1], the model's largest probability for the token after the
            next, p_max, where the MTP module guesses it.
        right: bool [W, L - 1], whether the module's likeliest token is the model's there.
        overlap: float32 [W, L - 1], sum of min(p, q): how often a draw from the module's odds q
            would be kept under the model's odds p.
    """

    nll: torch.Tensor
    confidence: torch.Tensor
    right: torch.Tensor
    overlap: torch.Tensor


@torch.inference_mode()
def dense_logits(model: DeepseekDecoder, windows: torch.Tensor) -> torch.Tensor:
    """The model's logits float32 [W, L, vocab_size] for windows int64 [W, L]."""
    features = _features(model, windows)
    return model.head(features.flatten(0, 1)).float().view(*windows.shape, -1)


@torch.inference_mode()
def mtp_logits(model: DeepseekDecoder, windows: torch.Tensor) -> torch.Tensor:
    """The module's logits float32 [W, L - 1, vocab_size]: row i, of token i + 2.

    Raises:
        InputError: the checkpoint has no MTP module.
    """
    return _ahead(model, windows, _features(model, windows))


@torch.inference_mode()
def teacher_forced(
    model: DeepseekDecoder, windows: torch.Tensor, temperature: float = 1.0
) -> Forced:
    """Measure the model and its MTP module on windows int64 [W, L].

    ``temperature``: of the odds in ``overlap``; ``confidence`` is always that of temperature 1.

    Raises:
        InputError: the checkpoint has no MTP module.
    """
    parts = [_forced(model, part, temperature) for part in _cut(windows, WINDOWS)]
    return Forced(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _forced(
    model: DeepseekDecoder, windows: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, ...]:
    features = _features(model, windows)
    logits = model.head(features.flatten(0, 1)).float().view(*windows.shape, -1)
    guesses = _ahead(model, windows, features)
    nll = -logits[:, :-1].log_softmax(-1).gather(-1, windows[:, 1:, None])[..., 0]
    judge = logits[:, 1:]
    confidence = judge.softmax(-1).amax(-1)
    right = judge.argmax(-1) == guesses.argmax(-1)
    p, q = (judge / temperature).softmax(-1), (guesses / temperature).softmax(-1)
    return nll, confidence, right, torch.minimum(p, q).sum(-1)


def _features(model: DeepseekDecoder, windows: torch.Tensor) -> torch.Tensor:
    """Normed features [W, L, hidden_size]."""
    x = embedding(windows.flatten(), model.embedding)
    for layer in model.layers:
        x = _layer(model, layer, x, windows.shape[1], first=0)
    return model.normed(x).view(*windows.shape, -1)


def _ahead(model: DeepseekDecoder, windows: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    module = model.mtp
    if module is None:
        raise InputError("this checkpoint has no MTP module to measure")
    embedded = embedding(windows[:, 1:], model.embedding)
    x = module.join(embedded.flatten(0, 1), features[:, :-1].flatten(0, 1))
    x = _layer(model, module.layer, x, windows.shape[1] - 1, first=1)
    return model.head(module.feature(x)).float().view(*windows[:, 1:].shape, -1)


def _layer(
    model: DeepseekDecoder, layer: DeepseekLayer, x: torch.Tensor, length: int, first: int
) -> torch.Tensor:
    """A layer over windows of ``length`` rows; the positions begin with ``first``."""
    positions = torch.arange(first, first + length, device=x.device).repeat(len(x) // length)
    step: LatentStep = _Windows(length)
    return layer(x, step, x, model.rotary, model.rotary.tables(positions))


class _Windows:
    """A ``LatentStep`` in which each window sees itself only."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __call__(
        self, query: torch.Tensor, latent: torch.Tensor, up: UpProjection, cache: torch.Tensor
    ) -> torch.Tensor:
        """See ``LatentStep``; there is no cache."""
        scale = query.shape[-1] ** -0.5
        pairs = zip(_cut(query, self._length), _cut(latent, self._length), strict=True)
        return torch.cat([expanded(asked, seen, up, scale) for asked, seen in pairs])


def _cut(x: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
    """Pieces of ``size`` rows, the last one shorter."""
    return torch.split(x, size)
