"""The files of the repository, as git would take them: not what a build or a reader left there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_SOURCE = ("_build", "build", "dist", "work", "__pycache__")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command; its output is text, and its status is the caller's to judge."""

    def call(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            check=False,
            text=True,
            **{"cwd": ROOT, "capture_output": True, **options},  # type: ignore[call-overload]
        )

    return call


@pytest.fixture(scope="session")
def sources() -> list[Path]:
    """Every file of the repository, weights and pictures included."""
    return source_files()


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """Contents of every text file of the repository (UTF-8), by path with forward slashes."""
    found: dict[str, str] = {}
    for path in source_files():
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


def source_files() -> list[Path]:
    """Every file that is tracked, or would be; in an unpacked archive, all but what is built."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not (ROOT / ".git").exists():
        inside = (path for path in sorted(ROOT.rglob("*")) if path.is_file())
        return [p for p in inside if not _is_built(p.relative_to(ROOT))]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    paths = (ROOT / name for name in sorted(set(listed.stdout.split("\0"))) if name)
    return [path for path in paths if path.is_file()]


def _is_built(path: Path) -> bool:
    hidden = any(
        part.startswith(".") and part not in (".ci", ".github", ".gitignore") for part in path.parts
    )
    return hidden or any(part in NOT_SOURCE for part in path.parts)
