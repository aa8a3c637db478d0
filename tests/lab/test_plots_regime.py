"""The picture of a regime map: readable without colour, without the picture, and with its boundary.

Failures these tests exist for: verdicts that only a colour tells apart, a line that runs around the
wrong cells, an alternative text whose counts, extremes or boundary are not the map's.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from minilab.facts.confidence import Interval
from minilab.lab import plots
from minilab.lab.plots_base import INK
from minilab.lab.plots_regime import FILLS, SYMBOLS
from minilab.lab.show import draw
from minilab.sim.regime_cell import EQUAL, LOSES, NEITHER, VERDICTS, WINS, Cell
from minilab.sim.regime_map import RegimeMap


def cell(verdict: str, difference: float) -> Cell:
    a, b = Interval(3.0, 2.9, 3.1), Interval(3.0 * (1 - difference), 1.0, 2.0)
    return Cell(verdict, a, b, Interval(difference, difference, difference), 0.9, 0.8)


MAP = RegimeMap(
    *("prompt length (tokens)", (512, 2048, 8192), "policy", ("plain", "tight"), "mixed", "split"),
    *("goodput_per_gpu", 0.05, 0.5, (0, 1, 2), "ttft=1", ("synthetic",)),
    cells=(
        (cell(EQUAL, 0.01), cell(WINS, 0.25), cell(WINS, 0.625)),
        (cell(LOSES, -0.125), cell(EQUAL, 0.0), cell(NEITHER, 1.0)),
    ),
)


def test_the_map_leaves_nothing_behind_and_its_text_is_sentences() -> None:
    before = dict(matplotlib.rcParams)
    fig, alt = plots.plot_regime_map(MAP)
    assert draw(fig, alt).alt == alt == plots.alt_regime_map(MAP)
    told = re.split(r"(?<=\.) (?=[A-Z])", alt)
    assert len(told) >= 5 and all(t.endswith(".") and t[0].isupper() for t in told)
    assert dict(matplotlib.rcParams) == before and plt.get_fignums() == []


def test_the_map_is_told_with_counts_extremes_and_boundary() -> None:
    alt = plots.alt_regime_map(MAP)
    assert "over prompt length 512 to 8,192 tokens and policy plain to tight." in alt
    assert (
        "Of 6 points, mixed wins at 2 and loses at 1; there is no difference at 2, and neither"
        in alt
    )
    best = (
        "62 % of the better side (3 against 1.12), at prompt length 8,192 tokens and policy plain"
    )
    assert f"Its largest win is {best}." in alt
    assert "Its largest loss is 12 % of the better side" in alt
    assert "At policy plain, mixed wins at prompt length 2,048 to 8,192 tokens." in alt
    assert "At policy tight, mixed wins nowhere." in alt


def test_every_point_has_a_symbol_and_the_line_runs_around_the_wins() -> None:
    fig, _ = plots.plot_regime_map(MAP)
    ax = fig.axes[0]
    symbols = {text.get_position(): text.get_text().split("\n")[0] for text in ax.texts}
    assert len(set(SYMBOLS.values())) == 4
    for j, row in enumerate(MAP.verdicts):
        for i, verdict in enumerate(row):
            assert symbols[i, j] == SYMBOLS[verdict]
    edges = {tuple(np.round(np.mean(line.get_xydata(), axis=0), 2)) for line in ax.lines}
    assert edges == {(0.5, 0.0), (1.0, 0.5), (2.0, 0.5)}
    caption = " ".join(fig.get_supxlabel().split())
    assert caption == plots.caption_regime_map(MAP)
    assert "more than 5 % on average over 3 seeds" in caption and "fewer than 50 %" in caption


# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def linear(color: Any) -> np.ndarray:
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_fills_stay_apart_for_colour_blind_readers_and_symbols_stand_out(blindness: str) -> None:
    seen = {v: np.clip(np.array(BLINDNESS[blindness]) @ linear(FILLS[v]), 0, 1) for v in VERDICTS}
    for one, other in combinations(VERDICTS, 2):
        assert np.abs(seen[one] ** (1 / 2.4) - seen[other] ** (1 / 2.4)).max() > 0.12, (one, other)
    weights = np.array([0.2126, 0.7152, 0.0722])
    for verdict in VERDICTS:
        contrast = (weights @ linear(FILLS[verdict]) + 0.05) / (weights @ linear(INK) + 0.05)
        assert contrast >= 4.5, verdict


def test_a_wide_map_shows_symbols_alone_and_thins_its_ticks() -> None:
    row = tuple(cell(WINS, 0.3) for _ in range(20))
    wide = RegimeMap(
        *("rate", tuple(range(20)), "n", (1,), "a", "b", "ttft_p99", 0.1, 0.5, (0,), "x", ()),
        cells=(row,),
    )
    fig, alt = plots.plot_regime_map(wide)
    assert {text.get_text() for text in fig.axes[0].texts} == {SYMBOLS[WINS]}
    assert len(fig.axes[0].get_xticks()) == 10
    assert "wins at 20 and loses at 0" in alt and "Regime map of ttft p99" in alt
