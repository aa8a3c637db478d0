"""One build of the site for all tests of this folder: the real pages, and two that hold everything.

The build goes to a temporary copy, so that the reader's own _build is left alone; outputs cached
there by `make book` are used, and stay valid only as long as the package is the same.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).parent / "sample"
for folder in (ROOT / "tools", ROOT / "_ext"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from build_book import BuildError, build, toc_pages  # noqa: E402
from site_browser import missing_parts, open_browser  # noqa: E402

BUILD_SECONDS = 600
SOURCES = ("_config.yml", "_toc.yml", "_ext", "book", "labs", "solutions", "src", "pyproject.toml")


@dataclass(frozen=True)
class Built:
    """source: the copy; html: its built site; pages: what its table of contents lists."""

    source: Path
    html: Path
    pages: list[str]


def copy_sources(target: Path) -> None:
    """The parts of the repository that make the site, plus the sample pages in the contents."""
    for name in SOURCES:
        origin = ROOT / name
        if origin.is_dir():
            shutil.copytree(
                origin, target / name, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        elif origin.exists():
            shutil.copy(origin, target / name)
    shutil.copy(SAMPLE / "sample.md", target / "book" / "sample.md")
    (target / "labs").mkdir(exist_ok=True)
    shutil.copy(SAMPLE / "sample.ipynb", target / "labs" / "99_sample.ipynb")
    toc = yaml.safe_load((target / "_toc.yml").read_text(encoding="utf-8"))
    toc["parts"].append({"caption": "Sample", "chapters": [{"file": "book/sample"}]})
    toc["parts"][-1]["chapters"].append({"file": "labs/99_sample"})
    (target / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The built site; with several test workers, the one that comes first builds for all."""
    base = tmp_path_factory.getbasetemp()
    source = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    done = source / "built"
    try:
        source.mkdir()
    except FileExistsError:
        deadline = time.monotonic() + BUILD_SECONDS
        while not done.exists():
            assert time.monotonic() < deadline, "the worker that builds the site did not finish"
            time.sleep(0.2)
    else:
        done.write_text(build_into(source), encoding="utf-8")
    assert done.read_text(encoding="utf-8") == "", f"no site: {done.read_text(encoding='utf-8')}"
    toc = yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8"))
    return Built(source, source / "_build" / "html", toc_pages(toc))


def build_into(source: Path) -> str:
    """Build, with the cached outputs of `make book` if there are any; "" or what went wrong."""
    copy_sources(source)
    cache = ROOT / "_build" / ".jupyter_cache"
    if cache.exists():
        shutil.copytree(cache, source / "_build" / ".jupyter_cache")
    try:
        build(source, source)
    except BuildError as err:
        return str(err)
    return ""


@pytest.fixture
def site_copy(built: Built, tmp_path: Path) -> Path:
    """A copy of the built site that a test may damage."""
    return Path(shutil.copytree(built.html, tmp_path / "html"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, or a skip that says what is missing."""
    missing = missing_parts()
    if missing:
        pytest.skip(missing)
    with open_browser() as chromium:
        yield chromium
