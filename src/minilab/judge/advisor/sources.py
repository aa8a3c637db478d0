"""What people hand in: pages of /metrics, Prometheus answers, benchmark files, logs, words.

Each source is told by its content. What cannot be read is said, and never stops the rest; only a
file that is not there is an error.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minilab.facts import readers
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.judge.advisor.exposition import Scrape, read_scrape
from minilab.judge.advisor.names import START
from minilab.judge.advisor.series import is_prometheus
from minilab.judge.advisor.startup import is_startup_log

MOST_BYTES = 64 << 20
"""Bytes of one source; a page of /metrics has some ten thousand."""


@dataclass
class Sources:
    """What was read, by kind, in the order in which it was given.

    Attributes:
        scrapes: (name, page) of /metrics.
        answers: JSON of Prometheus's HTTP API.
        logs: (name, run log) of benchmark files.
        startups: (name, text) of start-up logs.
        reports: (name, text) in somebody's own words.
        notes: what could not be read, one sentence each.
    """

    scrapes: list[tuple[str, Scrape]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    logs: list[tuple[str, RunLog]] = field(default_factory=list)
    startups: list[tuple[str, str]] = field(default_factory=list)
    reports: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, source: str, timeout: float = 10.0) -> None:
        """Read one file, or one page if it begins with http.

        Raises:
            InputError: there is no such file, or the server does not answer.
        """
        if source.startswith(("http://", "https://")):
            page = fetch(source, timeout)
            self._add_text(source.split("//", 1)[1].split("/")[0], page, None)
            return
        name = Path(source).name
        try:
            with open(source, "rb") as file:
                data = file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise InputError(
                f"{source}: cannot be read ({reason}); give a page of /metrics, or a result file"
            ) from error
        if len(data) > MOST_BYTES:
            self.notes.append(f"{name}: larger than {MOST_BYTES >> 20} MiB; not read")
            return
        if data.startswith(b"PAR1"):
            self._add_log(name, source)
            return
        text = _text_of(data)
        if text is None:
            self.notes.append(f"{name}: neither text nor a whole gzip file; not read")
            return
        self._add_text(name, text, source)

    def _add_text(self, name: str, text: str, path: str | None) -> None:
        if not text.strip():
            self.notes.append(f"{name}: empty; scrape /metrics again")
            return
        if text.lstrip()[0] in "{[":
            self._add_json(name, text, path)
            return
        scrape = read_scrape(text)
        if scrape.has(START) or any(":" in metric for metric in scrape.samples):
            self.scrapes.append((name, scrape))
        elif is_startup_log(text):
            self.startups.append((name, text))
        elif sum(letter.isalpha() for letter in text[:2000]) > 0.4 * len(text[:2000]):
            self.notes.append(f"{name}: no line of metrics in it; read as a report in words")
            self.reports.append((name, text[:20000]))
        else:
            self.notes.append(f"{name}: no line of metrics in it; not read")

    def _add_json(self, name: str, text: str, path: str | None) -> None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if is_prometheus(value):
            self.answers.append(value)
        elif path is None:
            self.notes.append(f"{name}: answers JSON that is none of Prometheus's; not read")
        else:
            self._add_log(name, path)

    def _add_log(self, name: str, path: str) -> None:
        try:
            self.logs.append((name, readers.read(path)))
        except InputError as error:
            reason = str(error).replace(path, name)
            self.notes.append(f"{name}: not read; {reason.removeprefix(name + ': ')}")


def fetch(url: str, timeout: float = 10.0) -> str:
    """The text of a page of metrics; ``/metrics`` is added to a bare address.

    Raises:
        InputError: the server does not answer, or not with text.
    """
    whole = url if url.rstrip("/").count("/") > 2 else url.rstrip("/") + "/metrics"
    try:
        with urllib.request.urlopen(whole, timeout=timeout) as answer:
            data: bytes = answer.read(MOST_BYTES)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(
            f"{whole}: no answer ({reason}); is the server up, and is this its port?"
        ) from None
    return data.decode("utf-8", "replace")


def _text_of(data: bytes) -> str | None:
    """Text, unpacked if it is gzip; None if it is neither."""
    if data.startswith(b"\x1f\x8b"):
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES)
        except zlib.error:
            return None
    if b"\x00" in data[:4096]:
        return None
    return data.decode("utf-8", "replace")
