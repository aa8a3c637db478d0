"""Process: `minilab serve tiny` as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

SERVE = (sys.executable, "-m", "minilab.cli.main", "serve", "tiny", "--port", "0")


class Process:
    """A running `minilab serve`."""

    def __init__(self, *options: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*SERVE, *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stderr is not None
        self.said = first = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", first)
        assert found, first
        self.url = found[0]
        # A full pipe would stop the server in the middle of a word.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def end(self) -> tuple[int, str]:
        """Exit status, and what it said on stderr."""
        status = self.process.wait(60)
        self._reader.join(10)
        return status, self.said
