"""Generation: the tokens and the text of one request, and when it ends."""

from __future__ import annotations

from collections.abc import Container

from minilab.engine.sampling import SamplingParams
from minilab.engine.stop_strings import StopStrings
from minilab.engine.text_stream import Detokenizer, TextStream


class Generation:
    """One request's text while it grows.

    Attributes:
        tokens: prompt, then output, as ids.
        text: the output so far, as far as it may be shown: no half character and no part of a stop
            string. It only ever grows. Stays "" without a tokenizer.
        finish_reason: "" while it runs; "length"; "stop" for an end token or a stop string.
        stop_reason: the stop string, or the token of ``stop_token_ids``, that ended it.
    """

    def __init__(
        self, prompt: list[int], params: SamplingParams, tokenizer: Detokenizer | None = None
    ) -> None:
        self.tokens = prompt
        self.num_prompt_tokens = len(prompt)
        self.params = params
        self.text = ""
        self.finish_reason = ""
        self.stop_reason: int | str | None = None
        self._stream = None if tokenizer is None else TextStream(tokenizer)
        self._stops = StopStrings(params.stop, params.include_stop_str_in_output)

    @property
    def output(self) -> list[int]:
        """The ids that were generated, the one that ended the text included."""
        return self.tokens[self.num_prompt_tokens :]

    def push(self, token: int, eos_token_ids: Container[int]) -> None:
        """Take the next token; sets ``finish_reason`` if it is the last."""
        self.tokens.append(token)
        params = self.params
        if token in eos_token_ids and not params.ignore_eos:
            self._end("stop", token)
        elif token in params.stop_token_ids:
            self.stop_reason = token
            self._end("stop", token)
        else:
            self._show(token)
            if self._stops.found is not None:
                self.finish_reason, self.stop_reason = "stop", self._stops.found
            elif len(self.tokens) - self.num_prompt_tokens >= params.max_tokens:
                self._end("length")

    def _show(self, token: int) -> None:
        if self._stream is not None:
            self.text += self._stops.push(self._stream.push(token))

    def _end(self, reason: str, last: int | None = None) -> None:
        """The text of a token that ends a text is shown only if asked for, as in vLLM."""
        self.finish_reason = reason
        if last is not None and self.params.include_stop_str_in_output:
            self._show(last)
        if self._stream is not None:
            self.text += self._stops.push(self._stream.finish()) + self._stops.finish()
