"""Plots of quantisation: channels and their scales, break-even, and what a format costs in KL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from minilab.facts.errors import InputError
from minilab.facts.kv_speed import Line, break_even
from minilab.lab.plots_base import ALARM, INK, QUIET, canvas, digits, in_style, legend_above

Floats = npt.NDArray[np.floating[Any]]


@in_style
def plot_channels(keys: Floats, values: Floats, layer: int) -> tuple[Figure, str]:
    """Largest magnitude of each channel of keys and of values.

    Args:
        keys, values: [num_tokens, num_kv_heads, head_dim], as cached.
        layer: for the title.
    """
    fig, axes = canvas(1, 2, (8.0, 3.4), sharey=True)
    told = []
    for ax, name, found in zip(axes, ("keys", "values"), (keys, values), strict=True):
        largest = np.abs(found).max(0).reshape(-1)
        ax.bar(range(len(largest)), largest, width=1.0, color="C0")
        middle = float(np.median(largest))
        ax.axhline(middle, color=ALARM, linewidth=1.2, label="median channel")
        ax.set(title=f"{name} of layer {layer}", xlabel="channel (all KV heads)")
        told.append(
            f"for {name} the largest channel reaches {digits(float(largest.max()), 2)}, the median "
            f"channel {digits(middle, 2)}"
        )
    axes[0].set(ylabel="largest magnitude")
    axes[0].legend(loc="upper right", fontsize=9)
    return fig, "Two bar charts of the largest magnitude by channel: " + "; ".join(told) + "."


@in_style
def plot_saturation(
    magnitudes: Floats, scales: Mapping[str, float], largest: float
) -> tuple[Figure, str]:
    """A histogram of magnitudes over scale, and the end of the format's range.

    Args:
        magnitudes: of any shape, above 0.
        scales: name -> scale; each is drawn.
        largest: what the format can hold; beyond it values saturate.
    """
    sizes = np.asarray(magnitudes, dtype=float).reshape(-1)
    sizes = sizes[sizes > 0]
    if not len(sizes) or not scales:
        raise InputError("saturation: nothing to draw; give magnitudes above 0 and a scale")
    fig, (ax,) = canvas(1, 1, (7.2, 3.6))
    edges = [10.0 ** (k / 10) for k in range(-40, 61)]
    told = []
    for at, (name, scale) in enumerate(scales.items()):
        stored = sizes / scale
        ax.hist(stored, bins=edges, histtype="step", linewidth=1.8, color=f"C{at}", label=name)
        lost = float((stored > largest).mean())
        told.append(f"with {name} {digits(100 * lost, 2)} % saturate")
    ax.axvline(largest, color=ALARM, linewidth=1.8, linestyle="--", label=f"largest, {largest:g}")
    ax.axvline(2.0**-9, color=QUIET, linewidth=1.2, linestyle=":", label="smallest above 0, 2^-9")
    ax.set(xscale="log", xlabel="magnitude / scale", ylabel="numbers")
    ax.legend(loc="upper left", fontsize=9)
    return fig, "A histogram of stored magnitudes on a logarithmic axis: " + "; ".join(told) + "."


@in_style
def plot_break_even(plain: Line, quantised: Line, title: str) -> tuple[Figure, str]:
    """Two lines of inter-token latency over the context, and where they cross."""
    cross = break_even(plain, quantised)
    end = 3 * cross if 0 < cross < 1e6 else 30_000
    x = np.linspace(0, end, 50)
    fig, (ax,) = canvas(1, 1, (7.0, 3.8))
    for line, name, style in ((plain, "bf16 KV", "-"), (quantised, "FP8 KV", "--")):
        ax.plot(x, line.base + line.slope * x, label=name, linestyle=style)
    where = f"{title}: the lines do not cross"
    if 0 < cross < 1e6:
        ax.axvline(cross, color=ALARM, linewidth=1.2, linestyle=":")
        ax.annotate(f"{cross:,.0f} tokens", (cross, plain.at(cross)), (8, -22),
                    textcoords="offset points", color=INK)  # fmt: skip
        where = f"{title}: FP8 KV is slower below {cross:,.0f} tokens of context and faster above"
    ax.set(title=title, xlabel="context (tokens)", ylabel="ms between tokens, one sequence")
    legend_above(ax)
    return fig, where + "."


@in_style
def plot_divergence(rows: Sequence[Mapping[str, Any]], limit: float = 1.0) -> tuple[Figure, str]:
    """KL of every format with its 95 % interval, on a logarithmic axis, least at the bottom.

    Args:
        rows: of the accuracy table: name, kl (value, low, high).
        limit: from where a format is called broken.
    """
    found = sorted((r for r in rows if r["kl"][0] > 0), key=lambda row: row["kl"][0])
    if not found:
        raise InputError("divergence: no row with a KL above 0; give the accuracy table's rows")
    fig, (ax,) = canvas(1, 1, (7.4, 1.2 + 0.3 * len(found)))
    for at, row in enumerate(found):
        value, low, high = row["kl"]
        colour = ALARM if value >= limit else "C0"
        ax.plot([max(low, 1e-7), high], [at, at], color=colour, linewidth=2)
        ax.plot([value], [at], "o", color=colour, markersize=5)
    ax.axvline(limit, color=ALARM, linestyle="--", linewidth=1)
    ax.set_yticks(range(len(found)), [row["name"] for row in found])
    ax.set(xscale="log", xlabel="KL to the unquantised model (nats per token, 95 % interval)")
    ends = ", ".join(f"{r['name']} {digits(r['kl'][0], 2)}" for r in found)
    return fig, f"KL by format, from least to largest: {ends}."
