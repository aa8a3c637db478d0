"""Skips are counted by reason, and a missing data folder is one by name."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

TESTS = """
import pytest

def test_one(data_folder):
    assert (data_folder("azure-llm-2023") / "SOURCE.md").exists()

def test_two(data_folder):
    assert data_folder("azure-llm-2023").is_dir()

def test_three():
    pytest.skip("needs chromium")

def test_four():
    import os
    assert os.environ["OMP_NUM_THREADS"] == "1"
"""


@pytest.fixture
def suite(root, run, tmp_path):
    """Run four tests beside a copy of our conftest.py, with MINILAB_DATA as given."""
    shutil.copy(root / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def call(data: str | None, *options: str) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MINILAB", "PYTEST"))}
        clean.pop("OMP_NUM_THREADS", None)
        clean["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # quick: nothing but what is tested here
        env = clean if data is None else {**clean, "MINILAB_DATA": data}
        pytest_here = (sys.executable, "-m", "pytest", "-q", "-p", "xdist", *options)
        return run(*pytest_here, cwd=tmp_path, env=env).stdout

    return call


@pytest.mark.parametrize("data", [None, "", "nowhere"])
def test_missing_data_skips_by_name(suite, data):
    """An empty MINILAB_DATA is what `make` exports without a data folder; it must not mean '.'."""
    output = suite(data)
    assert "3 skipped" in output
    assert "     2  needs azure-llm-2023" in output
    assert "     1  needs chromium" in output


def test_data_is_found_and_counted_across_workers(suite, tmp_path):
    """With two workers the counts are gathered, not printed by each; data that is there is used."""
    (tmp_path / "data" / "azure-llm-2023").mkdir(parents=True)
    (tmp_path / "data" / "azure-llm-2023" / "SOURCE.md").touch()
    output = suite(str(tmp_path / "data"), "-n", "2")
    assert output.count("skips by reason") == 1
    assert "1 skipped\n     1  needs chromium" in output
    assert "3 passed, 1 skipped" in output
