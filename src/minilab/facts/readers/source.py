"""The file behind a reader: its bytes, unpacked, and the JSON values in it.

Nothing is executed while reading. A key that stands twice in one object is refused: JSON parsers
keep the last one silently, and published samples of benchmark files do have such doubles.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import zlib
from dataclasses import dataclass
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.readers.node import Node

MAX_BYTES = 1 << 30
"""Bytes of a file, and of what it unpacks to: a small gzip can hold any amount of zeros."""
PARQUET = b"PAR1"
_GZIP = b"\x1f\x8b"
_HEAD = 4096


@dataclass(frozen=True)
class Source:
    """One file: ``path`` as given, ``data`` unpacked, ``sha256`` of the file as it lies there."""

    path: str
    data: bytes
    sha256: str
    packed: bool

    @property
    def first_line(self) -> bytes:
        """Its first line, or as much as tells what the file is."""
        return self.data.lstrip()[:_HEAD].partition(b"\n")[0]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Source:
        """Read a file, plain or gzip (told by its first bytes, not by its name)."""
        name = " ".join(os.fspath(path).split())
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise InputError(f"{name}: cannot be read ({reason}); give a result file") from error
        if len(data) > MAX_BYTES:
            raise InputError(_too_big(name, "it has"))
        digest = hashlib.sha256(data).hexdigest()
        packed = data.startswith(_GZIP)
        return cls(name, _unpacked(name, data) if packed else data, digest, packed)

    def documents(self) -> list[Node]:
        """The JSON values of the file: one, or one per line. Their place is "" or "LINE: "."""
        try:
            text = self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"{self.path}:{line}: byte 0x{self.data[error.start]:02x}; must be UTF-8 text; "
                f"give the file as the tool wrote it"
            ) from error
        if not text.strip():
            raise InputError(f"{self.path}: empty; must be JSON or JSON lines; get the file again")
        first, _, rest = text.lstrip().partition("\n")
        if rest.strip() and _complete(first):
            lines = enumerate(text.split("\n"), start=1)
            kept = [(i, line) for i, line in lines if line.strip()]
            return [Node(self.path, f"{i}: ", _parse(self.path, i, line)) for i, line in kept]
        return [Node(self.path, "", _parse(self.path, 1, text))]


def _too_big(name: str, how: str) -> str:
    return f"{name}: {how} more than {MAX_BYTES >> 20} MiB; give one run, without prompts and texts"


def _unpacked(name: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name}: damaged gzip ({reason}); must unpack to its end; get the file again"
        ) from error
    if len(unpacked) > MAX_BYTES:
        raise InputError(_too_big(name, "it unpacks to"))
    return unpacked


def _complete(line: str) -> bool:
    """Whether the first line is a JSON value by itself: then so must every other be."""
    if not line.rstrip().endswith(("}", "]")):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse(path: str, line: int, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        at = line
        if isinstance(error, json.JSONDecodeError):
            at = line + error.lineno - 1
            given = ascii(text[max(error.pos - 10, 0) : error.pos + 20])
            reason = f"{error.msg} at column {error.colno}"
        else:
            given, reason = "not readable", " ".join(str(error).split())[:120]
        raise InputError(
            f"{path}:{at}: {given}; must be JSON ({reason}); was the file cut short or edited? "
            f"get it again"
        ) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!a} stands twice in one object")
    return found
