"""What a build ran on and with, and what each notebook says of its own outputs.

Plain functions without Sphinx, so that a test can call them. The pages are made of them by
page_status.py.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "minilab",
    "numpy",
    "matplotlib",
    "ipywidgets",
    "torch",
    "triton",
    "jupyter-book",
    "sphinx",
    "myst-nb",
    "sphinx-book-theme",
)
_DATA = re.compile(r"^data: (.+)$", re.MULTILINE)
"""A notebook says which data it used by printing a line that begins so."""
_UNDECIDED = ("no data folder", "a local data folder")
"""How such a line begins as long as no trace has been loaded; a later line says more."""
_MADE = re.compile(r"^(?:versions: |made with: |made on: |(?=GPU: ))(.+)$", re.MULTILINE)


def versions() -> list[tuple[str, str]]:
    """(name, version) of Python and of each package the pages rest on, "not installed" included."""
    rows = [("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            rows.append((name, "not installed"))
    return rows


def cpu_name() -> str:
    """The processor's own name where the system tells it, else its architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def gpu_name() -> str:
    """The names of the GPUs the driver reports, or "none"."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "none"
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "none"
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return ", ".join(names) if done.returncode == 0 and names else "none"


def hardware() -> list[tuple[str, str]]:
    """(what, value) of the machine that made the site."""
    rows = [("System", f"{platform.system()} {platform.machine()}"), ("CPU", cpu_name())]
    rows.append(("Cores", str(os.cpu_count() or "unknown")))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        rows.append(("Memory", f"{memory / 2**30:.0f} GiB"))
    rows.append(("GPU", gpu_name()))
    return rows


@dataclass(frozen=True)
class NotebookFacts:
    """cells: code cells with an output; data, made: what the notebook says of itself, or "".

    made: the day (its metadata), versions and GPU (what its first cell printed).
    """

    cells: int
    data: str
    made: str


def _output_text(output: dict[str, Any]) -> str:
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return text if isinstance(text, str) else "".join(text)


def notebook_facts(notebook: dict[str, Any]) -> NotebookFacts:
    """Read a notebook (nbformat 4, as JSON): its metadata "minilab", and what it printed."""
    outputs = [cell["outputs"] for cell in notebook["cells"] if cell.get("outputs")]
    text = "\n".join(_output_text(one) for cell in outputs for one in cell)
    said = notebook.get("metadata", {}).get("minilab", {})
    data = said.get("data") or "; ".join(_named_data(text))
    made = "; ".join(dict.fromkeys(filter(None, [said.get("made"), *_MADE.findall(text)])))
    return NotebookFacts(len(outputs), data if isinstance(data, str) else json.dumps(data), made)


def _named_data(text: str) -> list[str]:
    lines = list(dict.fromkeys(_DATA.findall(text)))
    return [line for line in lines if not line.startswith(_UNDECIDED)] or lines


def read_notebook(path: Path) -> NotebookFacts | None:
    """The facts of a notebook file, None when there is no such file."""
    if not path.exists():
        return None
    return notebook_facts(json.loads(path.read_text(encoding="utf-8")))
