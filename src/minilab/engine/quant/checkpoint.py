"""checkpoint: quantised weights in the public file layouts, written and read.

    awq    qweight int32 [in, out/8], qzeros int32 [groups, out/8], scales fp16 [groups, out];
           the eight numbers of a word lie in the order 0 2 4 6 1 3 5 7; w = (q - zero) * scale
    gptq   qweight int32 [in/8, out], qzeros as above in plain order and stored less one ("gptq_v2":
           as they are), scales, and g_idx int32 [in]: the group of each input (any order)
    fp8    weight float8_e4m3 [out, in] and weight_scale fp32 [] or [out, 1]; input_scale fp32 []
           where activations are quantised with a scale found beforehand

What is said of all of them stands in config.json's quantization_config. Reading gives the weights
in floats, as ``Decoder`` takes them; nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from minilab.engine.config import DecoderConfig
from minilab.engine.quant.fp8_weights import channel_codes
from minilab.engine.quant.grid import Grid
from minilab.engine.quant.passes import matrices
from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json
from minilab.kernels.quant_pack import pack_numbers, unpack_numbers

METHODS = ("awq", "gptq", "fp8")
FILE = "model.safetensors"


def save_int4(
    folder: str | Path,
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    grids: Mapping[str, Grid],
    layout: str = "awq",
) -> Path:
    """Write a checkpoint whose matrices are ``grids``, the rest of ``weights`` in fp16.

    Args:
        config: the model's config.json, to which quantization_config is added.
        layout: "awq" or "gptq".

    Raises:
        InputError: a group that does not divide the inputs, other than 4 bits, an output count that
            8 does not divide: the layout cannot hold it.
    """
    if layout not in METHODS[:2]:
        raise InputError(f"layout {layout!r}; give awq or gptq")
    sizes = {grid.group_size for grid in grids.values()}
    if len(sizes) != 1:
        raise InputError(f"matrices have groups of {sorted(sizes)}; a checkpoint has one size")
    tensors = {
        name: tensor.half().contiguous()
        for name, tensor in weights.items()
        if name.removesuffix(".weight") not in grids
    }
    # Four bits cannot hold a zero point of 0 less one: then the second version of the format.
    less_one = layout == "gptq" and all(bool((grid.zeros >= 1).all()) for grid in grids.values())
    for name, grid in grids.items():
        tensors |= _packed(name, grid, layout, int(less_one))
    quant: dict[str, Any] = {"quant_method": layout, "bits": 4, "group_size": sizes.pop()}
    if layout == "awq":
        quant |= {"zero_point": True, "version": "gemm"}
    else:
        version = "gptq" if less_one else "gptq_v2"
        quant |= {"sym": False, "desc_act": False, "checkpoint_format": version}
    return _write(folder, config, tensors, quant)


def save_fp8(
    folder: str | Path,
    config: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    names: list[str],
    input_scales: Mapping[str, float] | None = None,
) -> Path:
    """Write a checkpoint whose ``names`` are e4m3 with a scale per output channel.

    ``input_scales`` makes it static: one scale for all activations that a matrix meets.
    """
    tensors = {k: v.half().contiguous() for k, v in weights.items()}
    for name in names:
        codes, scale = channel_codes(weights[name + ".weight"])
        tensors[name + ".weight"] = codes.view(torch.float8_e4m3fn)
        tensors[name + ".weight_scale"] = scale
        if input_scales is not None:
            tensors[name + ".input_scale"] = torch.tensor(input_scales[name])
    scheme = "dynamic" if input_scales is None else "static"
    return _write(folder, config, tensors, {"quant_method": "fp8", "activation_scheme": scheme})


def load_quantised(
    folder: str | Path, dtype: torch.dtype = torch.float32
) -> tuple[DecoderConfig, dict[str, torch.Tensor], dict[str, float]]:
    """(config, weights in floats, static input scales by matrix) of a quantised checkpoint.

    Raises:
        InputError: not such a checkpoint; a method, bits or version that is not built; a missing
            tensor; a shape that contradicts the group size; a tensor of a wrong dtype.
    """
    place = Path(folder)
    said = read_json(place / "config.json")
    quant = said.get("quantization_config") or _separate(place)
    config = DecoderConfig.from_hf(said)
    method = str(quant.get("quant_method", "")).lower()
    if method not in METHODS:
        raise InputError(f"{place}: quant_method {method!r}; known here: {', '.join(METHODS)}")
    found = _tensors(place)
    weights, scales = {}, {}
    names = set(matrices(config))
    for name in sorted(names):
        if method == "fp8":
            weights[name + ".weight"] = _read_fp8(name, found, dtype)
            scale = found.get(name + ".input_scale")
            if scale is not None:
                scales[name] = float(scale)
            elif quant.get("activation_scheme") == "static":
                raise InputError(_missing(name + ".input_scale", "static activations need one"))
        else:
            weights[name + ".weight"] = _read_int4(name, found, quant, method).to(dtype)
    for key, tensor in found.items():
        if key.rpartition(".")[0] not in names or key.endswith(".bias"):
            weights[key] = tensor.to(dtype)
    return config, weights, scales


def _packed(name: str, grid: Grid, layout: str, less: int) -> dict[str, torch.Tensor]:
    outputs, inputs = grid.q.shape
    if grid.bits != 4 or inputs % grid.group_size or outputs % 8:
        raise InputError(
            f"{name}: [{outputs}, {inputs}] in {grid.bits} bits and groups of {grid.group_size}; "
            "these layouts hold 4 bits, groups that divide the inputs, outputs in eights"
        )
    packed = pack_numbers(grid.q.T, grid.scales.T.half(), grid.zeros.T.int() - less, layout)
    tensors = {
        name + ".qweight": packed.qweight,
        name + ".qzeros": packed.qzeros,
        name + ".scales": packed.scales,
    }
    if layout == "gptq":
        tensors[name + ".g_idx"] = torch.arange(inputs, dtype=torch.int32) // grid.group_size
    return {key: tensor.contiguous() for key, tensor in tensors.items()}


def _read_int4(
    name: str, found: Mapping[str, torch.Tensor], quant: Mapping[str, Any], method: str
) -> torch.Tensor:
    bits = quant.get("bits", quant.get("w_bit", 4))
    group = int(quant.get("group_size", quant.get("q_group_size", 128)))
    if bits != 4 or str(quant.get("version", "gemm")).lower() != "gemm":
        version = quant.get("version")
        raise InputError(f"{name}: {bits} bits, version {version}; built here: 4 bits, gemm")
    parts = {}
    for part, kind in (
        ("qweight", torch.int32),
        ("qzeros", torch.int32),
        ("scales", torch.float16),
    ):
        key = f"{name}.{part}"
        if key not in found:
            raise InputError(_missing(key, f"quant_method is {method}"))
        if found[key].dtype != kind and not (part == "scales" and found[key].is_floating_point()):
            raise InputError(f"checkpoint: {key} is {found[key].dtype}; it must be {kind}")
        parts[part] = found[key]
    qweight, scales = parts["qweight"], parts["scales"]
    inputs = len(qweight) * (8 if method == "gptq" else 1)
    group = inputs if group == -1 else group
    outputs = scales.shape[1]
    if len(scales) * group != inputs or parts["qzeros"].shape != (len(scales), outputs // 8):
        raise InputError(
            f"checkpoint: {name} has {inputs} inputs and {len(scales)} groups, group_size says "
            f"{group}; mend group_size in quantization_config"
        )
    plus_one = method == "gptq" and quant.get("checkpoint_format", "gptq") != "gptq_v2"
    q, zeros = unpack_numbers(qweight, parts["qzeros"], method)
    zeros = zeros + (1 if plus_one else 0)
    where = torch.arange(inputs) // group
    if method == "gptq" and name + ".g_idx" in found:
        where = found[name + ".g_idx"].long()
        if len(where) != inputs or not bool(((where >= 0) & (where < len(scales))).all()):
            raise InputError(f"checkpoint: {name}.g_idx names groups outside 0..{len(scales) - 1}")
    return ((q - zeros[where]).float() * scales.float()[where]).T.contiguous()


def _read_fp8(name: str, found: Mapping[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    key = name + ".weight"
    if key not in found:
        raise InputError(_missing(key, "quant_method is fp8"))
    if found[key].dtype != torch.float8_e4m3fn:
        raise InputError(f"checkpoint: {key} is {found[key].dtype}; it must be float8_e4m3fn")
    scale = found.get(name + ".weight_scale")
    if scale is None:
        raise InputError(_missing(name + ".weight_scale", "FP8 codes mean nothing without"))
    if scale.numel() not in (1, len(found[key])):
        raise InputError(
            f"checkpoint: {name}.weight_scale has shape {list(scale.shape)}; it must have one "
            f"number, or one per output ({len(found[key])})"
        )
    return (found[key].float() * scale.float().reshape(-1, 1)).to(dtype)


def _missing(key: str, why: str) -> str:
    return f"checkpoint: no tensor {key}; {why}"


def _separate(place: Path) -> dict[str, Any]:
    """quantize_config.json or quant_config.json, as older tools wrote them beside config.json."""
    for file, method in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        if (place / file).is_file():
            return {"quant_method": method, **read_json(place / file)}
    raise InputError(f"{place}: config.json has no quantization_config; load it as it is")


def _tensors(place: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(place.glob("*.safetensors"))
    if not files:
        raise InputError(f"{place}: no .safetensors file; the engine reads no other weights")
    found: dict[str, torch.Tensor] = {}
    for file in files:
        if file.name == "kv_scales.safetensors":
            continue
        try:
            found |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{file}: cannot be read ({error})") from None
    return found


def _write(
    folder: str | Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    quant: Mapping[str, Any],
) -> Path:
    from safetensors.torch import save_file

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), place / FILE, metadata={"format": "pt"})
    text = json.dumps({**config, "quantization_config": dict(quant)}, indent=2)
    (place / "config.json").write_text(text + "\n", encoding="utf-8")
    return place
