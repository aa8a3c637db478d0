"""Writes what the package ships of a finished run: weights in the public layout, text, log, trace.

Weights are rounded to bfloat16, the routers' biases stay float32. The log says where and with what
it was trained; a test holds the weights to the hash in it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from minilab.engine.deepseek.model import DeepseekDecoder
from minilab.engine.deepseek.shipped import FOLDER
from minilab.engine.deepseek.teacher import WINDOWS, teacher_forced
from minilab.engine.load import load_llm
from minilab.engine.moe.load import ExpertLoad, RouteLog
from minilab.facts.routing_trace import ROUTES, WINDOW, expert_loads
from tiny_deepseek import train
from tiny_deepseek.config import CONFIG

TRACE_EVERY = 4
"""Of the shipped held-out windows of a domain, one in so many is traced: from all of its files."""
PLANNED = 192
"""Windows of the training text whose load is shipped: what a plan of experts may be made from."""


def read(checkpoint: Path) -> tuple[dict[str, torch.Tensor], dict[int, torch.Tensor], int, float]:
    """Parameters, biases by layer, steps and seconds of a run."""
    params: dict[str, torch.Tensor] = {}
    biases: dict[int, torch.Tensor] = {}
    with safe_open(checkpoint, "pt") as file:
        said = file.metadata()
        names = list(file.keys())
        for kind, name in (name.split(".", 1) for name in names):
            if kind == "bias":
                biases[int(name)] = file.get_tensor(f"bias.{name}")
            elif kind == "param":
                params[name] = file.get_tensor(f"param.{name}")
    return params, biases, int(said["step"]), float(said["seconds"])


def public_weights(
    params: dict[str, torch.Tensor], biases: dict[int, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The same under the names of public checkpoints."""
    found: dict[str, torch.Tensor] = {
        f"model.layers.{layer}.mlp.gate.e_score_correction_bias": bias
        for layer, bias in biases.items()
    }
    for name, tensor in params.items():
        stacked = name.endswith(("experts.gate_up", "experts.down"))
        found |= _experts(name, tensor) if stacked else {name: tensor}
    return dict(sorted(found.items()))


def _experts(name: str, stack: torch.Tensor) -> dict[str, torch.Tensor]:
    stem, _, part = name.rpartition(".")
    found = {}
    for expert, matrix in enumerate(stack):
        at = f"{stem}.{expert}."
        if part == "down":
            found[f"{at}down_proj.weight"] = matrix.clone()
        else:
            gate, up = matrix.chunk(2)
            found |= {f"{at}gate_proj.weight": gate.clone(), f"{at}up_proj.weight": up.clone()}
    return found


def routes(model: DeepseekDecoder, tokens: np.ndarray) -> np.ndarray:
    """uint8 [5, tokens, 4]: the experts of every token, in the layers and in the MTP module.

    The module has no row for a window's last token, so that one is left out of the layers', too.
    """
    windows = torch.from_numpy(tokens.astype("i8")).view(-1, WINDOW + 1)[::TRACE_EVERY]
    log = RouteLog(model.all_mixtures)
    for part in windows.split(WINDOWS):
        teacher_forced(model, part)
    kept = []
    for rows in log.routes().values():
        each = rows.view(len(windows), -1, rows.shape[1])
        kept.append(each[:, :WINDOW].flatten(0, 1))
    return torch.stack(kept).to(torch.uint8).numpy()


def train_loads(model: DeepseekDecoder, tokens: np.ndarray) -> np.ndarray:
    """int64 [5, 32]: how often each expert is chosen in PLANNED windows of the training text."""
    dice = np.random.default_rng(0)
    starts = dice.integers(0, len(tokens) - train.LENGTH, PLANNED)
    windows = np.stack([tokens[s : s + train.LENGTH] for s in starts]).astype("i8")
    load = ExpertLoad(model.all_mixtures)
    teacher_forced(model, torch.from_numpy(windows))
    return load.counts.numpy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder that corpus.py wrote")
    parser.add_argument("run", type=Path, help="the folder that train.py wrote")
    options = parser.parse_args()
    lines = [json.loads(line) for line in (options.run / "log.jsonl").read_text().splitlines()]
    params, biases, steps, seconds = read(options.run / "checkpoint.safetensors")
    if lines[-1]["step"] != steps:
        print(f"log ends at step {lines[-1]['step']}, checkpoint at {steps}")
        return 2
    rounded = {name: tensor.to(torch.bfloat16) for name, tensor in params.items()}
    weights = public_weights(rounded, biases)
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file(weights, FOLDER / "model.safetensors", {"format": "pt"})
    (FOLDER / "model.safetensors").chmod(0o644)
    shutil.copyfile(Path(__file__).parent / "config.json", FOLDER / "config.json")
    for name in ("tokenizer.json", "heldout.npz"):
        shutil.copyfile(options.data / name, FOLDER / name)
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    shutil.copyfile(licence, FOLDER / "LICENSE-PSF.txt")
    log: dict[str, Any] = {
        "steps": steps,
        "tokens": steps * train.BATCH * train.LENGTH,
        "seconds": round(seconds),
        "seconds_note": "wall time beside other work; not a measure of the script's speed",
        "seed": 0,
        "parameters": sum(t.numel() for n, t in weights.items() if "correction" not in n),
        "sha256": hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest(),
        "host": common.host(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "schedule": {
            "batch": train.BATCH,
            "length": train.LENGTH,
            "peak": train.PEAK,
            "warm_up": train.WARM_UP,
            "decay": train.DECAY,
            "last": train.LAST,
            "mtp_weight": train.MTP_WEIGHT,
            "balance_step": train.BALANCE_STEP,
            "balance_frozen": train.FROZEN,
        },
        "corpus": json.loads((options.data / "corpus.json").read_text()),
        "curve": lines,
    }
    (FOLDER / "training.json").write_text(json.dumps(log, indent=1) + "\n")
    llm = load_llm(FOLDER, device="cpu")
    model = llm.executor.model
    assert isinstance(model, DeepseekDecoder) and CONFIG["n_routed_experts"] <= 256
    held = np.load(FOLDER / "heldout.npz")
    traced = {domain: routes(model, held[domain]) for domain in held.files}
    tokens = np.load(options.data / "train.npy")
    split = log["corpus"]["code"]["train"]["tokens"]  # the code comes first
    parts = {"code": tokens[:split], "prose": tokens[split:]}
    planned = {f"{name}_train": train_loads(model, part) for name, part in parts.items()}
    for mixture in model.all_mixtures:
        mixture.bias = torch.zeros_like(mixture.bias)
    for name, part in parts.items():
        planned[f"{name}_train_unbiased"] = train_loads(model, part)
        planned[f"{name}_unbiased"] = expert_loads(routes(model, held[name]))
    np.savez_compressed(ROUTES, **traced, **planned)
    for path in (*sorted(FOLDER.iterdir()), ROUTES):
        print(f"{path.stat().st_size:9d} {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
