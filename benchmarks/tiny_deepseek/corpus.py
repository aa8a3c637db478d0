"""The training text: the Python standard library (code) and Python's documentation (prose).

Both are under the PSF licence and nearly everybody has them. Code comes from the running Python, or
from ``--stdlib``. Prose are the .rst sources of the documentation, ``--docs``: the folder of the
Debian package python3.11-doc (``apt-get download python3.11-doc``, then ``dpkg -x FILE FOLDER``),
or ``Doc/`` of a CPython checkout.

A file belongs to the held-out text if its name's MD5 says so, so that the split does not depend on
the order of files. Writes tokenizer.json (byte-level BPE), train.npy, heldout.npz and corpus.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
END_OF_TEXT = "<|endoftext|>"
HELD_OUT_PERCENT = 3
HELD_OUT_TOKENS = 65_536
"""Of each domain, shipped beside the weights: what tests and labs measure on."""
NOT_CODE = {"test", "tests", "idle_test", "site-packages", "encodings", "__pycache__", "lib2to3"}


def code_files(stdlib: Path) -> Iterator[Path]:
    """Modules of the library, without its tests and tables of characters."""
    for path in sorted(stdlib.rglob("*.py")):
        if not NOT_CODE & set(path.relative_to(stdlib).parts):
            yield path


def prose_files(docs: Path) -> Iterator[Path]:
    """Pages of the documentation, without the change log."""
    for path in sorted(docs.rglob("*.rst*")):
        if "changelog" not in path.name:
            yield path


def held_out(path: Path) -> bool:
    """Whether a file is kept from training."""
    number = int(hashlib.md5(path.name.encode(), usedforsecurity=False).hexdigest(), 16)
    return number % 100 < HELD_OUT_PERCENT


def read(paths: Iterator[Path]) -> tuple[list[str], list[str]]:
    """(training texts, held-out texts)."""
    texts: tuple[list[str], list[str]] = [], []
    for path in paths:
        texts[held_out(path)].append(path.read_text("utf-8", errors="replace"))
    return texts


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE, as GPT-2's and DeepSeek's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """uint16: the texts one after the other, each ended by the end-of-text token (0)."""
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return np.concatenate([np.array([*one.ids, 0], dtype=np.uint16) for one in encoded])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("docs", type=Path, help="folder with the documentation's .rst sources")
    parser.add_argument("out", type=Path, help="where to write")
    parser.add_argument("--stdlib", type=Path, default=Path(sysconfig.get_path("stdlib")))
    options = parser.parse_args()
    found = {
        "code": read(code_files(options.stdlib)),
        "prose": read(prose_files(options.docs)),
    }
    for domain, (train, held) in found.items():
        if not train or not held:
            print(f"{domain}: {len(train)} training and {len(held)} held-out files; name a folder")
            return 2
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer([text for train, _ in found.values() for text in train])
    tokenizer.save(str(options.out / "tokenizer.json"))
    said: dict[str, object] = {"python": sys.version.split()[0], "vocabulary": VOCABULARY}
    streams, slices = [], {}
    for domain, (train, held) in found.items():
        streams.append(encode(tokenizer, train))
        rest = encode(tokenizer, held)
        slices[domain] = rest[:HELD_OUT_TOKENS]
        said[domain] = {
            "train": {
                "files": len(train),
                "bytes": sum(len(text.encode()) for text in train),
                "tokens": len(streams[-1]),
            },
            "held_out": {
                "files": len(held),
                "bytes": sum(len(text.encode()) for text in held),
                "tokens": len(rest),
            },
            "shipped_tokens": len(slices[domain]),
            "shipped_bytes": len(tokenizer.decode(slices[domain].tolist()).encode()),
        }
    tokens = np.concatenate(streams)
    np.save(options.out / "train.npy", tokens)
    np.savez_compressed(options.out / "heldout.npz", **slices)
    said["train_sha256"] = hashlib.sha256(tokens.tobytes()).hexdigest()
    (options.out / "corpus.json").write_text(json.dumps(said, indent=1) + "\n")
    print(json.dumps(said, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
