"""The capacity calculator with sliders: the same functions as ``minilab capacity``."""

from __future__ import annotations

import importlib
from typing import Any

from minilab.facts.capacity_plan import GIB, Deployment
from minilab.facts.capacity_report import capacity
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu, gpus
from minilab.facts.models import get_model, models

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "gpt-oss-20b", "gemma-3-27b", "deepseek-v3")
LENGTHS = (2048, 8192, 32_768, 131_072)


def answer(
    model: str, gpu: str, weights: str, kv: str, tp: int, length: int, utilization: float
) -> str:
    """What the widget prints: the budget line by line, then what fits; or why nothing does."""
    try:
        deployment = Deployment(
            get_model(model), get_gpu(gpu), kv, weights, tp=tp, utilization=utilization
        )
        found = capacity(deployment, length).as_dict()
    except InputError as error:
        return str(error)
    lines = [f"{t['name']:<16}{t['gib']:>9.2f} GiB" for t in found["terms"]]
    lines.append(f"{'for KV':<16}{found['available_bytes'] / GIB:>9.2f} GiB a GPU")
    low, high = found["range"]["tokens"]
    lines += [
        "",
        f"{found['kv_bytes_per_token']:,} bytes a token and GPU",
        f"{found['tokens']:,} tokens ({low:,} to {high:,})",
        f"{found['max_concurrency']:.1f} requests of {length:,} tokens at once",
    ]
    return "\n".join(lines)


def capacity_widget() -> Any:
    """Choices and sliders over ``answer`` (needs ipywidgets and a running kernel)."""
    w: Any = importlib.import_module("ipywidgets")
    known = models()
    controls = {
        "model": w.Dropdown(options=[m for m in MODELS if m in known], description="model"),
        "gpu": w.Dropdown(options=list(gpus()), value="h100", description="GPU"),
        "weights": w.Dropdown(options=["native", "bf16", "fp8", "int4"], description="weights"),
        "kv": w.ToggleButtons(options=["bf16", "fp8"], description="KV cache"),
        "tp": w.SelectionSlider(options=[1, 2, 4, 8], description="GPUs (tp)"),
        "length": w.SelectionSlider(options=LENGTHS, value=8192, description="length"),
        "utilization": w.FloatSlider(0.9, min=0.5, max=0.98, step=0.01, description="utilization"),
    }
    text = w.HTML()

    def update(_: object = None) -> None:
        said = answer(**{name: control.value for name, control in controls.items()})
        text.value = f"<pre>{said}</pre>"

    for control in controls.values():
        control.observe(update, names="value")
    update()
    return w.HBox([w.VBox(list(controls.values())), text])
