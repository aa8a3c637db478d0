"""What all tests share: the optional data folder, and skips counted by reason.

Skips are counted because a suite that skips is easily taken for one that passes: the last lines of
a run say how many tests had no data or no browser, and which.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

# Before anything imports numpy or torch: the workers share the cores, one thread each.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "agg")

CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
SKIPPED = "Skipped: "

DataFolder = Callable[[str], Path]


@pytest.fixture(scope="session")
def data_folder() -> DataFolder:
    """``data_folder("mooncake-fast25")``: that folder of MINILAB_DATA, or skip with "needs ..."."""

    def find(name: str) -> Path:
        top = os.environ.get("MINILAB_DATA")
        folder = Path(top or "") / name
        if not top or not folder.is_dir():
            pytest.skip(f"needs {name}")
        return folder

    return find


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of an installed Chromium, or skip with "needs chromium"."""
    found = next((path for path in CHROMIUM if os.access(path, os.X_OK)), None)
    if found is None:
        pytest.skip("needs chromium")
    return found


def skips_by_reason(reports: list[pytest.TestReport]) -> list[tuple[str, int]]:
    """(reason, number of tests) of skipped tests, the most frequent reason first."""
    reasons = Counter(_reason(report) for report in reports)
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def _reason(report: pytest.TestReport) -> str:
    where = report.longrepr
    text = str(where[2]) if isinstance(where, tuple) else str(where)
    return text.removeprefix(SKIPPED)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of skipped tests by reason, also when there are none."""
    counted = skips_by_reason(terminalreporter.stats.get("skipped", []))
    total = sum(number for _, number in counted)
    terminalreporter.section("skips by reason")
    terminalreporter.write_line(f"{total} skipped")
    for reason, number in counted:
        terminalreporter.write_line(f"{number:6d}  {reason}")
