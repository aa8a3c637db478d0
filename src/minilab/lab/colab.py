"""The environment of a notebook: the cell that makes one on Colab or Kaggle, and what it then says.

The cell installs minilab alone (``--no-deps``), from a tag, and only on those two hosts, so that
their own torch, triton and numpy stay as they are; its output is shown. The repository's address
comes from ``repo.toml`` and nowhere else.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.lab.progress import session

UNSTAMPED = "OWNER/"
SHOWN_PACKAGES = ("minilab", "numpy", "matplotlib", "torch", "triton")
_CELL = """\
# On Colab and Kaggle: install minilab from its tag, and nothing else
# (their own torch, triton and numpy stay). Elsewhere: nothing.
import os

REPO, TAG = "{repo}", "{tag}"
hosted = "KAGGLE_KERNEL_RUN_TYPE" in os.environ
try:
    import google.colab  # noqa: F401

    hosted = True
except ImportError:
    pass
if hosted:
    import importlib
    import subprocess
    import sys

    if REPO.startswith("OWNER/"):
        raise SystemExit("This copy names no repository yet: make stamp REPO=owner/name TAG=" + TAG)
    source = f"https://github.com/{{REPO}}/archive/refs/tags/{{TAG}}.zip"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--progress-bar=off", source]
    with subprocess.Popen(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        for line in run.stdout:
            print(line, end="")
    if run.returncode:
        why = "the lines above say why; on Kaggle, is Internet on in the notebook's settings?"
        raise SystemExit(f"minilab {{TAG}} was not installed: {{why}}")
    importlib.invalidate_caches()

from minilab import lab

lab.environment()"""


@dataclass(frozen=True)
class Stamp:
    """Where the course's repository is: "owner/name" and a tag, which never is a branch."""

    repo: str = "OWNER/frontier-serving-lab"
    tag: str = "v0.6.0"

    @property
    def stamped(self) -> bool:
        """False while the owner is still the placeholder."""
        return not self.repo.startswith(UNSTAMPED)


def read_stamp(root: Path) -> Stamp:
    """The stamp in ``root/repo.toml`` (keys repo and tag), or the unstamped one without a file."""
    path = root / "repo.toml"
    if not path.is_file():
        return Stamp()
    # two plain keys: tomllib is not in Python 3.10, and a parser is no reason for a dependency
    found = dict(
        re.findall(r'^\s*(repo|tag)\s*=\s*"([^"]*)"', path.read_text(encoding="utf-8"), re.M)
    )
    stamp = Stamp(**found)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", stamp.repo):
        raise InputError(f'repo.toml: repo = "{stamp.repo}"; write it as "owner/name"')
    if not re.fullmatch(r"v\d+(\.\w+)+", stamp.tag):
        raise InputError(f'repo.toml: tag = "{stamp.tag}" is no version tag; write "v0.6.0"')
    return stamp


def first_cell(stamp: Stamp) -> str:
    """The source of every notebook's first code cell."""
    return _CELL.format(repo=stamp.repo, tag=stamp.tag)


def environment(data: Mapping[str, Any] | None = None) -> None:
    """Print versions, the GPU and what will run where, and the data source in use.

    data: a run log's ``meta["data"]`` ({"name", "kind", ...}), once a trace has been loaded.
    """
    if data is not None:
        session().data = dict(data)
    for line in environment_lines():
        print(line)


def environment_lines() -> list[str]:
    """What ``environment`` prints, for the report as well."""
    capability, gpu = _gpu()
    return [
        "versions: " + ", ".join(_versions()),
        f"GPU: {gpu}",
        f"runs where: {_where(capability)}",
        f"data: {_data()}",
    ]


def _versions() -> list[str]:
    found = [f"Python {platform.python_version()} on {platform.system()}"]
    for name in SHOWN_PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            if importlib.util.find_spec(name) is None:
                found.append(f"no {name}")
            else:  # a source tree on the path, with no installation record
                module = importlib.import_module(name)
                found.append(f"{name} {getattr(module, '__version__', 'of unknown version')}")
    return found


def _gpu() -> tuple[float | None, str]:
    """Capability (7.5 for a T4) and a sentence; torch is imported only where it is installed."""
    if importlib.util.find_spec("torch") is None:
        return None, "not looked for (no torch here)"
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return None, "none that torch can use"
    major, minor = torch.cuda.get_device_capability(0)
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    name = torch.cuda.get_device_name(0)
    return major + minor / 10, f"{name}, capability {major}.{minor}, {memory:.0f} GiB"


def _where(capability: float | None) -> str:
    always = "simulator, exercises and figures on the CPU"
    if capability is None:
        return f"{always}; cells marked GPU take their CPU path and say so"
    if capability < 8.0:
        return (
            f"{always}; cells marked GPU on the GPU in fp16, with small-tile kernels or the torch "
            "reference (below capability 8.0 there is no bf16 and no large tile)"
        )
    return f"{always}; cells marked GPU on the GPU"


def _data() -> str:
    source = session().data
    if source:
        origin = f" ({source['origin']})" if source.get("origin") else ""
        return f"{source.get('name', 'unnamed')}, {source.get('kind', 'of unknown kind')}{origin}"
    if os.environ.get("MINILAB_DATA"):  # named, not shown: a path says nothing to another reader
        return "a local data folder (MINILAB_DATA), real traces where it has them"
    return "no data folder: downloaded traces where there are some, else the stand-in"
