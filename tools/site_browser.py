"""What a real browser sees of a built site: requests, errors in the console, axe, pictures.

Needs Playwright for Python and a Chromium that is already installed; `find_chromium` says where.
Every request that leaves the site's own address is refused and reported.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.resources
import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, cast

from site_html import WEIGHT_LIMIT, Finding

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
Theme = Literal["light", "dark"]
THEMES = ("light", "dark")
Moment = Literal["load", "networkidle"]
SERIOUS = ("serious", "critical")


def find_chromium() -> str | None:
    """The browser: $CHROMIUM if set, else the first known name on the path, else None."""
    given = os.environ.get("CHROMIUM")
    if given:
        return given if os.path.exists(given) else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def missing_parts() -> str | None:
    """What a browser check would need and isn't here, in one phrase, or None."""
    if find_chromium() is None or importlib.util.find_spec("playwright") is None:
        return "needs chromium"
    return None


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A headless Chromium. Raises RuntimeError where there is none."""
    missing = missing_parts()
    if missing:
        raise RuntimeError(f"{missing}: install Chromium and `pip install playwright`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=find_chromium(), headless=True, args=list(FLAGS)
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page open in a browser, with all that went wrong on it.

    site: the address of the site's root; whatever lies outside is refused.
    """

    def __init__(self, browser: Browser, site: str, theme: str = "light", **options: Any) -> None:
        """Open an empty tab; the theme is what the reader's system prefers and has chosen."""
        self.site, self.theme = site, theme
        self.findings: list[Finding] = []
        self.weight = 0
        self._name = ""
        options.setdefault("viewport", {"width": 1280, "height": 900})
        self.context = browser.new_context(color_scheme=cast(Theme, theme), **options)
        self.context.add_init_script(
            f"try {{ localStorage.setItem('mode', '{theme}');"
            f" localStorage.setItem('theme', '{theme}'); }} catch (error) {{}}"
        )
        self.page: Page = self.context.new_page()
        self.page.route("**/*", self._route)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self._note("console-error", str(error)))
        self.page.on("response", self._response)
        self.page.on("requestfailed", self._failed)

    def _note(self, kind: str, detail: str) -> None:
        self.findings.append(Finding(self._name, kind, detail.strip()[:300]))

    def _route(self, route: Route) -> None:
        url = route.request.url
        if url.startswith((self.site, "data:", "blob:")):
            route.continue_()
        else:
            self._note("foreign-request", url)
            route.abort()

    def _console(self, message: Any) -> None:
        if message.type == "error" and "ERR_FAILED" not in message.text:  # noted as a request
            where = message.location.get("url", "").removeprefix(self.site)
            self._note("console-error", f"{message.text} ({where})")

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self._note("dead-asset", f"{response.status} {response.url.removeprefix(self.site)}")
        elif response.url.startswith(self.site):
            with contextlib.suppress(Exception):  # a redirect has no body
                self.weight += len(gzip.compress(response.body(), 6))

    def _failed(self, request: Any) -> None:
        if request.url.startswith(self.site) and "ERR_ABORTED" not in (request.failure or ""):
            self._note("dead-asset", f"{request.failure} {request.url.removeprefix(self.site)}")

    def go(self, name: str, until: Moment = "networkidle") -> Page:
        """Load a page and wait until it is quiet (or only until "load", half a second sooner)."""
        self._name, self.weight = name, 0
        self.page.goto(self.site + name, wait_until=until)
        return self.page

    def check(self, name: str) -> list[Finding]:
        """Load a page; give what went wrong while it loaded, and its weight if that's too much."""
        before = len(self.findings)
        self.go(name)
        if self.weight > WEIGHT_LIMIT:
            self._note("too-heavy", f"{self.weight:,} bytes (gzip), limit {WEIGHT_LIMIT:,}")
        return self.findings[before:]

    def axe(self, name: str) -> list[Finding]:
        """Load a page and let axe judge it; its serious and critical findings."""
        self.go(name)
        script = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js")
        self.page.evaluate(script.read_text(encoding="utf-8"))
        result = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            Finding(name, f"axe-{one['id']}", f"{self.theme}: {one['help']}: {node['html'][:160]}")
            for one in result["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"]
        ]

    def close(self) -> None:
        """Close the tab and forget what it stored."""
        self.context.close()


def browse(browser: Browser, site: str, names: list[str]) -> list[Finding]:
    """Visit pages one after the other; everything found."""
    visit = Visit(browser, site)
    try:
        return [finding for name in names for finding in visit.check(name)]
    finally:
        visit.close()
