"""What can be said of a built site from its files alone: links, assets, pictures, weight.

No browser and nothing but the standard library, so that these checks run everywhere. What only
shows when scripts run is in site_browser.py.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from posixpath import dirname, join, normpath
from urllib.parse import unquote, urlsplit

WEIGHT_LIMIT = 1_000_000
"""Bytes over the wire (gzip) of a page with all that it loads."""

LOADS = {
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("img", "srcset"),
    ("iframe", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("video", "src"),
    ("video", "poster"),
    ("audio", "src"),
    ("track", "src"),
    ("image", "href"),
    ("use", "href"),
}
LINK_LOADS = {"stylesheet", "icon", "shortcut icon", "preload", "modulepreload", "manifest"}
_UNSTAMPED = re.compile(r"\bOWNER\b")
"""The placeholder of a repository's owner: such a link leads to nobody's repository."""

_CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)['\"]?\s*\)|@import\s+['\"]([^'\"]+)['\"]")
_CSS_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """One defect. kind: dead-link, dead-asset, dead-anchor, unstamped-link, no-alt, ..."""

    page: str
    kind: str
    detail: str

    def __str__(self) -> str:
        """One line for a report."""
        return f"{self.page}: {self.kind}: {self.detail}"


@dataclass
class Page:
    """What the parser saw. links: targets of <a>; loads: what a browser fetches by itself."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    no_alt: list[str] = field(default_factory=list)


def means_nothing(alt: str | None, src: str) -> bool:
    """True for a text that tells a listener nothing: none, blank, or the file's own name."""
    if alt is None or not alt.strip():
        return True
    return bool(re.search(r"\.(?:png|svg|jpe?g|gif|webp)$", alt.strip())) or alt.strip() == src


class _Reader(HTMLParser):
    """Collect ids, links, loads and pictures of one page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.page.ids.add(given["id"])
        if tag == "a" and "name" in given:
            self.page.ids.add(given["name"])
        if tag in ("a", "area") and "href" in given:
            self.page.links.append(given["href"])
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.page.links.append(given.get("content", "").partition("url=")[2])
        if tag == "link" and given.get("rel", "").lower() in LINK_LOADS:
            self.page.loads.append(given.get("href", ""))
        for name, value in given.items():
            if (tag, name.removeprefix("xlink:")) in LOADS:
                self.page.loads += _srcset(value) if name == "srcset" else [value]
        if "style" in given:
            self.page.loads += css_urls(given["style"])
        self._style = tag == "style"
        self._picture(tag, given)

    def _picture(self, tag: str, given: dict[str, str]) -> None:
        if given.get("aria-hidden") == "true" or given.get("role") in ("presentation", "none"):
            return
        if tag == "img" and means_nothing(given.get("alt"), given.get("src", "")):
            src, alt = given.get("src", "")[:80], given.get("alt")
            self.page.no_alt.append(f"<img src={src!r} alt={alt!r}>")
        if tag == "svg" and not given.get("aria-label"):
            self.page.no_alt.append("<svg> without aria-label, and not aria-hidden")

    def handle_data(self, data: str) -> None:
        if self._style:
            self.page.loads += css_urls(data)

    def handle_endtag(self, tag: str) -> None:
        self._style = False


def _srcset(value: str) -> list[str]:
    return [part.split()[0] for part in value.split(",") if part.strip()]


def css_urls(text: str) -> list[str]:
    """Every address a style sheet names, comments left out."""
    return [a or b for a, b in _CSS_URL.findall(_CSS_COMMENT.sub("", text))]


def parse(text: str) -> Page:
    """Read one page."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def is_foreign(url: str) -> bool:
    """True for an address at a host: even one's own host by its name breaks a copy elsewhere."""
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "ws", "wss", "ftp")


class Site:
    """A built site in a folder. base: the path it will be served under, "/" or "/name/"."""

    def __init__(self, folder: Path, base: str = "/") -> None:
        """Read every page below the folder, except what a theme brought along in _static."""
        self.folder = folder
        self.base = f"/{base.strip('/')}/".replace("//", "/")
        self.files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        names = sorted(
            f for f in self.files if f.endswith(".html") and not f.startswith("_static/")
        )
        self.pages = {n: parse((folder / n).read_text(encoding="utf-8")) for n in names}
        self._weigh = cache(lambda name: len(gzip.compress((folder / name).read_bytes(), 6)))

    def resolve(self, page: str, url: str) -> str | None:
        """The file that a link of a page leads to, None if that leaves the site's folder."""
        path = unquote(urlsplit(url).path)
        if not path:
            return page
        if path.startswith("/"):
            if not path.startswith(self.base):
                return None
            path = "./" + path[len(self.base) :]
            page = ""
        target = normpath(join(dirname(page), path))
        if target.startswith(".."):
            return None
        if path.endswith("/") or target == "." or (self.folder / target).is_dir():
            target = normpath(join(target, "index.html"))
        return target

    def link_findings(self, name: str) -> list[Finding]:
        """Links into the site whose page or anchor does not exist, and links to nobody."""
        found = []
        for url in self.pages[name].links:
            parts = urlsplit(url)
            if _UNSTAMPED.search(url):
                found.append(Finding(name, "unstamped-link", url))
            if is_foreign(url) or parts.scheme in ("mailto", "javascript", "data", "tel"):
                continue
            target = self.resolve(name, url)
            if target is None or target not in self.files:
                found.append(Finding(name, "dead-link", url))
            elif parts.fragment and target in self.pages:
                ids = self.pages[target].ids
                if unquote(parts.fragment) not in ids and parts.fragment not in ("top", ""):
                    found.append(Finding(name, "dead-anchor", url))
        return found

    def assets(self, name: str) -> tuple[set[str], list[Finding]]:
        """Every file that a page fetches, through style sheets too, and what is wrong with them."""
        seen: set[str] = set()
        found: list[Finding] = []
        todo = [(name, url, True) for url in self.pages[name].loads]
        while todo:
            origin, url, direct = todo.pop()
            if not url or urlsplit(url).scheme in ("data", "blob", "about") or url.startswith("#"):
                continue
            if is_foreign(url):
                found.append(Finding(name, "foreign-request", f"{url} (from {origin})"))
                continue
            target = self.resolve(origin, url)
            if target is None or target not in self.files:
                found.append(Finding(name, "dead-asset", f"{url} (from {origin})"))
                continue
            if target in seen:
                continue
            if direct or not target.endswith((".woff2", ".woff", ".ttf", ".eot")):
                seen.add(target)  # a font named in a style sheet is fetched only when it's used
            if target.endswith(".css"):
                text = (self.folder / target).read_text(encoding="utf-8")
                todo += [(target, inner, False) for inner in css_urls(text)]
        return seen, found

    def weight(self, name: str) -> int:
        """Bytes of the page and what it fetches, each compressed by gzip."""
        return self._weigh(name) + sum(self._weigh(asset) for asset in self.assets(name)[0])

    def findings(self) -> list[Finding]:
        """Everything wrong with every page."""
        found: list[Finding] = []
        for name, page in self.pages.items():
            found += self.link_findings(name) + self.assets(name)[1]
            found += [Finding(name, "no-alt", text) for text in page.no_alt]
            weight = self.weight(name)
            if weight > WEIGHT_LIMIT:
                found.append(
                    Finding(name, "too-heavy", f"{weight:,} bytes (gzip), limit {WEIGHT_LIMIT:,}")
                )
        return found
