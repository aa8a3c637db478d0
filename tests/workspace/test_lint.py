"""Style, types and floors hold in the whole tree, so that they hold in every commit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

RUFF = (sys.executable, "-m", "ruff")
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

CHECKS = {
    "ruff": (*RUFF, "check", "."),
    "format": (*RUFF, "format", "--check", "."),
    "types": (sys.executable, "-m", "mypy"),
    "floors": (LINT_IMPORTS, "--no-logo"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_tree_passes(name, run):
    """Fails with the tool's own report."""
    done = run(*CHECKS[name])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("floor", "statement", "contract"),
    [
        ("facts", "import minilab.core", "Each floor imports only floors below it"),
        ("core", "import numpy", "The core is plain Python"),
        ("facts", "import torch", "Facts need no torch"),
        ("sim", "def f():\n    import torch", "run without torch"),
    ],
)
def test_floors_notice(floor, statement, contract, run, root, tmp_path):
    """A contract whose names have gone stale checks nothing: plant a breach and see it named."""
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text())
    for name in ("facts", "core", "sim", "lab", "cli"):
        package = tmp_path / "minilab" / name
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    for module in ("__init__", "recorder"):
        (tmp_path / "minilab" / f"{module}.py").touch()
    (tmp_path / "minilab" / floor / "breach.py").write_text(statement + "\n")
    done = run(LINT_IMPORTS, "--no-logo", "--no-cache", cwd=tmp_path)
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert done.returncode == 1
    assert any(contract in line for line in broken), done.stdout
