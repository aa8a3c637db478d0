"""Prompts of one call, as a caller likes to write them, and what the engine makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError

if TYPE_CHECKING:
    from minilab.engine.tokenizer import Tokenizer

Prompt = str | Sequence[int]
"""A text, or its token ids."""


def listed(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """The prompts; one prompt is a list of one."""
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], int):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def rules_for(
    params: SamplingParams | Sequence[SamplingParams], count: int
) -> list[SamplingParams]:
    """The sampling parameters of each of ``count`` prompts.

    Raises:
        InputError: a list of another length.
    """
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise InputError(f"{count} prompts, but {len(params)} sampling parameters; give one each")
    return list(params)


def token_ids(prompt: Prompt, tokenizer: Tokenizer | None) -> Sequence[int]:
    """The token ids of ``prompt``.

    Raises:
        InputError: a text, but no tokenizer.
    """
    if not isinstance(prompt, str):
        return prompt
    if tokenizer is None:
        raise InputError("the prompt is a text, but there is no tokenizer; give token ids")
    return tokenizer.encode(prompt)
