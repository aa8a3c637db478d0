"""Channel: JSON messages between two processes over a socket, one a line.

Neither end ever waits for the other: what cannot be written now is kept, so that a process that
hangs stops nobody else. A process that dies closes its end, which the other one sees at once.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
_READ = 1 << 16


class Channel:
    """One end of a connected stream socket.

    Attributes:
        open: the other end has not closed, as far as ``receive`` knows.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.open = True
        self._socket = connected
        self._in = b""
        self._out = bytearray()

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """One end to use here, and the socket of the other, for a child process."""
        here, there = socket.socketpair()
        return cls(here), there

    def fileno(self) -> int:
        """For ``wait``."""
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._out)

    def send(self, op: str, **fields: Any) -> None:
        """Write a message, or keep it until there is room; to a closed end it goes nowhere."""
        self._out += json.dumps({"op": op, **fields}).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Write what can be written now."""
        while self._out:
            try:
                del self._out[: self._socket.send(self._out)]
            except BlockingIOError:
                return
            except (
                OSError
            ):  # the other end is gone; ``receive`` finds that out, after its last words
                self._out.clear()

    def receive(self) -> list[Message]:
        """The messages that have arrived; ``open`` is False after the last ones."""
        self.flush()
        while self.open:
            try:
                data = self._socket.recv(_READ)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.open = bool(data)
            self._in += data
        *lines, self._in = self._in.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Let the other end see the end."""
        self.open = False
        self._socket.close()


class Bell:
    """Wakes ``wait`` from another thread."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._there.setblocking(False)

    def fileno(self) -> int:
        """For ``wait``."""
        return self._here.fileno()

    def ring(self) -> None:
        """From any thread."""
        with suppress(BlockingIOError):  # full: it has been rung often enough
            self._there.send(b"!")

    def clear(self) -> None:
        """It was heard."""
        with suppress(BlockingIOError):
            while self._here.recv(_READ):
                pass


def wait(channels: Sequence[Channel], timeout: float, bell: Bell | None = None) -> None:
    """Return when a channel has something to read, or room for what is unsent, or the bell rang.

    ``timeout``: at most so many seconds; 0: do not wait.
    """
    with selectors.DefaultSelector() as selector:
        for channel in channels:
            if channel.open:
                writes = selectors.EVENT_WRITE if channel.unsent else 0
                selector.register(channel, selectors.EVENT_READ | writes)
        if bell is not None:
            selector.register(bell, selectors.EVENT_READ)
        selector.select(timeout)
    if bell is not None:
        bell.clear()
