"""Block hashes: hash(parent hash, text of the block, extra keys), for segments and for tokens.

Extra keys are tagged with their kind before they are hashed, so that a tenant's salt can never
equal an adapter's name, and an empty salt is not the same as none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

from minilab.core.request import RequestState

_ENDLESS = (1 << 63) - 1


class BlockHasher(Protocol):
    """Gives a request the hashes of its leading full blocks."""

    def extend(self, request: RequestState, num_tokens: int) -> None:
        """Make ``request.block_hashes`` cover every full block of the first ``num_tokens``."""
        ...


@lru_cache(maxsize=4096)
def root_hash(salt: str | None, adapter: str | None) -> int:
    """The parent of the first block: who may share at all (0: no extra key)."""
    keys = [(kind, key) for kind, key in (("salt", salt), ("adapter", adapter)) if key is not None]
    if not keys:
        return 0
    digest = hashlib.sha256(repr(keys).encode()).digest()
    return int.from_bytes(digest[:8], "big") & _ENDLESS


class SegmentHasher:
    """Hashes prompts given as content segments, for simulated requests.

    Content ids come from a trace that we chose ourselves, so a fast 64-bit tuple hash will do (two
    of 300,000 blocks collide with a chance of about 2e-9). Text from strangers needs
    ``TokenHasher``: a server whose hash can be steered serves one tenant's KV to another
    (CVE-2025-25183 in vLLM).

    ``chained``: block size at which the ids of the trace name all text before a block as well. At
    that size they are hashes already, and hashing them again would only cost time.
    """

    def __init__(self, block_size: int, chained: int | None = None) -> None:
        self.block_size = block_size
        self._chained = chained == block_size

    def extend(self, request: RequestState, num_tokens: int) -> None:
        """See ``BlockHasher``; generated text is ``output_content``, or the request's own."""
        hashes, size = request.block_hashes, self.block_size
        missing = num_tokens // size - len(hashes)
        if missing <= 0:
            return
        spec: Any = request.request
        if self._chained and spec.prompt and spec.cache_salt is None and spec.adapter is None:
            end = min(num_tokens, request.num_prompt_tokens) // size
            if end > len(hashes):
                hashes += [content for content, _ in spec.prompt[len(hashes) : end]]
            missing = num_tokens // size - len(hashes)
            if not missing:
                return
        parent = hashes[-1] if hashes else root_hash(spec.cache_salt, spec.adapter)
        # A negative id is text that only this request has: no trace's content id is negative.
        own = -2 * request.id - 1
        prompt = spec.prompt or ((own, request.num_prompt_tokens),)
        output = own - 1 if spec.output_content is None else spec.output_content
        begin, start = self._segment_at(prompt, request.num_prompt_tokens, len(hashes) * size)
        skip = len(hashes) * size - start
        if not skip:  # traces of block ids: one segment a block, one hash each
            known = len(hashes)
            for content, length in prompt[begin : begin + missing]:
                if length != size:
                    break
                parent = hash((parent, content, 0))
                hashes.append(parent)
            begin += len(hashes) - known
            missing -= len(hashes) - known
            if not missing:
                return
        pieces: list[int] = []  # of a block that begins in one segment and ends in another
        filled = 0
        for content, length in chain(prompt[begin:], ((output, _ENDLESS),)):
            at, skip = skip, 0
            if filled:
                part = min(size - filled, length)
                pieces += (content, 0, part)
                filled += part
                if filled < size:
                    continue
                at, filled = part, 0
                parent = hash((parent, *pieces))
                hashes.append(parent)
                missing -= 1
            full = min((length - at) // size, missing)
            for start in range(at, at + full * size, size):
                parent = hash((parent, content, start))
                hashes.append(parent)
            missing -= full
            if not missing:
                return
            at += full * size
            filled = length - at
            pieces = [content, at, filled]

    @staticmethod
    def _segment_at(prompt: Sequence[tuple[int, int]], end: int, position: int) -> tuple[int, int]:
        """Index and start of the segment that ``position`` lies in; the prompt ends at ``end``.

        Looked for from the end: a request that has just finished asks about its last block.
        """
        if not position:
            return 0, 0
        index, start = len(prompt), end
        while start > position:
            index -= 1
            start -= prompt[index][1]
        return index, start


class TokenHasher:
    """Hashes real token ids with SHA-256, as a server that strangers talk to must.

    ``tokens_of(request)`` returns the ids of prompt and output so far. ``images_of(request)``
    returns (start, length, hash of the picture) for each: all pictures have the same placeholder
    tokens, so a block that holds a part of one carries the picture's hash as an extra key.
    """

    def __init__(self, block_size: int, tokens_of: Any, images_of: Any = None) -> None:
        self.block_size = block_size
        self._tokens_of = tokens_of
        self._images_of = images_of or (lambda request: ())

    def extend(self, request: RequestState, num_tokens: int) -> None:
        """See ``BlockHasher``."""
        hashes, size = request.block_hashes, self.block_size
        if num_tokens // size <= len(hashes):
            return
        spec: Any = request.request
        tokens, images = self._tokens_of(request), self._images_of(request)
        parent = hashes[-1] if hashes else root_hash(spec.cache_salt, spec.adapter)
        for block in range(len(hashes), num_tokens // size):
            begin = block * size
            text = ",".join(map(str, tokens[begin : begin + size])) + _image_keys(
                images, begin, size
            )
            digest = hashlib.sha256(f"{parent}:{text}".encode()).digest()
            parent = int.from_bytes(digest, "big")
            hashes.append(parent)


def _image_keys(images: Sequence[tuple[int, int, str]], begin: int, size: int) -> str:
    """The pictures that reach into a block, each with where it lies relative to the block."""
    inside = [i for i in images if i[0] < begin + size and begin < i[0] + i[1]]
    return repr([("image", key, start - begin) for start, _, key in inside]) if inside else ""
