"""TransferSizer: what the KV of some tokens amounts to on a wire."""

from __future__ import annotations

from minilab.facts.models import ModelSpec
from minilab.sim.pd_wires import Cargo


class TransferSizer:
    """Bytes, descriptors and copies of a transfer.

    Without gathering, every block of every attention layer is a piece of its own. With it, each
    side copies the KV once within its memory (a read and a write) and one piece crosses the wire.
    A decode side of more ranks than there are KV heads, or of an MLA model, keeps KV more than
    once, and all of it is sent.

    Args:
        copy_bandwidth: bytes/s of one GPU's memory that a copy gets, of the slower side.
    """

    def __init__(
        self, model: ModelSpec, kv_dtype: str, tp: int, copy_bandwidth: float, gather: bool
    ) -> None:
        self._model = model
        self._kv_dtype = kv_dtype
        self._tp = tp
        self._copy = copy_bandwidth
        self._gather = gather
        self._layers = sum(group.layers for group in model.kv_groups)
        plain = all(not group.window and group.stride == 1 for group in model.kv_groups)
        self._per_token = model.kv_bytes_per_token(kv_dtype, tp) if plain else 0
        self._state = model.state_bytes(tp)
        self._sizes: dict[tuple[int, int], Cargo] = {}

    def size(self, tokens: int, blocks: int) -> Cargo:
        """Of ``tokens`` tokens in ``blocks`` blocks."""
        found = self._sizes.get((tokens, blocks))
        if found is None:
            found = self._sizes[tokens, blocks] = self._make(tokens, blocks)
        return found

    def _make(self, tokens: int, blocks: int) -> Cargo:
        if self._per_token:
            each = self._per_token * tokens + self._state
        else:
            each = self._model.kv_bytes(tokens, self._kv_dtype, self._tp)
        nbytes = float(each * self._tp)
        if self._gather:
            return Cargo(nbytes, 1, 2 * each / self._copy)
        return Cargo(nbytes, blocks * self._layers, 0.0)

    @property
    def layers(self) -> int:
        """Layers that keep KV."""
        return self._layers
