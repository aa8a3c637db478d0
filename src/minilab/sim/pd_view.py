"""DecodeView: a decode instance as a router sees it; requests that are on their way to it count."""

from __future__ import annotations

from minilab.core.instance import Instance
from minilab.core.instance_view import InstanceView


class DecodeView(InstanceView):
    """``inbound``: requests sent here whose KV has not arrived."""

    __slots__ = ("inbound",)

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.inbound = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue, and those that are inbound."""
        return super().waiting + self.inbound
