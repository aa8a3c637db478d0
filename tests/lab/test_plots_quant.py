"""Pictures of quantisation say in words what they show; the widget answers as the calculator."""

from __future__ import annotations

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.kv_speed import Line
from minilab.lab import plots
from minilab.lab.capacity_widget import answer, capacity_widget


def test_alt_texts_name_the_numbers() -> None:
    keys = np.random.default_rng(0).normal(size=(50, 2, 4))
    keys[:, 1, 2] *= 40
    assert "median channel" in plots.plot_channels(keys, keys, 3)[1]
    _, alt = plots.plot_saturation(np.array([1.0, 2.0, 900.0]), {"scale 1": 1.0}, 448)
    assert "with scale 1 33 % saturate" in alt
    _, alt = plots.plot_break_even(Line(6.44, 4.37e-5), Line(6.58, 2.37e-5), "H100")
    assert "below 7,000 tokens" in alt
    assert "do not cross" in plots.plot_break_even(Line(5, 1e-5), Line(6, 1e-5), "A100")[1]
    rows = [{"name": "int8", "kl": [0.003, 0.002, 0.004]}, {"name": "int4", "kl": [2, 1, 3]}]
    _, alt = plots.plot_divergence(rows)
    assert alt.index("int8 0.003") < alt.index("int4 2")


def test_nothing_to_draw() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        plots.plot_saturation(np.zeros(3), {"a": 1.0}, 448)
    with pytest.raises(InputError, match="no row"):
        plots.plot_divergence([{"name": "fp32", "kl": [0, 0, 0]}])


def test_widget_answers_and_explains() -> None:
    pytest.importorskip("ipywidgets")
    box = capacity_widget()
    controls, text = box.children
    before = text.value
    assert "131,072 bytes a token" in before
    kv = next(one for one in controls.children if one.description == "KV cache")
    kv.value = "fp8"
    assert "65,536 bytes a token" in text.value != before
    assert "before any KV" in answer(model="llama-3.1-70b", gpu="l4")
