"""`{svg-figure}`: a drawing put into the page itself, so that it follows the light and dark switch.

Why: an SVG shown through <img> sees the reader's system setting, not the switch on the page, and
can't use the page's colours. The drawing may use the classes and colour variables of
book/assets/lab.css. Alternative text is required: without it the build fails.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def inline_svg(source: str, alt: str) -> str:
    """The <svg> element of a file, announced to a screen reader as one picture with this text."""
    match = re.search(r"<svg\b.*</svg>", source, re.DOTALL)
    if match is None:
        raise ValueError("the file holds no <svg> element")
    return re.sub(r"<svg\b", f'<svg role="img" aria-label="{escape(alt)}"', match[0], count=1)


class SvgFigure(SphinxDirective):
    """`{svg-figure} file.svg` with the option :alt: and the caption as its content."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {
        "alt": directives.unchanged_required,
        "class": directives.class_option,
        "name": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Return one figure: the drawing, and its caption if there is one."""
        relative, absolute = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        if not self.options.get("alt", "").strip():
            raise self.error(f"{self.arguments[0]}: a figure needs :alt:, the text read aloud")
        try:
            svg = inline_svg(Path(absolute).read_text(encoding="utf-8"), self.options["alt"])
        except (OSError, ValueError) as err:
            raise self.error(f"{self.arguments[0]}: {err}") from err
        figure = nodes.figure(classes=["svg-figure", *self.options.get("class", [])])
        figure += nodes.raw("", svg, format="html")
        if self.content:
            caption = nodes.caption()
            text, _ = self.state.inline_text(" ".join(self.content), self.lineno)
            caption.extend(text)
            figure += caption
        self.add_name(figure)
        return [figure]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("svg-figure", SvgFigure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
