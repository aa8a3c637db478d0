"""probes: two questions that a mean over tokens hides. Can the model still find, and still copy?

Needle: a code of digits is told once, far back in a long text, and asked for at the end. Copy: a
sequence of random tokens comes twice; its second half can only be guessed by looking back. Both are
read off one forward pass each (the right tokens are given, the guess before each is looked at), so
they need no sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import torch

Logits = Callable[[Sequence[int]], torch.Tensor]
Encode = Callable[[str], Sequence[int]]

TOLD = "\n\nThe access code of the harbour is {code}. Remember it.\n\n"
ASKED = "\n\nThe access code of the harbour is "
DEPTHS = (0.1, 0.5, 0.9)


def needle(
    logits: Logits, encode: Encode, text: str, tokens: int = 480, codes: int = 4, seed: int = 0
) -> float:
    """Share of (depth, code) pairs of which every digit is the first choice.

    Args:
        logits: token ids -> [num_tokens, vocab_size].
        encode: text -> token ids; digits must be tokens of their own.
        text: what the code is hidden in.
        tokens: length of that text, in tokens.
    """
    draw, found, hay = Random(seed), 0, list(encode(text))[:tokens]
    for _ in range(codes):
        code = "".join(str(draw.randrange(10)) for _ in range(5))
        for depth in DEPTHS:
            at = int(depth * len(hay))
            told = list(encode(TOLD.format(code=code)))
            answer = list(encode(code))
            ids = hay[:at] + told + hay[at:] + list(encode(ASKED)) + answer
            guesses = logits(ids).argmax(1)[-len(answer) - 1 : -1]
            found += guesses.tolist() == answer
    return found / (codes * len(DEPTHS))


def copy(
    logits: Logits, tokens: Sequence[int], length: int = 128, rounds: int = 4, seed: int = 0
) -> float:
    """Share of tokens of the repeated half that are the first choice (its first token left out).

    ``tokens`` is the set that is drawn from, such as those of a text.
    """
    draw, right, known = Random(seed), 0, sorted(set(tokens))
    for _ in range(rounds):
        once = [draw.choice(known) for _ in range(length)]
        guesses = logits(once + once).argmax(1)[length:-1].tolist()
        right += sum(a == b for a, b in zip(guesses, once[1:], strict=True))
    return right / (rounds * (length - 1))
