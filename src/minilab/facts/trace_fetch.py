"""Getting a trace: what there is (``traces.json``), where it is kept, the bytes, the download.

pooch checks the hash and moves a finished file to its name; the download itself is ours, because
it must go on where it was interrupted. Until the hash is right the bytes are in ``NAME.part``.
"""

from __future__ import annotations

import difflib
import functools
import gzip
import hashlib
import http.client
import importlib
import json
import os
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError

CHUNK = 1 << 16
TIMEOUT_S = 30.0
NETWORK = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
SYNTHETIC = "synthetic"


@functools.cache
def catalogue() -> dict[str, dict[str, Any]]:
    """The known traces by name: title, file, format, url, sha256, bytes, licence, statistics."""
    text = Path(__file__).with_name("traces.json").read_text(encoding="utf-8")
    known: dict[str, dict[str, Any]] = json.loads(text)
    return known


def entry(name: str) -> dict[str, Any]:
    """One trace of the catalogue; an InputError with the closest names for an unknown one."""
    known = catalogue()
    if name in known:
        return known[name]
    names = [*known, SYNTHETIC]
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.4) or names
    raise InputError(f"trace {name!r}; unknown; use {' or '.join(close)}, or a file")


def cache_folder() -> Path:
    """Where fetched traces are kept: $MINILAB_CACHE, else the user's cache folder."""
    if given := os.environ.get("MINILAB_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "minilab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minilab"


def read_bytes(path: Path) -> tuple[bytes, str]:
    """The content of a file, unpacked if it is gzip, and the sha256 of the file itself."""
    try:
        data = path.read_bytes()
    except OSError as error:
        known = ", ".join([*catalogue(), SYNTHETIC])
        raise InputError(
            f"{path}: {error.strerror}; must be a readable file; use a path or one of {known}"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{path}: damaged gzip ({error}); must unpack to its end; get the file again"
            ) from error
    return data, digest


def decode(path: str, data: bytes) -> str:
    """The text of a file, which must be UTF-8 (a byte order mark is skipped) and not empty."""
    try:
        text = data.decode("utf-8-sig")
        bad = text.find("\0")
    except UnicodeDecodeError as error:
        text, bad = data[: error.start].decode("utf-8-sig"), error.start
        raise blame(
            path, text.count("\n") + 1, f"byte 0x{data[bad]:02x}", "must be UTF-8 text"
        ) from error
    if bad >= 0:
        raise blame(path, text.count("\n", 0, bad) + 1, "a zero byte", "must be UTF-8 text")
    if not text.strip():
        raise blame(path, 1, "empty", "at least 1 request", "get the file again")
    return text


def blame(path: str, row: int, given: str, limit: str, out: str = "mend the row") -> InputError:
    """The InputError for one row of a file."""
    return InputError(f"{path}:{row}: {given}; {limit}; {out}")


def fetch(name: str, folder: Path | None = None, *, progress: bool = True) -> Path:
    """The path of the verified trace file, downloaded from its public origin if need be.

    A file that is there and has the right hash costs no connection. ``folder`` stands for the
    cache; the file keeps its place in it (such as ``azure-llm-2023/...csv``). InputError: unknown
    name, offline, refused by the server, interrupted (a second call goes on), wrong hash, disk.
    """
    if name == SYNTHETIC:
        raise InputError(f"trace {name!r}; is made up, not downloaded; use it as it is")
    trace = entry(name)
    path = (folder or cache_folder()) / str(trace["file"])
    load = _Download(trace, path.with_name(path.name + ".part"), progress)
    if load.retrieve(path) or (load.resumed and load.retrieve(path)):
        return path  # a part of other bytes spoils a resumed file: once more, from nothing
    raise InputError(
        f"{trace['url']}: its sha256 is not {trace['sha256'][:16]}...; nothing was kept; "
        f"{_other_ways(trace)}"
    )


class _Download:
    """One trace on its way; callable as pooch wants a downloader to be."""

    def __init__(self, trace: dict[str, Any], part: Path, progress: bool) -> None:
        self.trace, self.part, self.progress = trace, part, progress
        self.resumed = False

    def retrieve(self, path: Path) -> bool:
        """Have pooch verify the file at ``path`` or get it; False if the hash came out wrong."""
        pooch = _extra("pooch")
        pooch.get_logger().setLevel("WARNING")  # the bar, or our one line, says what goes on
        try:
            pooch.retrieve(
                url=self.trace["url"],
                known_hash=f"sha256:{self.trace['sha256']}",
                fname=path.name,
                path=path.parent,
                downloader=self,
            )
        except InputError:
            raise
        except ValueError:  # what pooch says of a wrong hash
            return False
        except OSError as error:
            raise InputError(f"{path}: {error}; must be writable; {_CACHE_HINT}") from error
        return True

    def __call__(self, url: str, output_file: str, pooch: object) -> None:
        total = self.trace["bytes"]
        have = self.part.stat().st_size if self.part.exists() else 0
        self.resumed = 0 < have <= total
        if have != total:
            self._receive(url, have if have < total else 0)
        os.replace(self.part, output_file)

    def _receive(self, url: str, have: int) -> None:
        """Bring the part file from ``have`` bytes to all of them."""
        request = urllib.request.Request(url)
        if have:
            request.add_header("Range", f"bytes={have}-")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                goes_on = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
                self._write(response, have if response.status == 206 and goes_on else 0)
        except urllib.error.HTTPError as error:
            if error.code == 416 and have:
                return self._receive(url, 0)
            raise InputError(
                f"{url}: HTTP {error.code} {error.reason}; expected the file; "
                f"{_other_ways(self.trace)}"
            ) from error
        except NETWORK as error:
            reason = getattr(error, "reason", error)
            raise InputError(
                f"{url}: no connection ({reason}); needs the network once; "
                f"{_other_ways(self.trace)}"
            ) from error

    def _write(self, response: http.client.HTTPResponse, have: int) -> None:
        total, url = self.trace["bytes"], self.trace["url"]
        with self.part.open("ab" if have else "wb") as out, self._bar(have) as bar:
            for chunk in _chunks(response):
                have += out.write(chunk)
                if have > total:
                    break
                if bar is not None:
                    bar.update(len(chunk))
        if have > total:
            self.part.unlink()
            raise InputError(f"{url}: over {total} bytes; not the file; {_other_ways(self.trace)}")
        if have < total:
            raise InputError(
                f"{url}: interrupted at {have} of {total} bytes; all are needed; "
                "run the same command again to go on from there"
            )

    def _bar(self, have: int) -> Any:
        if not self.progress:
            return nullcontext()
        return _extra("tqdm").tqdm(
            total=self.trace["bytes"],
            initial=have,
            unit="B",
            unit_scale=True,
            desc=Path(self.trace["file"]).name,
        )


def _chunks(response: http.client.HTTPResponse) -> Iterable[bytes]:
    """The body piece by piece, up to its end or to a broken connection."""
    while True:
        try:
            chunk = response.read(CHUNK)
        except (OSError, http.client.HTTPException):
            return
        if not chunk:
            return
        yield chunk


_CACHE_HINT = "MINILAB_CACHE names another folder"


def _other_ways(trace: dict[str, Any]) -> str:
    return f"try again later, or put a copy at $MINILAB_DATA/{trace['file']}, or use the stand-in"


def _extra(module: str) -> Any:
    """An optional module, or one line that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} is not installed; downloads need it; pip install 'minilab[data]'"
        ) from error
