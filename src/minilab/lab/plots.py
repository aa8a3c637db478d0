"""Plots: every picture of the labs, as ``from minilab.lab import plots``.

Each function returns (figure, alternative text) for ``lab.show(fig, alt=alt)``; the text is made
from the same numbers as the picture. Axis labels are plain words with their units.
"""

from __future__ import annotations

from minilab.lab.plots_latency import plot_cdf, plot_gaps, plot_latency_by_prompt_length
from minilab.lab.plots_load import plot_load_curve
from minilab.lab.plots_quant import (
    plot_break_even,
    plot_channels,
    plot_divergence,
    plot_saturation,
)
from minilab.lab.plots_regime import alt_regime_map, caption_regime_map, plot_regime_map
from minilab.lab.plots_timeline import plot_gantt, plot_timeline

__all__ = [
    "alt_regime_map",
    "caption_regime_map",
    "plot_break_even",
    "plot_cdf",
    "plot_channels",
    "plot_divergence",
    "plot_gantt",
    "plot_gaps",
    "plot_latency_by_prompt_length",
    "plot_load_curve",
    "plot_regime_map",
    "plot_saturation",
    "plot_timeline",
]
