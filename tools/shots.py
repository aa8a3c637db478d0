"""Every page of the built site as a picture: light, dark, and as a phone shows it.

    python tools/shots.py [FOLDER] [--out DIR] [--only TEXT]

The pictures go to _build/shots/, as PAGE.light.png, PAGE.dark.png and PAGE.phone.png.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from site_browser import Visit, missing_parts, open_browser
from site_html import Site
from site_server import HTML, ROOT, serve

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "light": ("light", {"viewport": {"width": 1280, "height": 900}}),
    "dark": ("dark", {"viewport": {"width": 1280, "height": 900}}),
    "phone": (
        "light",
        {
            "viewport": {"width": 390, "height": 844},
            "device_scale_factor": 2,
            "is_mobile": True,
            "has_touch": True,
        },
    ),
}


def picture_path(out: Path, page: str, kind: str) -> Path:
    """book/goodput.html as a light picture: out/book.goodput.light.png."""
    return out / f"{page.removesuffix('.html').replace('/', '.')}.{kind}.png"


def take(folder: Path, out: Path, only: str = "") -> int:
    """Take the pictures of every page whose name contains `only`; how many were taken."""
    names = [name for name in Site(folder).pages if only in name and name != "index.html"]
    out.mkdir(parents=True, exist_ok=True)
    with serve(folder) as address, open_browser() as browser:
        for kind, (theme, options) in KINDS.items():
            visit = Visit(browser, address, theme, **options)
            for name in names:
                page = visit.go(name)
                page.screenshot(path=picture_path(out, name, kind), full_page=True)
            visit.close()
    return len(names) * len(KINDS)


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Take pictures of the built site.")
    parser.add_argument("folder", type=Path, nargs="?", default=HTML)
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "shots")
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    args = parser.parse_args(argv)
    if not (args.folder / "index.html").exists():
        parser.error(f"{args.folder} holds no site; run `make book` first")
    missing = missing_parts()
    if missing:
        print(f"shots: {missing}", file=sys.stderr)
        return 1
    print(f"{take(args.folder, args.out, args.only)} pictures in {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
