"""lab.show: every figure carries its text, reads on any background, and stays apart in colour."""

from __future__ import annotations

import io
import itertools
import re
import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from minilab import lab
from minilab.facts.errors import InputError
from minilab.lab.progress import session
from minilab.lab.show import draw, img

ALT = 'Goodput rises with the rate, then falls beyond 12 requests/s: the knee <a> & "b".'


@pytest.fixture
def figure() -> Any:
    with plt.style.context(lab.STYLE):
        fig, ax = plt.subplots()
        for slope in (1, 2, 3):
            ax.plot([0, 1, 2], [0, slope, slope / 2], label=f"budget {slope}")
        ax.set(xlabel="rate (1/s)", ylabel="goodput (1/s)", title="Goodput")
        ax.legend()
    yield fig
    plt.close(fig)


# --- the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alt",
    ["", "too short", "  x" + " " * 40, None, "Figure of goodput over the request rate",
     "image of a line that goes up and down", "PLOT OF goodput over the request rate"],
)  # fmt: skip
def test_a_figure_without_a_telling_text_is_refused(alt: Any, figure: Any) -> None:
    with pytest.raises(InputError, match=r"lab\.show: alt"):
        lab.show(figure, alt=alt)
    assert plt.fignum_exists(figure.number)  # the learner may mend the text and call again


def test_axes_in_place_of_the_figure_are_told_the_way_out(figure: Any) -> None:
    with pytest.raises(InputError, match=r"ax\.figure"):
        lab.show(figure.axes[0], alt=ALT)
    with pytest.raises(InputError, match="png"):
        lab.show(figure, alt=ALT, kind="pdf")


def test_the_text_survives_quotes_and_angle_brackets(figure: Any) -> None:
    text = img(draw(figure, ALT))
    assert "&lt;a&gt; &amp; &quot;b&quot;." in text
    assert text.count("<") == 1 and "http" not in text


def test_outside_a_notebook_it_is_quiet_closes_and_keeps_the_figure(
    figure: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.show(figure, alt=ALT) is None
    assert capsys.readouterr().out == ""
    assert not plt.fignum_exists(figure.number)
    assert [picture.alt for picture in session().pictures] == [ALT]


def test_a_cell_run_twice_keeps_one_figure_in_the_report(figure: Any) -> None:
    lab.show(figure, alt=ALT)
    lab.show(plt.figure(), alt=ALT)
    lab.show(plt.figure(), alt=ALT + " Another.")
    assert len(session().pictures) == 2


def test_in_ipython_the_output_is_one_image_with_its_text() -> None:
    code = """if True:
        import matplotlib; matplotlib.use("Agg")
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.utils.capture import capture_output
        shell = InteractiveShell.instance()
        with capture_output() as caught:
            shell.run_cell('''
import matplotlib.pyplot as plt
from minilab import lab
lab.style()
fig, ax = plt.subplots()
lab.show(fig, alt="Two axes with nothing on them, for a test")
''', silent=True)
        for output in caught.outputs:
            print(output.data["text/plain"], output.data["text/html"][:60])
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = found.stdout.splitlines()
    assert len(lines) == 1, found.stderr
    alt = "Two axes with nothing on them, for a test"
    assert lines[0].startswith(f'{alt} <img alt="{alt}" width')


# --- reading in light and dark -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_figure_gives_the_same_bytes(kind: str, figure: Any) -> None:
    assert draw(figure, ALT, kind).data == draw(figure, ALT, kind).data


def test_the_panel_is_opaque_white_whatever_the_notebook_set(figure: Any) -> None:
    with plt.rc_context({"savefig.facecolor": "black", "savefig.transparent": True}):
        picture = draw(figure, ALT)
    pixels = plt.imread(io.BytesIO(picture.data))[..., :3]
    frame = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    assert np.all(frame == 1.0)
    assert "background:#fff" in img(picture)
    assert picture.width == pytest.approx(pixels.shape[1] / 2, abs=1)  # dense screens stay sharp


def test_a_figure_of_lines_weighs_little_and_keeps_its_colours(figure: Any) -> None:
    picture = draw(figure, ALT)
    assert len(picture.data) < 80_000  # a page may weigh 1 MB
    pixels = (plt.imread(io.BytesIO(picture.data))[..., :3] * 255).round().reshape(-1, 3)
    for color in cycle()[:3]:
        away = np.abs(pixels - np.array(to_rgb(color)) * 255).max(axis=1)
        assert away.min() <= 4, color


def style(key: str) -> Any:
    return matplotlib.rc_params_from_file(str(lab.STYLE), use_default_template=False)[key]


def luminance(color: Any) -> float:
    """Relative luminance of WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(color: Any) -> float:
    return 1.05 / (luminance(color) + 0.05)


def cycle() -> list[str]:
    return [entry["color"] for entry in style("axes.prop_cycle")]


def test_colours_stand_out_from_white_3_to_1_and_text_4_5_to_1() -> None:
    assert len(cycle()) == 6
    assert min(contrast(color) for color in cycle()) >= 3.0
    for key in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color"):
        assert contrast(style(key)) >= 4.5, key


# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                        [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                        [-0.011820, 0.042940, 0.968881]]),
    "tritan": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                        [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip


def lab_colour(color: Any, blindness: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as seen with this blindness."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(blindness @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = (np.array(to_xyz) @ seen) / [0.9505, 1.0, 1.089]
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_colours_stay_apart_for_colour_blind_readers(blindness: str) -> None:
    seen = [lab_colour(color, BLINDNESS[blindness]) for color in cycle()]
    apart = {
        (i, j): float(np.linalg.norm(seen[i] - seen[j]))
        for i, j in itertools.combinations(range(6), 2)
    }
    assert min(apart.values()) >= 20, apart  # about 2 is just noticeable side by side
    assert min(d for (_, j), d in apart.items() if j < 4) >= 30, apart


def test_lines_differ_by_dashes_as_well_as_by_colour() -> None:
    dashes = [str(entry["linestyle"]) for entry in style("axes.prop_cycle")]
    assert len(set(dashes)) == len(dashes) == 6


def test_the_style_applies_to_figures_made_after_it() -> None:
    with plt.rc_context():
        lab.style()
        fig, ax = plt.subplots()
        assert not ax.spines["top"].get_visible()
        plt.close(fig)
    assert re.search(r"prop_cycle", lab.STYLE.read_text())
