"""What goes over the wire: request bodies in OpenAI's form, and what comes back as events (SSE).

Beyond OpenAI's fields a body has what vLLM and SGLang know and a benchmark needs: ``ignore_eos``,
so that lengths are the workload's, ``cache_salt`` (a tenant's own prefix cache), and a token count
in every chunk (``continuous_usage_stats``). ``Target.plain`` leaves them out for servers that
refuse fields they do not know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from minilab.facts.errors import InputError

MAX_LINE = 1 << 20
"""A line of events longer than this (bytes) is no answer of a language model."""


@dataclass(frozen=True)
class Target:
    """Which server and model, and in what form it is asked.

    Attributes:
        url: of the server, with or without ``/v1``.
        chat: ask ``/v1/chat/completions``, else ``/v1/completions``.
        plain: send only the fields of OpenAI's own API.
        key: sent as a bearer token; never shown.

    Raises:
        InputError: not an http(s) address.
    """

    url: str
    model: str
    chat: bool = False
    plain: bool = False
    key: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(f"url {self.url!r}; give one such as http://127.0.0.1:8000")
        if "@" in parts.netloc:
            raise InputError("url holds a name or password; give the key with --api-key-env")

    @property
    def endpoint(self) -> str:
        """The address that is asked."""
        base = self.url.rstrip("/").removesuffix("/v1")
        return f"{base}/v1/{'chat/' if self.chat else ''}completions"

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of each request."""
        own = {"Content-Type": "application/json"}
        return own if self.key is None else {**own, "Authorization": f"Bearer {self.key}"}

    def body(self, prompt: str | list[int], max_tokens: int, salt: str | None = None) -> bytes:
        """The request's JSON. A prompt is text, or token ids where the endpoint takes them."""
        asked: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "temperature": 0}
        if self.chat:
            asked["messages"] = [{"role": "user", "content": prompt}]
        else:
            asked["prompt"] = prompt
        asked["stream"] = True
        asked["stream_options"] = {"include_usage": True}
        if not self.plain:
            asked["stream_options"]["continuous_usage_stats"] = True
            asked["ignore_eos"] = True
            if salt is not None:
                asked["cache_salt"] = salt
        return json.dumps(asked, separators=(",", ":")).encode()


class EventLines:
    """The ``data:`` lines of a stream of server-sent events, however the network cut it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """What became complete with ``data``; comments (pings) and other fields are dropped.

        Raises:
            ValueError: a line without end, or bytes that are no UTF-8.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise ValueError(f"an event of more than {MAX_LINE} bytes")
        found = (line.rstrip(b"\r") for line in lines if line.startswith(b"data:"))
        return [line[5:].strip().decode() for line in found]


class Event(NamedTuple):
    """One chunk of an answer.

    ``choice``: it belongs to the answer (and not only to its bill). ``text``: it looks as if it
    carried output. ``usage``: OpenAI's counts, if it has them. ``error``: what the server says went
    wrong in the middle of the stream.
    """

    choice: bool
    text: bool
    usage: dict[str, Any] | None
    error: str | None


def event(data: str, chat: bool) -> Event:
    """A chunk from its JSON.

    In a completion the empty text of an unfinished character or of a special token counts as
    output; in a chat the first chunk brings the role and no token.

    Raises:
        ValueError: not JSON, or not an object.
    """
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("a chunk that is no JSON object")
    if (error := value.get("error")) is not None:
        said = error.get("message") if isinstance(error, dict) else error
        return Event(False, False, None, str(said))
    usage = value.get("usage")
    usage = usage if isinstance(usage, dict) else None
    listed = value.get("choices")
    choice = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(choice, dict):
        return Event(False, False, usage, None)
    if not chat:
        text = bool(choice.get("text")) or choice.get("finish_reason") is None
        return Event(True, text, usage, None)
    delta = choice.get("delta") or {}
    names = ("content", "reasoning_content", "reasoning", "tool_calls")
    return Event(True, any(delta.get(name) for name in names), usage, None)
