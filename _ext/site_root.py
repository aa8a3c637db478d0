"""What a static host expects at the root of a site: 404.html, sitemap.xml, .nojekyll, index.html.

Why: the pages live in folders (book/, labs/, solutions/), and Sphinx writes nothing above them. The
404 page is an ordinary page, book/404.md, that is in no table of contents and no sitemap.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config

NOT_FOUND = "book/404"
_LINK = re.compile(r'(\s(?:href|src|data-content_root)=")([^"]*)(")')


def keep_not_found(app: Sphinx, config: Config) -> None:
    """Pages outside the table of contents are excluded; this one has to be built all the same."""
    config.exclude_patterns = [p for p in config.exclude_patterns if p != f"{NOT_FOUND}.md"]


def rebase(link: str, folder: str, base: str) -> str:
    """A link of a page in `folder`, as seen from the root (base "") or as a full path (base "/x/").

    Links to other sites, to anchors and full paths stay as they are.
    """
    if link.startswith(("#", "/")) or urlsplit(link).scheme:
        return link
    path, mark, rest = re.match(r"([^?#]*)([?#]?)(.*)", link, re.DOTALL).groups()  # type: ignore[union-attr]
    inside = normpath(join(folder, path)) if path else folder
    inside = "" if inside == "." else inside
    if path.endswith("/") and inside:
        inside += "/"
    return (base + inside or "./") + mark + rest


def write_not_found(outdir: Path, base: str) -> None:
    """Move the page to /404.html. A host shows it at any depth: full paths, once there's a base."""
    page = outdir / f"{NOT_FOUND}.html"
    if not page.exists():
        return
    folder = NOT_FOUND.rpartition("/")[0]
    text = _LINK.sub(
        lambda m: m[1] + rebase(m[2], folder, base) + m[3], page.read_text(encoding="utf-8")
    )
    (outdir / "404.html").write_text(text, encoding="utf-8")
    page.unlink()


def write_redirect(outdir: Path, start: str, title: str, baseurl: str) -> None:
    """The address of the site itself leads to the start page, with and without JavaScript."""
    canonical = f'<link rel="canonical" href="{escape(baseurl + start)}">\n' if baseurl else ""
    (outdir / "index.html").write_text(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="refresh" content="0; url={escape(start)}">\n{canonical}'
        f"<title>{escape(title)}</title>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        f'<p>The course starts at <a href="{escape(start)}">its first page</a>.</p>\n</main>\n'
        f"</body>\n</html>\n",
        encoding="utf-8",
    )


def write_sitemap(outdir: Path, pages: list[str], baseurl: str) -> None:
    """List every page. Without a base address the links are relative: good only for a look."""
    today = datetime.now(timezone.utc).date().isoformat()
    urls = "\n".join(
        f"  <url><loc>{escape(baseurl + page)}</loc><lastmod>{today}</lastmod></url>"
        for page in pages
    )
    (outdir / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}\n</urlset>\n',
        encoding="utf-8",
    )


def write_root(app: Sphinx, exception: Exception | None) -> None:
    """Write the four files, after every page is there."""
    if exception is not None or app.builder.name != "html":
        return
    outdir, baseurl = Path(app.outdir), app.config.html_baseurl
    target = app.builder.get_target_uri
    docs = sorted(doc for doc in app.env.found_docs if doc != NOT_FOUND)
    write_not_found(outdir, urlsplit(baseurl).path if baseurl else "")
    write_redirect(outdir, target(app.config.root_doc), app.config.html_title, baseurl)
    write_sitemap(outdir, [target(doc) for doc in docs], baseurl)
    (outdir / ".nojekyll").touch()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx, after the theme's own last steps."""
    app.connect("config-inited", keep_not_found, priority=900)
    app.connect("build-finished", write_root, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
