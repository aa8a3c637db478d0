"""Lab tests run on lab 90 (demo_exercises.py), in a work folder and a session of their own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from minilab.lab import prediction_file
from minilab.lab.progress import session

DEMO = Path(__file__).with_name("demo_exercises.py")
NAME = "minilab.lab.exercises.lab90"
INSTALL = f"""\
import importlib.util, sys
spec = importlib.util.spec_from_file_location({NAME!r}, {str(DEMO)!r})
module = importlib.util.module_from_spec(spec)
sys.modules[{NAME!r}] = module
spec.loader.exec_module(module)
from minilab import lab"""


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(NAME, DEMO)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def demo() -> Iterator[ModuleType]:
    yield _load()
    sys.modules.pop(NAME, None)


@pytest.fixture
def install_demo() -> str:
    """Source of a notebook cell that makes lab 90 known to its kernel, and imports lab."""
    return INSTALL


@pytest.fixture(autouse=True)
def own_session(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("MINILAB_WORK", str(tmp_path / "work"))
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    prediction_file._OPEN.clear()
    session().clear()
    yield
    prediction_file._OPEN.clear()
    session().clear()
