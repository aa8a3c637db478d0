"""Request: what a client asks for, before any server has touched it.

It holds no progress (that is ``core.request.RequestState``) and no result (that is
``facts.runlog.RunLog``), so one list of requests can be replayed on any number of clusters.
"""

from __future__ import annotations

from typing import NamedTuple

Segment = tuple[int, int]
"""A piece of prompt text: (content id, length in tokens).

Two segments with one content id are two prefixes of the same endless text, so a prompt can be
hashed at any block size without knowing its tokens.
"""


class Request(NamedTuple):
    """One request as its client sends it. Times are seconds, lengths are tokens.

    ``prompt`` lists the content segments, whose lengths add up to ``prompt_tokens``; ``None`` means
    text that nobody else sends. ``output_content`` names the text that will be generated, so that
    a later turn can quote it; ``None`` means text that nobody quotes. ``after`` is the id of the
    request whose end this one waits for (a session); it then arrives ``think`` seconds after that
    end, and not before ``arrival``.
    """

    id: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    prompt: tuple[Segment, ...] | None = None
    output_content: int | None = None
    tenant: str = ""
    slo_class: str = ""
    cache_salt: str | None = None
    adapter: str | None = None
    session: int | None = None
    after: int | None = None
    think: float = 0.0
