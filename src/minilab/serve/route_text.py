"""A request's prompt as content segments, from the text alone: the proxy has no tokenizer.

A segment is a page of text, named by a hash of it. Pages are as long as a KV block would be if
every token had ``chars_per_token`` characters; token ids are cut exactly. So a router knows which
prefix two prompts share, to a page; how many tokens that is, it only estimates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from minilab.facts.request import Segment

PAGE = 16
"""Tokens of a page."""
MOST_PAGES = 2048
"""Pages that are looked at; what stands behind them decides nothing."""


def segments(body: Mapping[str, Any], chars_per_token: float) -> tuple[Segment, ...]:
    """(content id, tokens) of a request's body, in order; at least one."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if isinstance(prompt, list):
        pieces = [str(prompt[at : at + PAGE]) for at in range(0, len(prompt), PAGE)]
        lengths = [len(prompt[at : at + PAGE]) for at in range(0, len(prompt), PAGE)]
    else:
        text = prompt if isinstance(prompt, str) else _chat(body.get("messages"))
        size = max(1, round(PAGE * chars_per_token))
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        lengths = [max(1, round(len(piece) / chars_per_token)) for piece in pieces]
    found = zip(pieces[:MOST_PAGES], lengths[:MOST_PAGES], strict=True)
    return tuple((_name(piece), length) for piece, length in found) or ((0, 1),)


def _chat(messages: Any) -> str:
    """One text per chat; a replica's own template differs, but the same for all messages."""
    if not isinstance(messages, list):
        return ""
    known = [one for one in messages if isinstance(one, dict)]
    return "".join(f"{one.get('role')}\0{one.get('content')}\1" for one in known)


def _name(piece: str) -> int:
    digest = hashlib.sha256(piece.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
