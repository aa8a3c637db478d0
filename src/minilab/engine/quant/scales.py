"""Scales: the numbers that fit keys and values into a format, how they are found, where they lie.

A scale maps the largest magnitude it must hold onto the largest code. It can serve a whole layer
("tensor"), one KV head ("head"), or one vector ("token-head"); the first two are found beforehand
on a text and saved beside the checkpoint, the last is computed as each token is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from minilab.engine.quant.codecs import Codec, codec
from minilab.facts.errors import InputError

GRANULARITIES = ("tensor", "head", "token-head")
FILE = "kv_scales.safetensors"


@dataclass(frozen=True)
class KVScales:
    """Scales of keys and values for one number format.

    Attributes:
        format: a name in ``codecs.CODECS``.
        keys, values: fp32 [num_layers, 1] or [num_layers, num_kv_heads].
        how: where they come from, for people.
    """

    format: str
    keys: torch.Tensor
    values: torch.Tensor
    how: str = "given"

    @classmethod
    def constant(cls, format: str, num_layers: int, scale: float = 1.0) -> KVScales:
        """The same scale everywhere: an engine's default for a checkpoint that brings none."""
        codec(format)
        if scale <= 0:
            raise InputError(f"scale is {scale}; give a number above 0")
        same = torch.full((num_layers, 1), scale)
        return cls(format, same, same.clone(), f"constant {scale:g}")

    def times(self, factor: float) -> KVScales:
        """All scales multiplied: below 1 large values saturate, above 1 small ones get coarse."""
        how = f"{self.how}, times {factor:g}"
        return KVScales(self.format, self.keys * factor, self.values * factor, how)

    def of_layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """fp32 [1] or [num_kv_heads] for keys and for values."""
        return self.keys[layer], self.values[layer]

    def save(self, folder: str | Path) -> Path:
        """Write them beside a checkpoint, under the names that vLLM's loader knows."""
        from safetensors.torch import save_file

        tensors = {}
        for layer in range(len(self.keys)):
            keys, values = self.of_layer(layer)
            tensors[_name(layer, "k")] = keys.float().contiguous()
            tensors[_name(layer, "v")] = values.float().contiguous()
        path = Path(folder) / FILE
        save_file(tensors, path, metadata={"format": self.format, "how": self.how})
        return path

    @classmethod
    def load(cls, folder: str | Path, num_layers: int) -> KVScales:
        """Read what ``save`` wrote.

        Raises:
            InputError: no file, a layer without a scale, or one that is not above 0.
        """
        from safetensors import SafetensorError, safe_open

        path = Path(folder) / FILE
        try:
            with safe_open(path, framework="pt") as file:
                meta = file.metadata() or {}
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{path}: cannot be read ({error}); calibrate and save first"
            ) from None
        sides = []
        for side in "kv":
            rows = []
            for layer in range(num_layers):
                name = _name(layer, side)
                if name not in found:
                    raise InputError(f"{path}: no scale {name}; calibrate all {num_layers} layers")
                if not bool((found[name] > 0).all()):
                    raise InputError(f"{path}: {name} has a scale that is not above 0; recalibrate")
                rows.append(found[name].float())
            sides.append(torch.stack(rows))
        return cls(meta.get("format", "e4m3"), sides[0], sides[1], meta.get("how", "file"))


def _name(layer: int, side: str) -> str:
    return f"model.layers.{layer}.self_attn.{side}_scale"


def vector_scale(vectors: torch.Tensor, kind: Codec) -> torch.Tensor:
    """A scale per vector, fp32 [..., 1]: its largest magnitude onto the largest code."""
    largest = vectors.float().abs().amax(dim=-1, keepdim=True)
    return torch.where(largest > 0, largest / kind.largest, torch.ones_like(largest))


class KVStatistics:
    """Magnitudes of keys and values as a text goes by: ``add`` each layer's, then ``scales``.

    For percentiles it keeps a sample of at most ``keep`` magnitudes per layer and head, drawn
    evenly (every n-th), which is exact enough for the 99.99th and needs no second pass.
    """

    def __init__(self, num_layers: int, keep: int = 1 << 16) -> None:
        self.keep = keep
        self.largest: list[dict[str, torch.Tensor]] = [{} for _ in range(num_layers)]
        self.samples: list[dict[str, list[torch.Tensor]]] = [
            {"k": [], "v": []} for _ in range(num_layers)
        ]

    def add(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Count [num_tokens, num_kv_heads, head_dim] of one layer (keys as cached: rotated)."""
        for side, tensor in (("k", keys), ("v", values)):
            size = tensor.float().abs()
            most = size.amax(dim=(0, 2))
            old = self.largest[layer].get(side)
            self.largest[layer][side] = most if old is None else torch.maximum(old, most)
            flat = size.transpose(0, 1).flatten(1)
            step = max(1, flat.shape[1] // self.keep)
            self.samples[layer][side].append(flat[:, ::step].clone())

    def scales(
        self, format: str, granularity: str = "tensor", percentile: float | None = None
    ) -> KVScales:
        """Scales for ``format``; ``percentile`` (50 to 100) instead of the largest magnitude.

        Raises:
            InputError: an unknown granularity, or one computed per token; nothing was added.
        """
        if granularity not in GRANULARITIES[:2]:
            raise InputError(
                f"granularity {granularity!r}; calibrate 'tensor' or 'head' ('token-head' needs no "
                "calibration)"
            )
        if percentile is not None and not 50 <= percentile <= 100:
            raise InputError(f"percentile is {percentile}; give 50 to 100")
        if not all(self.largest):
            raise InputError("no text has gone by; run one first")
        limit = codec(format).largest
        sides = [
            torch.stack([self._layer(n, side, granularity, percentile) for n in range(self.layers)])
            for side in "kv"
        ]
        keys, values = (torch.where(s > 0, s / limit, torch.ones_like(s)) for s in sides)
        how = "largest magnitude" if percentile is None else f"percentile {percentile:g}"
        return KVScales(format, keys, values, f"{how} per {granularity}")

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return len(self.largest)

    def _layer(
        self, layer: int, side: str, granularity: str, percentile: float | None
    ) -> torch.Tensor:
        if percentile is None:
            most = self.largest[layer][side]
            return most if granularity == "head" else most.amax().reshape(1)
        sample = torch.cat(self.samples[layer][side], dim=1)
        if granularity == "tensor":
            sample = sample.reshape(1, -1)
        count = sample.shape[1]
        nth = min(count, max(1, round(percentile / 100 * count)))
        return sample.kthvalue(nth, dim=1).values
