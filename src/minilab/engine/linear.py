"""Linear: a weight in the layout that multiplies fastest where it lies.

On a CPU a decode step multiplies every weight with a handful of rows. oneDNN is up to four times
faster at that if the weight was put into its own blocked order once, at load; MKL, which
``torch.nn.functional.linear`` calls, sorts it anew in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import linear

PACKED_FOR = 16
"""Rows for which the blocked order is chosen; other numbers of rows work with it too."""


class Linear:
    """x @ weight.T + bias.

    Attributes:
        shape: (output features, input features).
        packed: whether the weight is in oneDNN's order.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.shape = tuple(weight.shape)
        pack = _packer(weight)
        self.packed = pack is not None
        self._weight = weight if pack is None else pack(weight, PACKED_FOR)
        self._bias = bias
        self._multiply: Any = torch.ops.mkldnn._linear_pointwise if self.packed else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[num_tokens, input features] to [num_tokens, output features]."""
        if self._multiply is None:
            return linear(x, self._weight, self._bias)
        return self._multiply(x, self._weight, self._bias, "none", [], "")  # type: ignore[no-any-return]


def _packer(weight: torch.Tensor) -> Callable[..., torch.Tensor] | None:
    """torch's own way into oneDNN, which its compiler uses; None where this build has none."""
    usable = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
    if not usable or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return None
    if weight.dtype == torch.bfloat16 and not _has_bfloat16():
        return None
    names = torch._C._dispatch_get_all_op_names()
    if not {"mkldnn::_reorder_linear_weight", "mkldnn::_linear_pointwise"} <= set(names):
        return None
    return torch.ops.mkldnn._reorder_linear_weight


def _has_bfloat16() -> bool:
    """Whether oneDNN computes bfloat16 on this CPU; it refuses to pack for one without AVX-512."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except AttributeError:
        return False
