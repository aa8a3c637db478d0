"""A virtual environment that holds a few named packages and what they need, made without network.

The packages are linked from the environment that runs the tests; nothing else can be imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

BASE = ("numpy", "matplotlib", "ipywidgets")
"""What a base install of minilab depends on."""


def closure(names: tuple[str, ...]) -> set[str]:
    """The packages that pip would install for ``names``."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        needs = [Requirement(line) for line in distribution(name).requires or ()]
        waiting += [n.name for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    return found


def make_bare(folder: Path, names: tuple[str, ...] = BASE) -> tuple[Path, Path]:
    """Make it in ``folder``; returns its Python and its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in closure(names):
        package = distribution(name)
        for top in {file.parts[0] for file in package.files or () if file.parts[0] != ".."}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    return folder / "bin" / "python", site


def bare_environment(*dropped: str) -> dict[str, str]:
    """The variables of this process without those that would lead Python or minilab elsewhere.

    dropped: further beginnings of names to leave out.
    """
    kinds = ("PYTHON", "MINILAB", *dropped)
    return {name: value for name, value in os.environ.items() if not name.startswith(kinds)}
