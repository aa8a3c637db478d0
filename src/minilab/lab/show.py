"""Show a figure with its alternative text, as one image that reads in light and dark alike.

The image is an ``<img alt=...>`` with its bytes inside, so that Jupyter, Colab and the built site
all carry the text, and nothing is fetched. It sits on a white rounded panel of its own: a
transparent figure would depend on every reader's background.
"""

from __future__ import annotations

import base64
import html
import importlib
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minilab.facts.errors import InputError
from minilab.lab.progress import Picture, session

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("course.mplstyle")
LEAST_ALT = 20
DPI = 192  # twice the screen's 96, so that text is sharp on dense displays
_EMPTY_STARTS = ("figure of", "image of", "picture of", "plot of", "graph of")
_PANEL = (
    "max-width:100%;height:auto;background:#fff;border:1px solid #d4d4d8;"
    "border-radius:10px;padding:8px;box-sizing:border-box"
)


def style() -> None:
    """Draw figures made from here on in the course's style (colours, sizes, white panel)."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    pyplot.style.use(STYLE)


def show(fig: Figure, *, alt: str, kind: str = "png") -> None:
    """Display a matplotlib figure with its alternative text, and close it.

    alt: what a reader who can't see the figure must know: the axes, the trend, the boundary; at
    least 20 characters. kind: "png", or "svg" for few and sharp lines. Outside IPython nothing is
    displayed; the report gets the figure in any case. Raises InputError for a missing alt text or
    something that is no figure.
    """
    picture = draw(fig, alt, kind)
    session().keep(picture)
    importlib.import_module("matplotlib.pyplot").close(fig)
    shell = sys.modules.get("IPython")
    if shell is not None and shell.get_ipython() is not None:
        display = importlib.import_module("IPython.display")
        display.display({"text/html": img(picture), "text/plain": picture.alt}, raw=True)


def draw(fig: Figure, alt: str, kind: str = "png") -> Picture:
    """The figure as bytes with its alt text; the same figure gives the same bytes."""
    text = _checked_alt(alt)
    if kind not in ("png", "svg"):
        raise InputError(f'lab.show: kind={kind!r}; it is "png" or "svg"')
    if not hasattr(fig, "savefig"):
        raise InputError(
            f"lab.show: got {type(fig).__name__}, not a matplotlib Figure; pass the figure "
            "(for axes: ax.figure)"
        )
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None}
    with importlib.import_module("matplotlib").rc_context(fname=STYLE):  # its savefig.*, svg.*
        fig.savefig(buffer, format=kind, dpi=DPI if kind == "png" else 96, metadata=metadata)
    data = buffer.getvalue()
    if kind == "svg":
        return Picture(text, "svg+xml", data, round(fig.get_figwidth() * 96))
    return Picture(text, "png", *_with_palette(data))


def _with_palette(png: bytes) -> tuple[bytes, int]:
    """The PNG in 255 colours, a third of its bytes, and its width on screen: pages stay light."""
    pillow = importlib.import_module("PIL.Image")  # matplotlib depends on it
    picture = pillow.open(io.BytesIO(png)).convert("RGB")
    buffer = io.BytesIO()
    picture.quantize(255, dither=pillow.Dither.NONE).save(buffer, "png", optimize=True)
    return buffer.getvalue(), picture.width * 96 // DPI


def img(picture: Picture) -> str:
    """The picture as one HTML element that needs nothing else."""
    data = base64.b64encode(picture.data).decode("ascii")
    return (
        f'<img alt="{html.escape(picture.alt)}" width="{picture.width}" style="{_PANEL}" '
        f'src="data:image/{picture.kind};base64,{data}">'
    )


def _checked_alt(alt: str) -> str:
    text = " ".join(alt.split()) if isinstance(alt, str) else ""
    if len(text) < LEAST_ALT:
        raise InputError(
            f"lab.show: alt={alt!r} has {len(text)} characters, at least {LEAST_ALT} are asked; "
            "say what the figure shows: the axes, the trend, where it turns"
        )
    for start in _EMPTY_STARTS:
        if text.casefold().startswith(start):
            raise InputError(
                f'lab.show: alt starts with "{text[: len(start)]}", which a reader knows already; '
                "start with what it shows"
            )
    return text
