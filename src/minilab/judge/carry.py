"""Carrying constants to a model that they were not fitted on, on the same card.

Two published profiles measured two models on one machine each: Splitwise (Llama-2-70B and BLOOM on
A100 and H100) and DistServe (OPT-13B and OPT-66B on A100). Fit on the one, predict the other. The
engines are older and slower than today's, so what is fitted here is not shipped.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from minilab.facts.cost import Constants
from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, get_gpu
from minilab.facts.models import ModelSpec, get_model
from minilab.facts.user_input import read_json
from minilab.judge.fit import Equation, fit
from minilab.judge.launches import Launch
from minilab.judge.scores import Error
from minilab.judge.terms import Array, matrix, values

FITTED = ("e_mem", "e_comp", "t_layer", "t_seq")

_BLOOM = {
    "model_type": "bloom",
    "n_layer": 70,
    "hidden_size": 14336,
    "n_head": 112,
    "vocab_size": 250880,
    "tie_word_embeddings": True,
}
_PROMPTS = (128, 256, 512, 1024, 2000)
_BATCHES = (1, 8, 32, 64, 128)


class Profiled(NamedTuple):
    """One timed step: ``tokens`` new ones of ``seqs`` sequences. ``seconds`` as measured."""

    spec: ModelSpec
    gpu: GPU
    tp: int
    kind: str
    tokens: int
    seqs: int
    context: int
    pairs: int
    seconds: float
    launch: Launch = Launch()

    def features(self) -> Array:
        """In order of ``terms.FEATURES``."""
        counts = [1, self.tokens, 0, self.seqs, self.context, 0, self.pairs, 0]
        return np.array(counts, dtype=np.float64)


def splitwise(folder: str | Path) -> list[Profiled]:
    """Prompt and token steps of ``perf_model.csv``, medians of five repeats. Raises InputError."""
    path = Path(folder) / "perf_model.csv"
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    times: dict[tuple[str, str, int, int, int], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        key = (row["model"], row["hardware"], int(row["tensor_parallel"]))
        sizes = (int(row["prompt_size"]), int(row["batch_size"]))
        times[(*key, *sizes)].append((float(row["prompt_time"]), float(row["token_time"])))
    specs = {
        "llama2-70b": get_model("llama-2-70b"),
        "bloom-176b": get_model("bloom-176b", _BLOOM),
    }
    cards = {"a100-80gb": get_gpu("a100-80g"), "h100-80gb": get_gpu("h100")}
    found = []
    for (model, card, tp, prompt, batch), seen in times.items():
        if card in cards:  # the power-capped machine is another machine
            where = (specs[model], cards[card], tp)
            first, later = (median(part) / 1e3 for part in zip(*seen, strict=True))
            found.append(_prefill(*where, prompt, batch, first))
            found.append(_decode(*where, prompt, batch, later))
    return found


def distserve(folder: str | Path, engine: str = "vllm") -> list[Profiled]:
    """Steps from the fitted polynomials of ``profiler-a100-80g.<engine>.json``: a + b n + c n^2."""
    table = read_json(Path(folder) / f"profiler-a100-80g.{engine}.json")
    gpu = get_gpu("a100-80g")
    found = []
    for name, by_tp in table.items():
        spec = get_model(name.rpartition("/")[2])
        for tp, row in by_tp.items():
            where = (spec, gpu, int(tp))
            a, b, c = (ms / 1e3 for ms in row["prefill"])
            found += [_prefill(*where, n, 1, a + b * n + c * n * n) for n in _PROMPTS]
            for batch in _BATCHES:
                small = batch < row["decoding_large_small_bs_threshold"]
                a, b, c = (ms / 1e3 for ms in row[f"decoding_{'small' if small else 'large'}bs"])
                found.append(_decode(*where, 512, batch, a + b * 512 * batch + c * batch))
    return found


def _prefill(
    spec: ModelSpec, gpu: GPU, tp: int, prompt: int, batch: int, seconds: float
) -> Profiled:
    pairs = batch * prompt * (prompt + 1) // 2
    return Profiled(spec, gpu, tp, "prefill", prompt * batch, batch, 0, pairs, seconds)


def _decode(
    spec: ModelSpec, gpu: GPU, tp: int, context: int, batch: int, seconds: float
) -> Profiled:
    return Profiled(spec, gpu, tp, "decode", batch, batch, batch * context, 0, seconds)


def carry(steps: Sequence[Profiled], fitted_on: str) -> dict[str, Any]:
    """Fit on the model ``fitted_on``, predict it and all others; errors by model and kind."""
    own = [step for step in steps if step.spec.name == fitted_on]
    equations = [Equation(step.features() @ matrix(step), step.seconds) for step in own]
    fitted = fit(equations, Constants(), FITTED)
    x = values(fitted.constants)
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for step in steps:
        made = float(step.features() @ matrix(step) @ x)
        pairs[step.spec.name, step.kind].append((made, step.seconds))
    return {
        "fitted_on": fitted_on,
        "gpu": own[0].gpu.name,
        "constants": {name: getattr(fitted.constants, name) for name in FITTED},
        "warning": fitted.warning(),
        "errors": [
            {"model": model, "kind": kind, **Error.of(found).to_dict()}
            for (model, kind), found in sorted(pairs.items())
        ],
    }


def carried(data: str | Path) -> list[dict[str, Any]]:
    """All carries that the folders ``splitwise-perf`` and ``distserve-profile`` allow."""
    steps = splitwise(Path(data) / "splitwise-perf")
    rows = [
        {"source": "Splitwise", **carry([s for s in steps if s.gpu.name == gpu], "llama-2-70b")}
        for gpu in ("a100-80g", "h100")
    ]
    for engine in ("vllm", "distserve"):
        profile = distserve(Path(data) / "distserve-profile", engine)
        rows.append({"source": f"DistServe, {engine} engine", **carry(profile, "opt-13b")})
    return rows
