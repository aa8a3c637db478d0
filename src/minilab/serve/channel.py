"""Channel: what the engine has said about one request and its handler has not passed on yet.

A reader that is slower than the engine gets larger pieces instead of more of them: what waits is
one text, which cannot grow beyond the request's own ``max_tokens``. The engine never waits for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from minilab.serve.api_error import ApiError


class Update(NamedTuple):
    """News of one request.

    Attributes:
        number: of the request.
        text: what may be shown since the last news.
        tokens: that came out since then.
        cached: prompt tokens found in the prefix cache.
        reason: "stop" or "length" with the last news of a request that ran to its end.
        stop_reason: the stop string or token that ended it.
        error: what ended it instead.
    """

    number: int
    text: str = ""
    tokens: int = 0
    cached: int = 0
    reason: str | None = None
    stop_reason: int | str | None = None
    error: ApiError | None = None


@dataclass(frozen=True)
class Piece:
    """All news since the last piece."""

    text: str
    tokens: int
    cached: int
    reason: str | None


class Channel:
    """One request's news, from the event loop's side of the engine.

    Attributes:
        done: the engine has nothing more to say.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.done = False
        self._texts: list[str] = []
        self._tokens = 0
        self._cached = 0
        self._reason: str | None = None
        self._error: ApiError | None = None
        self._news = asyncio.Event()

    def put(self, update: Update) -> None:
        """Take news in; never blocks."""
        if self.done:
            return
        self._texts.append(update.text)
        self._tokens += update.tokens
        self._cached = update.cached
        self._reason = update.reason
        self.done = update.reason is not None
        if update.error is not None:
            self.fail(update.error)
        self._news.set()

    def fail(self, error: ApiError) -> None:
        """End the request with ``error``, after the news that came before it."""
        if not self.done:
            self.done = True
            self._error = error
            self._news.set()

    async def next(self) -> Piece:
        """Wait for news and take all there is.

        Raises:
            ApiError: the request was ended, by a limit or because the engine broke.
        """
        await self._news.wait()
        self._news.clear()
        if not self._tokens and self._error is not None:
            raise self._error
        piece = Piece("".join(self._texts), self._tokens, self._cached, self._reason)
        self._texts, self._tokens = [], 0
        if self._error is not None:
            self._news.set()  # told by the next call
        return piece
