"""DiskTier: one safetensors file per KV block, in a folder that several engines may share.

A file is written under another name and renamed when it is whole, so a crash leaves the old state
or the new one. It carries a checksum of its bytes and the fingerprint of the model that made them;
a block that fails either test counts as missing, is removed, and is computed again. The file's name
is the block's hash, which covers all text before it and the tenant's salt, and is the same in every
process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError

KV = "kv"


def fingerprint(weights: Mapping[str, torch.Tensor], block_size: int, dtype: torch.dtype) -> str:
    """What must be equal for two engines to read each other's blocks: weights, block size, dtype.

    Of each weight the name, shape and some values are hashed, not all of it.
    """
    digest = hashlib.sha256(f"{block_size} {dtype}".encode())
    for name in sorted(weights):
        flat = weights[name].reshape(-1)
        some = torch.cat([flat[:64], flat[-64:]]).to("cpu", torch.float32)
        digest.update(f"{name} {tuple(weights[name].shape)}".encode())
        digest.update(some.numpy().tobytes())
    return digest.hexdigest()


class DiskTier:
    """Blocks in ``folder``, made if missing; ``model`` is a fingerprint.

    Raises:
        InputError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path, model: str) -> None:
        self.folder = Path(folder) / model[:16]
        self.model = model
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{folder}: no folder for KV blocks there ({error.strerror}); name another place"
            ) from error

    def path(self, key: int) -> Path:
        """Where a block lies."""
        return self.folder / f"{key:064x}.safetensors"

    def __contains__(self, key: int) -> bool:
        return self.path(key).is_file()

    def put(self, keys: Sequence[int], blocks: torch.Tensor) -> None:
        """See ``tiers.Tier``."""
        for k, key in enumerate(keys):
            block = blocks[:, :, k].to("cpu").contiguous()
            about = {"sha256": _checksum(block), "model": self.model}
            with whole_file(self.path(key)) as file:
                file.write(save({KV: block}, {"about": json.dumps(about)}))

    def get(self, key: int) -> torch.Tensor | None:
        """See ``tiers.Tier``; a file that is damaged or of another model is removed."""
        path = self.path(key)
        try:
            with safe_open(path, framework="pt") as file:
                block: torch.Tensor = file.get_tensor(KV)
                about = json.loads(file.metadata()["about"])
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            about, block = {}, torch.empty(0)
        if about.get("model") != self.model or about.get("sha256") != _checksum(block):
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return None
        return block


def _checksum(block: torch.Tensor) -> str:
    return hashlib.sha256(block.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
