"""`import minilab` and the command line work with numpy, matplotlib and ipywidgets alone.

The environment is a real one, bare, into which only the base dependencies and what they need are
linked from the environment that runs the tests: no network, and no torch to fall back on.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from bare_venv import bare_environment, make_bare

NEEDS_TORCH = ("engine", "kernels", "serve")
ABSENT = ("torch", "triton", "pandas", "pyarrow", "pooch", "joblib", "tqdm")


@pytest.fixture(scope="module")
def bare(tmp_path_factory, root):
    """Python of an environment that holds the base install and nothing else."""
    python, site = make_bare(tmp_path_factory.mktemp("bare") / "venv")
    (site / "minilab.pth").write_text(f"{root / 'src'}\n")
    return python


def call(python, *arguments, cwd):
    """Run the bare Python, with neither the reader's environment nor a data folder in sight."""
    return subprocess.run(
        [python, *arguments],
        cwd=cwd,
        env=bare_environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_environment_is_bare(bare, tmp_path):
    """If torch could be seen here, the other tests of this file would prove nothing."""
    code = f"import importlib.util as u; print([n for n in {ABSENT} if u.find_spec(n)])"
    assert call(bare, "-c", code, cwd=tmp_path).stdout.strip() == "[]"


def test_every_module_imports(bare, root, tmp_path):
    """A module that imports torch or pandas when it is imported breaks the base install."""
    package = root / "src" / "minilab"
    paths = [path.relative_to(package.parent) for path in sorted(package.rglob("*.py"))]
    modules = [
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if path.parts[1] not in NEEDS_TORCH and path.stem != "__main__"
    ]
    code = f"import importlib\nfor name in {modules}: importlib.import_module(name)"
    done = call(bare, "-c", code, cwd=tmp_path)
    assert "minilab.facts.request" in modules
    assert done.returncode == 0, done.stderr[-3000:]


def test_import_is_light(bare, tmp_path):
    """`import minilab` alone must load no dependency: shells and docs builds do it all the time."""
    code = "import sys, minilab; print('numpy' in sys.modules, 'matplotlib' in sys.modules)"
    assert call(bare, "-c", code, cwd=tmp_path).stdout.split() == ["False", "False"]


def test_command_line_runs(bare, tmp_path):
    """The simulator is the part of the course that needs no torch; run it where there is none."""
    done = call(
        bare,
        *("-c", "import sys; from minilab.cli.main import main; sys.exit(main())"),
        *("sim", "--trace", "synthetic", "--limit", "50"),
        *("--model", "llama-3.1-8b", "--gpu", "h100", "--slo", "ttft=0.5,itl=0.05", "--json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["completed"] == 50
