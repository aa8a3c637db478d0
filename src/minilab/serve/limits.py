"""ServeLimits: how much one client may ask of the server, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, fields

from minilab.facts.errors import InputError


@dataclass(frozen=True)
class ServeLimits:
    """Bounds of the server; times are seconds.

    Attributes:
        max_queue: requests that may wait for a running slot; the next one gets 429.
        max_body: bytes of a request's body; a larger one gets 413.
        request_timeout: from arrival to the last token; then the request is aborted.
        body_timeout: for a client to send its request's body; then 408.
        stall_timeout: for which a client may not read; then its stream is dropped.
        drain_timeout: for running requests after SIGTERM; then they are ended.

    Raises:
        InputError: a limit of 0 or less.
    """

    max_queue: int = 256
    max_body: int = 4 << 20
    request_timeout: float = 600.0
    body_timeout: float = 30.0
    stall_timeout: float = 30.0
    drain_timeout: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InputError(f"{field.name} is {value}; it must be above 0")
