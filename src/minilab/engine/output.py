"""Output: what a request came to, as it leaves the engine."""

from __future__ import annotations

from dataclasses import dataclass

from minilab.engine.generation import Generation


@dataclass(frozen=True)
class Output:
    """What a request came to.

    Attributes:
        prompt: the text that was asked, if it was a text.
        text: the generated text, without what ended it; "" without a tokenizer.
        token_ids: the generated tokens, the one that ended it included.
        finish_reason: "length", or "stop" for the end-of-text token or a stop of the request's own.
        stop_reason: in that last case, the stop string or token id.
        num_cached_tokens: prompt tokens whose KV was found in the prefix cache.
    """

    prompt: str | None
    prompt_token_ids: list[int]
    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: int | str | None
    num_cached_tokens: int

    @classmethod
    def of(cls, done: Generation, num_cached_tokens: int, prompt: str | None = None) -> Output:
        """The output of a generation that has ended; ``num_cached_tokens`` below 0 counts as 0."""
        return cls(
            prompt=prompt,
            prompt_token_ids=done.tokens[: done.num_prompt_tokens],
            text=done.text,
            token_ids=done.output,
            finish_reason=done.finish_reason,
            stop_reason=done.stop_reason,
            num_cached_tokens=max(0, num_cached_tokens),
        )
