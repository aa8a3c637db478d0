"""Child: a process of the split as the one that started it sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from socket import socket

from minilab.engine.pd.channel import Channel, Message
from minilab.engine.pd.settings import PdSettings

GRACE_SECONDS = 5.0


class Child:
    """The prefill or the decode process.

    Attributes:
        role: its name. channel: to it. process: itself.
        heard: when it last gave a sign of life, on the clock of ``receive``'s caller.
    """

    def __init__(self, role: str, settings: PdSettings, store: str, peer: socket) -> None:
        self.role = role
        self.channel, there = Channel.pair()
        descriptors = there.fileno(), peer.fileno()
        options = [f"--settings={settings.to_json()}", f"--store={store}"]
        options += [f"--proxy={descriptors[0]}", f"--peer={descriptors[1]}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minilab.engine.pd.process", role, *options],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        there.close()
        peer.close()
        self.heard = 0.0

    def receive(self, now: float) -> list[Message]:
        """Its messages; signs of life are noted and left out."""
        messages = self.channel.receive()
        if messages:
            self.heard = now
        return [message for message in messages if message["op"] != "alive"]

    def how_it_ended(self) -> str:
        """For an error message, once the channel is closed."""
        try:
            status = self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited ({status})"
        return f"the {self.role} process {how}"

    def end(self) -> None:
        """Let it end by itself, or end it."""
        self.channel.close()
        try:
            self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
