"""Where a learner's own files go: ``work/`` of the checkout, or beside the notebook on Colab."""

from __future__ import annotations

import os
from pathlib import Path

from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError

FOLDER_VARIABLE = "MINILAB_WORK"


def checkout(here: Path | None = None) -> Path | None:
    """The nearest folder upwards that holds ``repo.toml``; None outside a checkout."""
    here = (here or Path.cwd()).resolve()
    return next((root for root in (here, *here.parents) if (root / "repo.toml").is_file()), None)


def in_solutions(here: Path | None = None) -> bool:
    """Whether this is a solution's run, whose results must not mix with a learner's."""
    here, root = (here or Path.cwd()).resolve(), checkout(here)
    return root is not None and here.is_relative_to(root / "solutions")


def work_folder(here: Path | None = None) -> Path:
    """The folder for reports and predictions; it need not exist yet.

    ``MINILAB_WORK`` decides where it is set. Otherwise it is the checkout's ``work/`` (for a
    solution ``work/solutions``), and with no checkout ``work/`` beside the notebook.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named)
    root = checkout(here)
    if root is not None:
        return root / "work" / "solutions" if in_solutions(here) else root / "work"
    here = (here or Path.cwd()).resolve()
    return here if here.name == "work" else here / "work"


def relative(path: Path) -> str:
    """The path as seen from the current folder, with forward slashes."""
    return Path(os.path.relpath(path)).as_posix()


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that its name never holds half of it, making its folder first.

    Raises InputError where that can't be done.
    """
    path = Path(relative(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent}: no folder can be made there ({error.strerror}); free the name, or "
            f"name another place in {FOLDER_VARIABLE}"
        ) from error
    content = text.encode("utf-8")
    with whole_file(path) as file:
        file.write(content)
