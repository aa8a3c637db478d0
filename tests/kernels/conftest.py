"""Kernel tests run where the kernel runs: in a process of its own.

Triton picks interpreter or compiler when it is imported, once, so files named cases_*.py are not
collected here: test_*.py runs them in a child pytest, with TRITON_INTERPRET=1, and once more on a
GPU where there is one. By hand: TRITON_INTERPRET=1 pytest tests/kernels/cases_paged_decode.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

pytest.importorskip("torch", reason="needs torch")

Python = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip by name what this machine cannot run."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA GPU")


@pytest.fixture(scope="session")
def python() -> Python:
    """Run Python in a process of its own, without a mode of Triton's unless one is given."""

    def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "TRITON_"))}
        path = os.pathsep.join([str(ROOT / "src"), kept.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, *(str(argument) for argument in arguments)],
            env={**kept, "PYTHONPATH": path, **environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def run_cases(python: Python) -> Callable[..., None]:
    """``run_cases("cases_kv_write.py", "interpreter")``: fails with the child's report."""

    def run(name: str, mode: str, marks: str = "not slow") -> None:
        pytest.importorskip("triton", reason="needs triton")
        # The child needs no plugins, and they take seconds to load.
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environment |= {"TRITON_INTERPRET": "1"} if mode == "interpreter" else {}
        options = ("-q", "-p", "no:cacheprovider", "-m", marks)
        done = python("-m", "pytest", *options, HERE / name, **environment)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert re.search(r"\d+ passed", done.stdout)
        # A GPU may lack FP8 hardware; the interpreter has no excuse.
        assert mode == "gpu" or "skipped in" not in done.stdout

    return run
