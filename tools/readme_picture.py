"""The picture of the README, drawn from a run: python tools/readme_picture.py

It is written anew only by hand, since the README shows one fixed picture; its numbers are those of
the goodput chapter (Azure conversation trace, one simulated H100, Llama-3.1-8B).
"""

from __future__ import annotations

from pathlib import Path

from minilab import lab
from minilab.lab import plots
from minilab.lab.experiment import Experiment
from minilab.sim.knee import find_knee, load_curve

PICTURE = Path(__file__).parents[1] / "book" / "assets" / "readme.png"
SLO = "ttft=0.5,itl=0.05"


def main() -> None:
    """Write the picture and print its alternative text."""
    lab.style()
    base = Experiment(prefix_cache=False).with_(trace="azure-conv-2023", limit=2000)
    seeds = (0, 1, 2, 3, 4)
    points = load_curve(base, [1, 2, 4, 6, 8, 10, 12, 14], SLO, seeds=seeds)
    knee = find_knee(base, SLO, target=0.9, lo=1.0, hi=20.0, seeds=seeds)
    figure, alt = plots.plot_load_curve(points, knee)
    figure.savefig(PICTURE, dpi=110)
    print(alt)


if __name__ == "__main__":
    main()
