"""Names and files that a user gives: found, or refused in one line that says what would do."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError


def read_json(path: str | Path) -> Any:
    """A user's JSON file. Raises InputError where it is missing or malformed."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{path}: cannot be read ({reason}); give a JSON file") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise InputError(
            f"{path}:{line}: not JSON ({error}); see the file's quotes and commas"
        ) from None


def tidy_name(name: str) -> str:
    """Names are lower case with dashes; be lenient about the rest."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among ``known``: it lists the closest ones."""
    names = sorted(known)
    close = difflib.get_close_matches(tidy_name(name), names, n=4, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}; {hint}")
