"""Look at every page of the built site for what a reader must never meet.

    python tools/crawl.py [FOLDER] [--prefix /name/] [--no-browser] [--axe]

Reported, one line each, and the exit status is 1 if there is one: a request to another site, a dead
link, anchor or asset, an error in the console, a picture without a text, a page over 1 MB (gzip),
and with --axe every serious finding of axe in light and in dark.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from site_browser import THEMES, Visit, browse, missing_parts, open_browser
from site_html import Finding, Site
from site_server import HTML, serve


def crawl_with_browser(site: Site, axe: bool = False) -> list[Finding]:
    """Visit every page in Chromium, under the site's own sub-path."""
    names = list(site.pages)
    with serve(site.folder, site.base) as address, open_browser() as browser:
        found = browse(browser, address, names)
        for theme in THEMES if axe else ():
            visit = Visit(browser, address, theme)
            for name in names:
                found += visit.axe(name)
            visit.close()
    return found


def report_weights(site: Site) -> None:
    """Print the heaviest pages."""
    weights = sorted(((site.weight(name), name) for name in site.pages), reverse=True)
    for weight, name in weights[:5]:
        print(f"{weight / 1000:8.0f} kB (gzip)  {name}")


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Crawl the built site.")
    parser.add_argument("folder", type=Path, nargs="?", default=HTML)
    parser.add_argument("--prefix", default="/", help="sub-path it will be served under: /name/")
    parser.add_argument("--no-browser", action="store_true", help="only what the files tell")
    parser.add_argument("--axe", action="store_true", help="accessibility too (slow)")
    args = parser.parse_args(argv)
    if not (args.folder / "index.html").exists():
        parser.error(f"{args.folder} holds no site; run `make book` first")
    site = Site(args.folder, args.prefix)
    found = site.findings()
    seen = "read"
    if not args.no_browser:
        missing = missing_parts()
        if missing:
            print(f"crawl: browser part left out: {missing}", file=sys.stderr)
        else:
            found += crawl_with_browser(site, args.axe)
            seen = "read and visited"
    for finding in found:
        print(finding)
    report_weights(site)
    print(f"{len(site.pages)} pages {seen}, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
