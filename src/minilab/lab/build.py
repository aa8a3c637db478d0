"""Build: labs/NN_topic.ipynb from solutions/NN_topic.ipynb, byte for byte the same each time.

``python -m minilab.lab.build`` writes the labs and brings the first cell of the solutions up to
``repo.toml``; with ``--check`` it writes nothing, says what differs and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab.colab import Stamp, read_stamp
from minilab.lab.notebook_text import lab_notebook, need, with_first_cell
from minilab.lab.workdir import checkout, write_whole

PATTERNS = ("[0-9][0-9]_*.ipynb", "[0-9][0-9][a-z]_*.ipynb")


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the labs are (now) those of the solutions, 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m minilab.lab.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 on differences")
    parser.add_argument("--root", type=Path, help="the checkout (default: found from here upwards)")
    given = parser.parse_args(argv)
    try:
        root = given.root or checkout() or Path.cwd()
        stale = differences(root) if given.check else build(root)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for line in stale:
        print(line)
    if given.check and stale:
        print("run make labs to generate them again")
    return 1 if given.check and stale else 0


def build(root: Path) -> list[str]:
    """Write every lab, and the first cell of every solution; returns what was written or is left
    over, a line each.
    """
    wanted = generated(root)
    said = []
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_whole(path, text)
            said.append(f"{path.relative_to(root).as_posix()}: written")
    return said + _orphans(root, wanted)


def differences(root: Path) -> list[str]:
    """How the files on disk differ from what the solutions give, a line each; empty when not."""
    wanted = generated(root)
    said = [
        f"{path.relative_to(root).as_posix()}: {told}"
        for path, text in wanted.items()
        if (told := _difference(path, text))
    ]
    return said + _orphans(root, wanted)


def generated(root: Path) -> dict[Path, str]:
    """What the files must hold: each lab, and each solution whose first cell is not the stamp's."""
    solutions = sorted(p for each in PATTERNS for p in (root / "solutions").glob(each))
    if not solutions:
        raise InputError(
            f"{root.name or root}/solutions: no {PATTERNS[0]} there; run this in the checkout "
            "or name it with --root"
        )
    stamp = read_stamp(root)
    wanted: dict[Path, str] = {}
    for path in solutions:
        solution = read_notebook(path, path.name)
        wanted[root / "labs" / path.name] = _written(lab_notebook(solution, path.name, stamp))
        if (updated := _restamped(solution, stamp)) is not None:
            wanted[path] = updated
    return wanted


def read_notebook(path: Path, name: str) -> Any:
    """A notebook of format 4.5 or later (cells have ids); InputError for anything else."""
    nbformat = need("nbformat")
    try:
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
    except OSError as error:
        raise InputError(f"{name}: not readable ({error.strerror}); give another file") from error
    except Exception as error:  # nbformat raises several kinds: no JSON, no notebook, a bad cell
        reason = str(error).strip().split("\n")[0][:120]
        raise InputError(f"{name}: no valid notebook ({reason}); save it from Jupyter") from error
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        raise InputError(
            f"{name}: format {notebook.nbformat}.{notebook.nbformat_minor} has no cell ids, 4.5 is "
            "asked; open and save it in a current Jupyter"
        )
    return notebook


def _restamped(solution: Any, stamp: Stamp) -> str | None:
    """The solution with the stamp's first cell, or None where it has it already."""
    updated = with_first_cell(solution, stamp)
    return None if updated == solution else _written(updated)


def _written(notebook: Any) -> str:
    return str(need("nbformat").writes(notebook)).rstrip("\n") + "\n"


def _orphans(root: Path, wanted: dict[Path, str]) -> list[str]:
    labs = sorted((root / "labs").glob("*.ipynb"))
    return [f"labs/{p.name}: has no solution; remove or rename it" for p in labs if p not in wanted]


def _difference(path: Path, text: str) -> str:
    """Missing, or which cells differ (by id); empty when the bytes are equal."""
    if not path.is_file():
        return "missing"
    found = path.read_text(encoding="utf-8")
    if found == text:
        return ""
    try:
        cells = {cell.get("id"): cell for cell in json.loads(found)["cells"]}
    except (ValueError, KeyError, AttributeError, TypeError):
        return "is no notebook"
    wanted = {cell["id"]: cell for cell in json.loads(text)["cells"]}
    parts = [
        ("changed", [i for i in wanted if i in cells and cells[i] != wanted[i]]),
        ("missing", [i for i in wanted if i not in cells]),
        ("not in the solution", [i for i in cells if i not in wanted]),
    ]
    told = [f"{len(i)} cells {what} ({', '.join(map(str, i[:4]))})" for what, i in parts if i]
    return "; ".join(told) or "the same cells in another order or form"


if __name__ == "__main__":
    sys.exit(main())
