"""Handoff: one request on its way from the prefill pool to the decode pool, and when it was where.

The two pools see it as two requests: one of a single output token, which keeps its blocks until
they are sent, and one whose prompt comes from elsewhere.
"""

from __future__ import annotations

from minilab.core.connector import KVLoad
from minilab.core.request import RequestState

NOT_SENT, MOVING, ARRIVED = range(3)


class Handoff:
    """Both halves of a split request; times are ticks, -1 while something has not happened.

    Attributes:
        sender, receiver: its two states.
        prefill, decode: instances of the cluster.
        ready_at: the prompt is computed. begun_at: bytes began to move. ended_at: they arrived, or
            the transfer broke. joined_at: the receiver got a running slot.
        head: with overlap, all layers but the last: NOT_SENT, MOVING or ARRIVED.
        load: what the connector says must move. sent: the wires were told to move it.
        given_up_at: the client gave up before the KV was there.
    """

    __slots__ = (
        "begun_at",
        "decode",
        "ended_at",
        "given_up_at",
        "head",
        "joined_at",
        "load",
        "prefill",
        "ready_at",
        "receiver",
        "sender",
        "sent",
    )

    def __init__(
        self, sender: RequestState, receiver: RequestState, prefill: int, decode: int
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self.prefill = prefill
        self.decode = decode
        self.load: KVLoad | None = None
        self.head = NOT_SENT
        self.sent = False
        self.given_up_at = -1
        self.ready_at = self.begun_at = self.ended_at = self.joined_at = -1

    def begin(self, now: int) -> None:
        """The first byte is on the wire."""
        if self.begun_at < 0:
            self.begun_at = now
