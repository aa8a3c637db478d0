"""Replies: the JSON of OpenAI's two endpoints, whole and as chunks of a stream.

The chunk that ends a text also carries its last piece, and the first chunk of a chat carries the
role *and* text: a client that takes times by chunks then sees one chunk per token, none without.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True)
class Usage:
    """What a request cost, in tokens; ``cached`` of the prompt came from the prefix cache."""

    prompt: int
    output: int
    cached: int

    def to_dict(self) -> Json:
        """OpenAI's form."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.output,
            "total_tokens": self.prompt + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class Reply(Protocol):
    """Writes one request's reply, in the words of its endpoint."""

    @property
    def id(self) -> str:
        """Of the reply, in the words of its endpoint."""
        ...

    def whole(self, text: str, reason: str, usage: Usage) -> Json:
        """The reply in one piece."""
        ...

    def chunk(self, text: str, reason: str | None, first: bool) -> Json:
        """A piece of it; ``reason`` with the last one."""
        ...

    def only_usage(self, usage: Usage) -> Json:
        """The event after the last piece, if the client asked for it."""
        ...


@dataclass(frozen=True)
class CompletionReply:
    """``/v1/completions``."""

    model: str
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, reason: str, usage: Usage) -> Json:
        """See ``Reply``."""
        return self.chunk(text, reason, True) | {"usage": usage.to_dict()}

    def chunk(self, text: str, reason: str | None, first: bool) -> Json:
        """See ``Reply``."""
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return self._around([choice])

    def only_usage(self, usage: Usage) -> Json:
        """See ``Reply``."""
        return self._around([]) | {"usage": usage.to_dict()}

    def _around(self, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


@dataclass(frozen=True)
class ChatReply:
    """``/v1/chat/completions``."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, reason: str, usage: Usage) -> Json:
        """See ``Reply``."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return self._around("chat.completion", [choice]) | {"usage": usage.to_dict()}

    def chunk(self, text: str, reason: str | None, first: bool) -> Json:
        """See ``Reply``."""
        delta: Json = {"role": "assistant"} if first else {}
        delta["content"] = text
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._around("chat.completion.chunk", [choice])

    def only_usage(self, usage: Usage) -> Json:
        """See ``Reply``."""
        return self._around("chat.completion.chunk", []) | {"usage": usage.to_dict()}

    def _around(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
