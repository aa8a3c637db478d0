"""API keys from a file or the environment: the command line would show them to every user."""

from __future__ import annotations

import os
from pathlib import Path

from minilab.facts.errors import InputError

VARIABLE = "MINILAB_API_KEY"


def read_lines(path: str, what: str) -> list[str]:
    """The lines of a file that say something; # begins a comment line.

    Raises:
        InputError: the file cannot be read or has no such line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise InputError(f"{path}: {reason.lower()}; give a file with {what} per line") from None
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not found:
        raise InputError(f"{path}: is empty; put {what} on each line")
    return found


def api_keys(path: str | None) -> list[str]:
    """The keys in a file, or the one in the environment, or none."""
    if path is not None:
        return read_lines(path, "one API key")
    key = os.environ.get(VARIABLE, "").strip()
    return [key] if key else []


def tenants(path: str | None) -> dict[str, str]:
    """API key to cache salt, from lines of the two; nobody without a file.

    Raises:
        InputError: a line that is not two words, or a key that comes twice.
    """
    found: dict[str, str] = {}
    for line in read_lines(path, "an API key and a salt") if path is not None else ():
        key, _, salt = line.partition(" ")
        if not salt.strip() or key in found:
            told = "comes twice" if key in found else "has no salt after it"
            raise InputError(f"{path}: the key {key[:3]}... {told}; put a key and a salt on a line")
        found[key] = salt.strip()
    return found
