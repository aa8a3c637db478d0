"""Where the measurements lie: folders that are read, never shipped."""

from __future__ import annotations

import os
from pathlib import Path

from minilab.facts.errors import InputError

SILICON = "aiconfigurator-silicon"
REPLAY = "llmservingsim-bench"


def data_folder(name: str, given: str | Path | None = None) -> Path:
    """The folder ``name`` inside ``given`` (default: $MINILAB_DATA). Raises InputError."""
    top = given or os.environ.get("MINILAB_DATA")
    if not top:
        raise InputError(f"needs {name}: set MINILAB_DATA, or name the folder that has it (--data)")
    found = Path(top) / name
    if not found.is_dir():
        raise InputError(f"needs {name}: {found} is not a folder; its SOURCE.md says where from")
    return found
