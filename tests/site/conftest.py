"""One build of the site for all tests of this folder, and a browser to look at it.

The build goes to a temporary copy, so that the reader's own _build is left alone; outputs that it
holds, or that an earlier test run kept, are used as long as the package is the same.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[1] / "tools", HERE.parents[1] / "_ext"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from asking import PREFIX, SECONDS  # noqa: E402
from built_site import Built, build_into  # noqa: E402

from build_book import toc_pages  # noqa: E402
from site_browser import missing_parts, open_browser  # noqa: E402
from site_server import serve  # noqa: E402

BUILD_SECONDS = 1800


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Built:
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
        done.write_text(build_into(source, pytestconfig), encoding="utf-8")
    assert done.read_text(encoding="utf-8") == "", f"no site: {done.read_text(encoding='utf-8')}"
    toc = yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8"))
    return Built(source, source / "_build" / "html", toc_pages(toc))


@pytest.fixture
def site_copy(built: Built, tmp_path: Path) -> Path:
    """A copy of the built site that a test may damage."""
    return Path(shutil.copytree(built.html, tmp_path / "html"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium, or a skip that says what is missing.

    One per file and not one per session: while it is open its event loop runs in this thread, and
    a test elsewhere that calls ``asyncio.run`` in the same worker would fail.
    """
    missing = missing_parts()
    if missing:
        pytest.skip(missing)
    with open_browser() as chromium:
        yield chromium


@pytest.fixture
def live_page(browser: Any, built: Built) -> Iterator[tuple[Any, str]]:
    with serve(built.html, PREFIX) as address:
        context = browser.new_context()
        tab = context.new_page()
        tab.set_default_timeout(SECONDS)
        yield tab, address.rstrip("/") + "/"
        context.close()
