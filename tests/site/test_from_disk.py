"""The site opened from a folder, with no server: what README says of it is true, and no more.

A browser gives a page from disk no origin: its scripts may read no file, not even their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built_site import Built

from site_browser import Visit
from site_html import Site

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def visit(browser: Any, built: Built) -> Iterator[Visit]:
    """A tab on the built site's own files."""
    tab = Visit(browser, built.html.as_uri() + "/")
    yield tab
    tab.close()


def said(visit: Visit) -> list[str]:
    return [str(finding) for finding in visit.findings]


def test_from_the_first_file_one_gets_to_a_lab(visit: Visit) -> None:
    page = visit.go("index.html")
    page.wait_for_url("**/book/index.html")
    page.locator("nav.bd-links").get_by_role("link", name="A page with everything").click()
    page.wait_for_url("**/book/sample.html")
    page.locator("nav.bd-links").get_by_role("link", name="A stored notebook").click()
    page.wait_for_url("**/labs/99_sample.html")
    assert page.locator("h1", has_text="A stored notebook").last.is_visible()
    assert said(visit) == []


def test_figures_formulas_icons_and_the_dark_switch_work(visit: Visit) -> None:
    page = visit.go("book/sample.html")
    page.wait_for_selector("mjx-container", timeout=10_000)
    natural = "[...document.querySelectorAll('article img')].map(i => i.naturalWidth)"
    widths = page.evaluate(natural)
    assert widths and min(widths) > 0, "a picture is missing"
    loaded = "[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family).join()"
    assert "Font Awesome" in page.evaluate(loaded), "the icons are empty boxes"
    for _ in range(3):
        if page.locator("html").get_attribute("data-theme") == "dark":
            break
        page.locator("button.theme-switch-button").first.click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert said(visit) == []


def test_the_search_lists_pages_without_excerpts(visit: Visit) -> None:
    """The second half is a limit that README names; the day it falls, README has to change."""
    page = visit.go("search.html?q=preemption")
    page.wait_for_selector("ul.search li a", timeout=10_000)
    assert "Glossary" in page.locator("ul.search").inner_text()
    assert page.locator("ul.search .context").count() == 0
    assert any("console-error" in one and "fetch" in one for one in said(visit))


@pytest.mark.slow
def test_no_page_has_a_fault(visit: Visit, built: Built) -> None:
    for name in Site(built.html).pages:
        if name != "search.html":
            visit.check(name)
    assert said(visit) == []


def test_readme_says_so() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "`file://`" in readme
    assert "Only the excerpts under the search's hits are missing there" in readme
