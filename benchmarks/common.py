"""What the benchmarks share: a command in a fresh process, the machine, a result file.

Import nothing heavy here: a child begins as a copy of this process, and what this process holds in
memory would count as the child's peak.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).with_name("results")
MIB = 2**20


class Outcome(NamedTuple):
    """One process: what it printed as JSON, its peak memory in bytes, its CPU time in seconds."""

    result: dict[str, Any]
    peak_bytes: int
    cpu_seconds: float


def minilab(arguments: Sequence[str]) -> Outcome:
    """Run ``minilab`` in a process of its own; its notices go to our stderr.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "minilab.cli.main", *arguments]
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, env={**os.environ, **one_thread()})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{' '.join(command)}: exit status {child.returncode}")
        output.seek(0)
        result = json.load(output)
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes there, KiB elsewhere
    return Outcome(result, usage.ru_maxrss * unit, usage.ru_utime + usage.ru_stime)


def one_thread() -> dict[str, str]:
    """So that CPU seconds are those of one core."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def host() -> dict[str, Any]:
    """The machine and the software that the numbers belong to."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load_before": _load(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "minilab": version("minilab"),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor() or platform.machine()


def _load() -> float | None:
    """Processes that wanted a core in the last minute: above 0 or 1, the numbers are too low."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def write(name: str, result: dict[str, Any]) -> Path:
    """Write a result file, whole or not at all."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    os.replace(temporary, path)
    return path


def verdict(met: bool) -> str:
    """How a target is reported."""
    return "met" if met else "MISSED"
