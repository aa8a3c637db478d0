"""Slides of a chapter: its figures, each with its heading and its words, as one HTML file.

    python tools/slides.py goodput [PAGE ...] [--html DIR] [--out FILE]

Reads built pages (`make book`). The file needs nothing else, runs no script and scrolls from slide
to slide (space, arrows, page keys); printed, each slide is a page. A figure's alternative text is
what the speaker says, so it stands in small print below the figure.
"""

from __future__ import annotations

import argparse
import base64
import html
import mimetypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
CSS = """
:root { color-scheme: light dark; --ink: #1f2937; --paper: #fff; --quiet: #4b5563; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e5e7eb; --paper: #18181b; --quiet: #a1a1aa; } }
html { scroll-snap-type: y mandatory; }
body { margin: 0; color: var(--ink); background: var(--paper);
       font: 1.1rem/1.5 system-ui, sans-serif; }
section { min-height: 100vh; box-sizing: border-box; padding: 4vh 6vw; scroll-snap-align: start;
          display: flex; flex-direction: column; justify-content: center; gap: 2vh; }
h1, h2 { margin: 0; line-height: 1.2; }
img { max-width: 100%; max-height: 62vh; object-fit: contain; background: #fff;
      align-self: center; }
p { margin: 0; max-width: 60rem; }
.words { font-size: .85rem; color: var(--quiet); }
@media print { section { break-after: page; min-height: 0; height: 100vh; } }
"""


@dataclass(frozen=True)
class Slide:
    """A figure below the heading it stands under; ``image`` is a data address."""

    heading: str
    image: str
    words: str


class SlideError(Exception):
    """No slides can be made; the message says why and what helps."""


def slides_of(page: Path) -> tuple[str, list[Slide]]:
    """The title of a built page and its figures in order. Raises SlideError."""
    if not page.is_file():
        raise SlideError(f"{page.name}: is not built; run `make book`, or name its folder: --html")
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    article = soup.find("article") or soup
    title = article.find("h1")
    found = list(_figures(article, page.parent))
    if title is None or not found:
        raise SlideError(f"{page.name}: has no figure to make a slide of; choose another page")
    return _text(title), found


def _figures(article: Any, folder: Path) -> Iterator[Slide]:
    heading = ""
    for node in article.find_all(["h1", "h2", "h3", "img"]):
        if node.name != "img":
            heading = _text(node)
        elif len(node.get("alt") or "") > 20:  # badges and icons say less
            yield Slide(heading, _inside(str(node["src"]), folder), str(node["alt"]))


def _text(node: Any) -> str:
    for link in node.find_all("a", class_="headerlink"):
        link.decompose()
    return " ".join(node.get_text().split())


def _inside(source: str, folder: Path) -> str:
    """The picture as a data address, so that the file needs no other."""
    if source.startswith("data:"):
        return source
    path = folder / source.partition("?")[0]
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def deck(chapters: list[tuple[str, list[Slide]]]) -> str:
    """The file."""
    parts = []
    for title, slides in chapters:
        named = html.escape(title)
        parts.append(f"<section><h1>{named}</h1><p>{len(slides)} figures</p></section>")
        parts += [_slide(slide) for slide in slides]
    titles = html.escape(", ".join(title for title, _ in chapters))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>Slides: {titles}</title>'
        f"<style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _slide(slide: Slide) -> str:
    alt = html.escape(slide.words)
    return (
        f'<section><h2>{html.escape(slide.heading)}</h2><img src="{html.escape(slide.image)}" '
        f'alt="{alt}"><p class="words" aria-hidden="true">{alt}</p></section>'
    )


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Slides from the figures of built pages.")
    parser.add_argument("pages", nargs="+", help="such as goodput, or book/goodput")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--out", type=Path, help="default: slides-PAGE.html in the current folder")
    args = parser.parse_args(argv)
    try:
        chapters = [slides_of(args.html / "book" / f"{Path(p).stem}.html") for p in args.pages]
    except SlideError as error:
        print(f"slides: {error}", file=sys.stderr)
        return 2
    out = args.out or Path(f"slides-{Path(args.pages[0]).stem}.html")
    out.write_text(deck(chapters), encoding="utf-8")
    print(f"{out}: {sum(len(slides) for _, slides in chapters)} slides")
    return 0


if __name__ == "__main__":
    sys.exit(main())
