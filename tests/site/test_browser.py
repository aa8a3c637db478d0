"""What only a browser can tell. Without Chromium these tests skip with "needs chromium"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from built_site import Built

from site_browser import THEMES, Visit
from site_html import Site
from site_server import serve

PREFIX = "/name/"
"""Where a project site lives on its host; a link from the host's root would be dead there."""

FAST = ("index.html", "book/index.html", "book/sample.html", "labs/99_sample.html", "404.html")


def visit_pages(browser: Any, html: Path, names: list[str], theme: str = "light") -> list[str]:
    with serve(html, PREFIX) as address:
        visit = Visit(browser, address, theme)
        found = [str(one) for name in names for one in visit.check(name)]
        visit.close()
    return found


def axe(browser: Any, html: Path, names: list[str], theme: str, **options: Any) -> list[str]:
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    with serve(html, PREFIX) as address:
        visit = Visit(browser, address, theme, **options)
        found = [str(one) for name in names for one in visit.axe(name)]
        visit.close()
    return found


def test_pages_of_every_kind_load_without_a_fault(browser: Any, built: Built) -> None:
    assert visit_pages(browser, built.html, list(FAST)) == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
def test_all_pages_load_without_a_fault(browser: Any, built: Built, theme: str) -> None:
    names = list(Site(built.html).pages)
    assert len(names) >= len(built.pages)
    assert visit_pages(browser, built.html, names, theme) == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_serious_on_any_page(browser: Any, built: Built, theme: str) -> None:
    assert axe(browser, built.html, list(Site(built.html).pages), theme) == []


@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_serious_on_the_page_with_everything(
    browser: Any, built: Built, theme: str
) -> None:
    assert axe(browser, built.html, ["book/sample.html"], theme) == []


@pytest.mark.slow
def test_axe_finds_nothing_serious_on_a_phone(browser: Any, built: Built) -> None:
    """Only there do tables scroll, and need a key to scroll them with."""
    names = list(Site(built.html).pages)
    assert axe(browser, built.html, names, "light", viewport={"width": 390, "height": 844}) == []


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        ("console-error", "<script>console.error('planted')</script>"),
        ("console-error", "<script>const A = 1</script><script>const A = 2</script>"),
        ("foreign-request", "<script src='https://cdn.example.org/x.js'></script>"),
        (
            "foreign-request",
            "<script>fetch('https://stats.example.org/hit').catch(() => 0)</script>",
        ),
        ("foreign-request", "<script>new Image().src = 'http://127.0.0.1:9/x.png'</script>"),
        ("foreign-request", "<script>fetch('/above-the-site.json').catch(() => 0)</script>"),
        ("dead-asset", "<script>fetch('gone.json')</script>"),
    ],
)
def test_a_planted_fault_is_seen(browser: Any, site_copy: Path, kind: str, planted: str) -> None:
    page = site_copy / "labs" / "99_sample.html"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", planted + "</body>"), encoding="utf-8")
    found = visit_pages(browser, site_copy, ["labs/99_sample.html"])
    assert any(f": {kind}: " in one for one in found), found


@pytest.mark.parametrize(
    ("rule", "planted"),
    [
        ("axe-image-alt", "<img src='../_static/favicon.svg'>"),
        ("axe-button-name", "<button></button>"),
        ("axe-color-contrast", "<p style='color:#999;background:#aaa'>hard to read</p>"),
    ],
)
def test_axe_sees_a_planted_fault(browser: Any, site_copy: Path, rule: str, planted: str) -> None:
    page = site_copy / "labs" / "99_sample.html"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("</article>", planted + "</article>"), encoding="utf-8")
    found = axe(browser, site_copy, ["labs/99_sample.html"], "light")
    assert len(found) == 1, found
    assert f": {rule}: " in found[0]


def luminance(page: Any, selector: str) -> float:
    """Of the first element on the way up that has a background: 0 black, 1 white."""
    return float(
        page.evaluate(
            """selector => {
              for (let e = document.querySelector(selector); e; e = e.parentElement) {
                const [r, g, b, a] = getComputedStyle(e).backgroundColor.match(/[0-9.]+/g);
                if (a !== '0') return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
              }
              return 1;
            }""",
            selector,
        )
    )


def test_in_dark_mode_tables_are_dark_and_figures_have_light_paper(
    browser: Any, built: Built
) -> None:
    with serve(built.html) as address:
        visit = Visit(browser, address, "dark")
        page = visit.go("book/sample.html")
        assert luminance(page, "body") < 0.2
        assert luminance(page, ".cell_output .text_html td") < 0.2, "a light panel around a table"
        assert luminance(page, ".cell_output img") > 0.98, "black axes on a dark page"
        visit.close()


def test_a_formula_is_drawn_and_can_be_read_aloud(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        visit = Visit(browser, address)
        page = visit.go("book/sample.html")
        page.wait_for_selector("mjx-container", timeout=10_000)
        assert page.locator("mjx-container").count() == 2
        assert page.locator("mjx-assistive-mml math").count() == 2
        visit.close()


@pytest.mark.parametrize("word", ["preemption", "抢占"])
def test_the_search_finds_a_word_of_the_glossary(browser: Any, built: Built, word: str) -> None:
    with serve(built.html, PREFIX) as address:
        visit = Visit(browser, address)
        page = visit.go(f"search.html?q={word}")
        page.wait_for_selector("ul.search li a", timeout=10_000)
        assert "Glossary" in page.locator("ul.search").inner_text()
        assert [str(one) for one in visit.findings] == []
        visit.close()


def test_an_address_that_leads_nowhere_shows_the_404_page(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        visit = Visit(browser, address)
        page = visit.go("book/deep/nowhere.html")
        assert page.locator("h1", has_text="not here").last.is_visible()
        page.get_by_role("link", name="the glossary").click()
        page.wait_for_url("**/book/glossary.html")
        visit.close()
