"""SweepStore: the finished rows of a sweep in a file, so that a killed sweep goes on where it was.

One JSON object a line, each written at once and on its own. A process that dies while it writes
leaves at most one torn line at the end, which is recognised and dropped; whatever else is odd in
the file is refused, for it may not be ours to overwrite. Nothing here knows how a row is made.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import minilab
from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError

FORMAT = 1
MARK = b'{"minilab_sweep": '
CODE = ("facts", "core", "sim")  # the floors that decide what a simulation gives


class Identity(NamedTuple):
    """What a row is the answer to; a row counts only if all of it agrees."""

    key: str
    slos: str | None
    inputs: str
    version: str


class SweepStore:
    """Rows on disk by identity; of two lines with one identity the later counts.

    Opening reads what is there, drops a torn last line with a notice on stderr, and tries whether
    the file can be written, so that a sweep fails before its first run and not after it.

    Raises:
        InputError: not a .jsonl file, one that cannot be opened, or one with a line that is not a
            row of a sweep.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.suffix != ".jsonl":
            raise InputError(f"{self.path}: the rows of a sweep go to a .jsonl file; name one")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be opened for a sweep's rows: {_reason(error)}; "
                "name a file in a folder that exists and may be written"
            ) from None
        self.rows: dict[Identity, dict[str, Any]] = {}
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
            if line.strip():
                row = self._row(number, line)
                self.rows[identity_of(row)] = row
        torn = data[whole:]
        if torn and not (torn.startswith(MARK) or MARK.startswith(torn)):
            raise self._foreign(data.count(b"\n") + 1, torn)
        if torn:
            os.ftruncate(self._file, whole)
            notice(
                f"{self.path}: dropped a torn last line ({len(torn)} bytes; the sweep was killed "
                "while it wrote it); its experiment runs again"
            )

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        if not line.startswith(MARK):
            raise self._foreign(number, line)
        try:
            row: dict[str, Any] = json.loads(line)
            version = int(row["minilab_sweep"])
            identity_of(row)
        except (ValueError, KeyError, TypeError):
            raise self._foreign(number, line) from None
        if version > FORMAT:
            raise InputError(
                f"{self.path}:{number}: sweep format {version}; this minilab reads up to {FORMAT}; "
                "update it, or name another file"
            )
        return row

    def _foreign(self, number: int, line: bytes) -> InputError:
        given = repr(line[:40].decode("utf-8", "replace"))
        return InputError(
            f"{self.path}:{number}: {given} is not a row of a sweep; nothing was changed; "
            "remove that line, or name another file"
        )

    def append(self, row: dict[str, Any]) -> None:
        """Write one finished row.

        Raises:
            InputError: no room; the rows so far stay, the unfinished line does not.
        """
        line = (json.dumps({"minilab_sweep": FORMAT, **row}, allow_nan=False) + "\n").encode()
        before = os.fstat(self._file).st_size
        try:
            left = line
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            os.ftruncate(self._file, before)
            raise InputError(
                f"{self.path}: row {len(self.rows) + 1} cannot be written: {_reason(error)}; the "
                f"{len(self.rows)} rows so far are kept; make room and run the same sweep again"
            ) from None
        self.rows[identity_of(row)] = row

    def find(self, wanted: Collection[Identity]) -> dict[Identity, dict[str, Any]]:
        """The rows that are there; says so where there is one of other code or other data."""
        found = {i: self.rows[i] for i in wanted if i in self.rows}
        known = {(i.key, i.slos) for i in self.rows}
        outdated = sum((i.key, i.slos) in known for i in wanted if i not in found)
        if outdated:
            notice(
                f"{self.path}: {outdated} rows were made by another version of the code or from "
                "other data; they run again"
            )
        return found

    def __enter__(self) -> SweepStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is KeyboardInterrupt:
            notice(f"stopped; {self.path} has {len(self.rows)} rows; the same sweep goes on there")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def identity_of(row: dict[str, Any]) -> Identity:
    """The identity that a row states."""
    return Identity(*(row[name] for name in Identity._fields))


@lru_cache(maxsize=1)
def code_version() -> str:
    """The package's version with a digest of the code that a simulation runs through.

    Between releases, and in a learner's checkout, the code changes and the version does not; rows
    of other code must not pass for rows of this one.
    """
    digest = hashlib.sha256()
    package = Path(minilab.__file__).parent
    for path in sorted(path for floor in CODE for path in (package / floor).rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{minilab.__version__}+code.{digest.hexdigest()[:12]}"


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A table for spreadsheets, whole or not at all; an empty cell is unavailable (None).

    Raises:
        InputError: the file cannot be written.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    with whole_file(path) as file:
        file.write(text.getvalue().encode())


def notice(text: str) -> None:
    """One line for whoever watches the sweep."""
    print(f"sweep: {text}", file=sys.stderr, flush=True)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
