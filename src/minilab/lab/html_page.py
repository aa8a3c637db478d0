"""A page of its own: HTML that needs no other file, reads in light and dark, and runs no script.

Text is escaped here and nowhere else, so a caller passes plain text to ``table``, ``bullets`` and
``paragraphs``, and only what these returned to ``section`` and ``document``.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

CSS = """
:root { color-scheme: light dark; --ink: #1f2937; --paper: #fff; --line: #d4d4d8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --paper: #18181b; --line: #52525b; } }
body { color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif;
       max-width: 48rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
         border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; }
.wide th[scope="row"] { min-width: 8rem; }
figure { margin: 1.5rem 0; }
figcaption { font-size: .9rem; margin-top: .3rem; }
"""


def document(title: str, parts: Iterable[str], more_css: str = "") -> str:
    """The whole page; ``parts`` are HTML, empty ones are left out."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>{CSS}{more_css}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(part for part in parts if part) + "\n</main>\n</body>\n"
        "</html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{html.escape(text)}</h{level}>"


def section(title: str, content: str, level: int = 2) -> str:
    """A heading and what stands below it; nothing at all without content."""
    return f"{heading(title, level)}\n{content}" if content else ""


def paragraphs(text: str) -> str:
    """Text whose paragraphs are separated by empty lines."""
    parts = [part.strip() for part in text.split("\n\n") if part.strip()]
    return "\n".join(f"<p>{html.escape(part)}</p>" for part in parts)


def bullets(lines: Iterable[str]) -> str:
    """A list; nothing for no lines."""
    items = [f"<li>{html.escape(line)}</li>" for line in lines]
    return "<ul>\n" + "\n".join(items) + "\n</ul>" if items else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str) -> str:
    """A table that scrolls by itself on a narrow screen; ``label`` is its name for a reader who
    hears the page. The first cell of a row is its header.
    """
    top = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    lines = [f"<tr>{top}</tr>"]
    for first, *rest in rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{html.escape(first)}</th>{cells}</tr>')
    name = html.escape(label)
    # tabindex: what scrolls must be reachable without a mouse
    return (
        f'<div class="wide" role="region" aria-label="{name}" tabindex="0"><table>\n'
        + "\n".join(lines)
        + "\n</table></div>"
    )


def folded(summary: str, content: str) -> str:
    """Content that a reader opens."""
    return f"<details><summary>{html.escape(summary)}</summary>\n{content}\n</details>"
