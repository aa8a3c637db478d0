"""Counts the static n-gram table from the texts that the learned drafters are trained on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from drafter.data import read
from minilab.engine.spec.table import Table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--longest", type=int, default=4)
    parser.add_argument("--at-least", type=int, default=2)
    options = parser.parse_args()
    texts = read(options.data)
    # Responses only: prompts are not the target's words.
    replies = [text.tokens[text.num_prompt_tokens :].tolist() for text in texts]
    table = Table.counted(replies, options.longest, options.at_least)
    table.save(options.out)
    total = sum(map(len, replies))
    print(f"{len(table.successors)} n-grams of {total} tokens in {len(texts)} texts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
