"""quant_pack: a float matrix as FP8 codes or as packed INT4, and back. Plain torch, on any device.

INT4 weights are stored eight to an int32, with a scale and a zero point for each group of 128
inputs: w = (q - zero) * scale. Two layouts are in use, named after the methods whose files brought
them about; how well the numbers were chosen is another matter. Here they are simply rounded.

    awq    words run along the outputs; the eight columns of a word lie in the order 0 2 4 6 1 3 5 7
    gptq   words run along the inputs, in their order; zero points are stored less one
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from minilab.kernels import checks, e4m3

LAYOUTS = ("awq", "gptq")
GROUP_SIZES = (32, 64, 128)
# Which nibble of a word holds column j of its eight.
AWQ_NIBBLE = (0, 4, 1, 5, 2, 6, 3, 7)


class Int4(NamedTuple):
    """K inputs, N outputs. ``qweight`` int32: awq [K, N/8], gptq [K/8, N]. ``scales`` [K/group, N]
    float. ``qzeros`` [K/group, N/8] int32."""

    qweight: torch.Tensor
    scales: torch.Tensor
    qzeros: torch.Tensor


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 with one scale per row: activations per token, a weight [N, K] per output channel.

    Args:
        x: [rows, columns], float.

    Returns:
        e4m3 codes [rows, columns] uint8 and scales [rows, 1] fp32 with codes * scale near x.
    """
    shapes = checks.Shapes()
    shapes.check("x", x, "num_tokens columns", (*checks.FLOATS, torch.float64), dense_from=2)
    largest = x.abs().amax(dim=1, keepdim=True).float()
    scale = torch.where(largest > 0, largest / e4m3.LARGEST, torch.ones_like(largest))
    return e4m3.encode(x / scale), scale


def pack_int4(weight: torch.Tensor, group_size: int = 128, layout: str = "awq") -> Int4:
    """Round a matrix to 4 bits per number, between the least and the largest of each group.

    Args:
        weight: [out_features, in_features] as torch.nn.Linear keeps it, fp16, bf16 or fp32.
        group_size: inputs that share a scale: one of GROUP_SIZES; divides in_features.
        layout: "awq" or "gptq".

    Returns:
        Int4 with scales of weight's dtype.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    checks.Shapes().check("weight", weight, "out_features in_features", checks.FLOATS, dense_from=2)
    outputs, inputs = weight.shape
    check_layout(layout)
    if group_size not in GROUP_SIZES or inputs % group_size:
        raise ValueError(
            f"group_size is {group_size}; it must be one of {GROUP_SIZES} and divide"
            f" in_features = {inputs}"
        )
    if outputs % 8:
        raise ValueError(f"weight has {outputs} outputs; it must have a multiple of 8")
    groups = weight.T.float().reshape(-1, group_size, outputs)  # [K/group, group, N]
    low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
    if layout == "gptq":  # a zero point of 0 cannot be stored less one
        low = torch.minimum(low, -high / 14)
    # Rounded to the stored dtype first: what is divided by is what will be multiplied by.
    scales = ((high - low) / 15).to(weight.dtype)
    divisor = torch.where(scales > 0, scales, torch.ones_like(scales)).float()
    zeros = (-low / divisor).round().clamp(int(layout == "gptq"), 15)
    q = ((groups / divisor[:, None]).round() + zeros[:, None]).clamp(0, 15)
    q, zeros = q.flatten(0, 1).to(torch.int32), zeros.to(torch.int32)
    if layout == "awq":
        return Int4(_words(q, AWQ_NIBBLE), scales, _words(zeros, AWQ_NIBBLE))
    return Int4(_words(q.T, range(8)).T.contiguous(), scales, _words(zeros - 1, range(8)))


def pack_numbers(
    q: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, layout: str = "awq"
) -> Int4:
    """Numbers chosen elsewhere in a file layout: q [K, N] and zeros [K/group, N] of 0 to 15, zeros
    as they are to be stored (gptq: less one), scales [K/group, N] float."""
    check_layout(layout)
    q, zeros = q.to(torch.int32), zeros.to(torch.int32)
    if layout == "awq":
        return Int4(_words(q, AWQ_NIBBLE), scales, _words(zeros, AWQ_NIBBLE))
    return Int4(_words(q.T, range(8)).T.contiguous(), scales, _words(zeros, range(8)))


def unpack_numbers(
    qweight: torch.Tensor, qzeros: torch.Tensor, layout: str = "awq"
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [K, N] and zeros [K/group, N] as stored (gptq: still less one), int32."""
    check_layout(layout)
    if layout == "awq":
        return _nibbles(qweight, AWQ_NIBBLE), _nibbles(qzeros, AWQ_NIBBLE)
    return _nibbles(qweight.T, range(8)).T, _nibbles(qzeros, range(8))


def unpack_int4(
    qweight: torch.Tensor, scales: torch.Tensor, qzeros: torch.Tensor, layout: str = "awq"
) -> torch.Tensor:
    """The matrix that the packed one stands for, [out_features, in_features] float64, exact."""
    check_layout(layout)
    if layout == "awq":
        q, zeros = _nibbles(qweight, AWQ_NIBBLE), _nibbles(qzeros, AWQ_NIBBLE)
    else:
        q, zeros = _nibbles(qweight.T, range(8)).T, _nibbles(qzeros, range(8)) + 1
    groups = q.reshape(len(scales), -1, q.shape[1])
    return ((groups - zeros[:, None]).double() * scales[:, None].double()).flatten(0, 1).T


def check_layout(layout: str) -> None:
    """Raises ValueError unless ``layout`` is one of LAYOUTS."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; it must be one of {LAYOUTS}")


def _words(values: torch.Tensor, order: tuple[int, ...] | range) -> torch.Tensor:
    """[rows, 8 n] numbers of 0 to 15 as [rows, n] int32; number j of eight goes to order[j]."""
    shifts = torch.tensor(order, device=values.device) * 4
    words = (values.reshape(len(values), -1, 8).long() << shifts).sum(2)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def _nibbles(words: torch.Tensor, order: tuple[int, ...] | range) -> torch.Tensor:
    """The numbers in ``words``, undoing ``_words``."""
    shifts = torch.tensor(order, device=words.device, dtype=torch.int32) * 4
    return (words[:, :, None] >> shifts & 15).flatten(1)
