"""Loader: checkpoints on disk as the tensors and the config that the model needs.

Two forms: a folder with config.json and safetensors files (nothing is ever unpickled), and a GGUF
file (``gguf_file``).
"""

from __future__ import annotations

from pathlib import Path

import torch

from minilab.engine.families import ModelConfig, config_from_hf
from minilab.engine.gguf_file import GgufFile
from minilab.engine.weight_check import check_weights
from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json

Checkpoint = tuple[ModelConfig, dict[str, torch.Tensor]]
KEPT_FLOAT32 = ".e_score_correction_bias"
"""Biases of routers: differences between experts are smaller than a step of bfloat16."""


def auto_dtype(device: torch.device) -> torch.dtype:
    """fp32 on a CPU; on a GPU bf16, or fp16 below capability 8.0, which has no bf16."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def load(
    path: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> Checkpoint:
    """The checkpoint at ``path``: a folder, or a .gguf file.

    Raises:
        InputError: nothing there that can be read.
    """
    place = torch.device(device)
    wanted = dtype or auto_dtype(place)
    path = Path(path)
    config: ModelConfig
    if path.is_dir():
        config, weights = _folder(path, place, wanted)
    elif path.suffix == ".gguf" and path.is_file():
        config, weights = GgufFile(path).load(place, wanted)
    else:
        raise InputError(f"{path}: not a folder with config.json, and not a .gguf file")
    check_weights(config, weights, str(path))
    return config, weights


def _folder(path: Path, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config = config_from_hf(read_json(path / "config.json"))
    weights: dict[str, torch.Tensor] = {}
    for name in _shards(path):
        try:
            part = load_file(path / name, device=str(device))
        except FileNotFoundError:
            raise InputError(
                f"{path / name}: missing, though the index lists it; fetch all of the checkpoint"
            ) from None
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise InputError(f"{path / name}: cannot be read ({error})") from None
        weights |= {
            key: tensor.to(torch.float32 if key.endswith(KEPT_FLOAT32) else dtype)
            for key, tensor in part.items()
        }
    return config, weights


def _shards(path: Path) -> list[str]:
    """Names of the weight files: those of the index where there is one."""
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        names = sorted(file.name for file in path.glob("*.safetensors"))
        if not names:
            raise InputError(f"{path}: no .safetensors file; the engine reads no other weights")
        return names
    listed = read_json(index)
    table = listed.get("weight_map") if isinstance(listed, dict) else None
    if not isinstance(table, dict) or not table:
        raise InputError(f"{index}: no weight_map; fetch the checkpoint's own index again")
    names = sorted({str(name) for name in table.values()})
    for name in names:
        if Path(name).name != name:
            raise InputError(f"{index}: names {name!r}; weight files lie beside the index")
    return names
