"""Readers without a mouse, without scripts, or with a phone: every page has to serve them too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from built_site import Built

from site_browser import Visit
from site_html import Site
from site_server import serve

PHONE = 390
MOST_STOPS = 200
ORDER = ["skip", "title", "search", "menu", "tools", "text", "next", "contents", "footer"]
"""Where the tab key leads, part by part: past the menu by the first stop, or through it."""

STOP = """() => {
  const e = document.activeElement;
  if (e === document.body) return null;
  const parts = {
    skip: '#pst-skip-link', title: '.navbar-brand', search: '.search-button-field',
    menu: 'nav.bd-links', tools: '.bd-header-article', next: '.prev-next-footer',
    text: 'article', contents: '.bd-toc-nav', footer: '.bd-footer-content',
  };
  const label = e.labels && e.labels[0];
  const style = getComputedStyle(label || e, e.matches('.sd-stretched-link') ? '::after' : null);
  const shadow = !/^none$|rgba\\([^)]*, 0\\)/.test(style.boxShadow);
  return {
    part: Object.keys(parts).find(name => e.closest(parts[name])) || e.outerHTML.slice(0, 120),
    name: (e.getAttribute('aria-label') || e.title || (label || e).textContent).trim().slice(0, 60),
    shown: (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || shadow,
  };
}"""
IN_TEXT = """() => [...document.querySelectorAll('main article :is(a[href], button, summary)')]
  .filter(e => e.checkVisibility() && !e.closest('details:not([open]) > :not(summary)')
          && !e.matches('a.headerlink, [tabindex="-1"]')).length"""
CUT = """() => [...document.querySelectorAll('article :is(td, th)')]
  .filter(e => e.textContent.trim().length > 2 && e.checkVisibility() && e.clientWidth < 40)
  .map(e => e.textContent.trim().slice(0, 40))"""
UNSEEN = """() => [...document.querySelectorAll(
    'main article :is(h1, h2, h3, p, li, td, th, dt, dd, pre, img, svg, figcaption)')]
  .filter(e => !e.closest('details:not([open]), .sd-tab-content, [aria-hidden=true]'))
  .filter(e => !e.checkVisibility({opacityProperty: true, visibilityProperty: true})
               || (e.textContent.trim() && getComputedStyle(e).color === 'rgba(0, 0, 0, 0)'))
  .map(e => e.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def site(built: Built) -> Iterator[str]:
    """Address of the served site."""
    with serve(built.html) as address:
        yield address


def pages(html: Path) -> list[str]:
    """Every page but the one that only leads on."""
    return [name for name in Site(html).pages if name != "index.html"]


def tab_through(page: Any) -> list[dict[str, Any]]:
    """Every stop of the tab key from the top of the page until it leaves it."""
    stops = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None:
            return stops
        stops.append(stop)
    raise AssertionError(f"after {MOST_STOPS} stops still on the page: {stops[-3:]}")


@pytest.mark.parametrize("name", ["book/index.html", "book/sample.html", "book/goodput.html"])
def test_the_tab_key_goes_from_part_to_part_in_reading_order(
    browser: Any, site: str, name: str
) -> None:
    visit = Visit(browser, site)
    page = visit.go(name)
    reachable = page.evaluate(IN_TEXT)
    stops = tab_through(page)
    visit.close()
    assert [part for part, _ in groupby(stop["part"] for stop in stops)] == ORDER
    assert [stop["name"] for stop in stops if not stop["name"]] == [], "a stop without a name"
    assert [stop["name"] for stop in stops if not stop["shown"]] == [], "where am I?"
    assert sum(stop["part"] == "text" for stop in stops) >= reachable > 3


def test_the_first_stop_skips_the_menu(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    page = visit.go("book/index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main-content"
    page.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main-content"
    assert page.locator("#main-content").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate(STOP)["part"] in ("tools", "text"), "the menu was not skipped"
    visit.close()


def test_answers_open_and_the_search_closes_from_the_keyboard(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    page = visit.go("book/goodput.html")
    answer = page.locator("article details.sd-dropdown").first
    answer.locator("summary").focus()
    page.keyboard.press("Enter")
    assert answer.get_attribute("open") is not None
    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.type") != "search"
    visit.close()


def test_no_page_moves_sideways_on_a_phone(browser: Any, site: str, built: Built) -> None:
    """A wide table, line or picture scrolls in a box of its own, and no word is cut in letters."""
    visit = Visit(browser, site, viewport={"width": PHONE, "height": 844}, is_mobile=True)
    width = "document.documentElement.scrollWidth"
    wide, cut = {}, {}
    for name in pages(built.html):
        page = visit.go(name, "load")
        if (found := page.evaluate(width)) > PHONE:
            wide[name] = found
        if cells := page.evaluate(CUT):
            cut[name] = cells
    assert wide == {}
    assert cut == {}
    page = visit.go("book/sample.html", "load")
    page.evaluate("document.querySelector('article p').style.width = '600px'")
    page.evaluate(
        "document.querySelector('.text_html th').style.cssText = 'display:block;width:9px'"
    )
    assert page.evaluate(width) > PHONE and page.evaluate(CUT) != [], "a planted fault was not seen"
    visit.close()


def test_every_page_can_be_read_without_scripts(browser: Any, site: str, built: Built) -> None:
    visit = Visit(browser, site, java_script_enabled=False)
    page = visit.go("search.html", "load")
    notice = page.locator(".bd-search-container noscript p", has_text="JavaScript")
    assert notice.is_visible(), "the search can't do without, and has to say so"
    unseen = {}
    for name in pages(built.html):
        if name == "search.html":
            continue
        page = visit.go(name, "load")
        assert page.locator("main article h1").first.is_visible(), name
        if found := page.evaluate(UNSEEN):
            unseen[name] = found
    assert unseen == {}
    page = visit.go("book/sample.html", "load")
    for text in ("Folded until asked for.", "data: sample (synthetic, seed 0)"):
        assert page.get_by_text(text).last.is_visible(), text
    assert page.locator("article math").count() == 2, "formulas are left as TeX"
    assert page.locator("article math").first.is_visible()
    assert "\\frac" not in page.locator("article").inner_text()
    visit.close()


def test_a_formula_stays_tex_for_mathjax_where_scripts_run(browser: Any, site: str) -> None:
    """The fallback must not show beside the drawn formula, nor be read out a second time."""
    visit = Visit(browser, site)
    page = visit.go("book/sample.html")
    page.wait_for_selector("mjx-container", timeout=10_000)
    drawn = page.locator("article mjx-container").count()
    assert drawn == page.locator("article .math").count() == 2
    assert page.locator("article math").count() == drawn, "only MathJax's own, for screen readers"
    assert page.locator("article .tex").first.is_visible()
    visit.close()


def test_the_figures_of_a_stored_notebook_are_looked_at(site_copy: Path) -> None:
    """No build of ours draws them: an output that says nothing has to be found all the same."""
    path = site_copy / "solutions" / "01_goodput.html"
    text = path.read_text(encoding="utf-8")
    alts = re.findall(r'<img alt="([^"]*)" width', text)
    assert len(alts) >= 3 and min(map(len, alts)) >= 20
    path.write_text(re.sub(r'<img alt="[^"]*" width', "<img width", text), encoding="utf-8")
    found = [one.page for one in Site(site_copy).findings() if one.kind == "no-alt"]
    assert found == ["solutions/01_goodput.html"] * len(alts)
