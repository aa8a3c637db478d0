"""Server-sent events: how OpenAI streams, one ``data:`` line and a blank line per event."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # asks nginx not to collect events
}

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def event(value: Any) -> bytes:
    """One event. JSON escapes line ends, so that no text can begin an event of its own."""
    return b"data: " + _encode(value).encode() + b"\n\n"
