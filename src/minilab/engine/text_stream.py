"""TextStream: the text of a growing list of tokens, piece by piece, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """What a stream reads of a tokenizer (``tokenizer.Tokenizer`` has it)."""

    @property
    def byte_level(self) -> bool: ...
    @property
    def special_ids(self) -> frozenset[int]: ...
    def token_bytes(self, token_id: int) -> bytes: ...
    def decode(self, ids: Sequence[int]) -> str: ...


class TextStream:
    """Turns one request's tokens into text.

    The pieces joined are ``decode`` of all tokens. With a byte-level vocabulary that is exact: the
    bytes go through an incremental UTF-8 decoder, which keeps at most three back. Other
    vocabularies are decoded in a window whose start moves to the last clean cut.
    """

    def __init__(self, tokenizer: Detokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._window: list[int] = []
        self._shown = 0  # leading tokens of the window whose text is out

    def push(self, token_id: int) -> str:
        """The text that ``token_id`` completes: often a word, "" inside a character."""
        if token_id in self._tokenizer.special_ids:
            return ""
        if self._tokenizer.byte_level:
            return self._utf8.decode(self._tokenizer.token_bytes(token_id))
        self._window.append(token_id)
        # A character has at most four bytes: after four tokens without one, the bytes are none.
        return self._rest(hold=len(self._window) - self._shown < 4)

    def finish(self) -> str:
        """What is left: U+FFFD for a character that never became whole."""
        if self._tokenizer.byte_level:
            return self._utf8.decode(b"", final=True)
        return self._rest(hold=False)

    def _rest(self, hold: bool) -> str:
        decode = self._tokenizer.decode
        before, whole = decode(self._window[: self._shown]), decode(self._window)
        if len(whole) <= len(before) or (hold and whole.endswith("\ufffd")):
            return ""
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        return whole[len(before) :]
