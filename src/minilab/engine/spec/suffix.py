"""Suffix: a tree of all that followed in the text so far (SuffixDecoding in small, Oliaro 2024).

Prompt lookup takes one earlier place. The tree counts all of them, so it knows how sure it is: it
guesses far ahead where the text always went on like this, and stops early where it did not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from minilab.engine.spec.proposer import Drafting, TextProposer
from minilab.facts.errors import InputError


@dataclass
class _Node:
    """How often a string of tokens occurred, and what came next."""

    count: int = 0
    children: dict[int, _Node] = field(default_factory=dict)


class Suffix(TextProposer):
    """Counts every string of up to ``depth`` tokens of prompt and output.

    Args:
        depth: longest string that is counted: what is matched and what is guessed together.
        factor: guesses at most this many tokens per token matched (max_spec_factor of the paper).
        least: stops where the chance of all guesses so far falls below it.

    Raises:
        InputError: depth below 2, factor not above 0, or least outside 0..1.
    """

    def __init__(self, depth: int = 16, factor: float = 2.0, least: float = 0.1) -> None:
        if depth < 2 or not factor > 0 or not 0 <= least <= 1:
            raise InputError(
                f"depth {depth}, factor {factor}, least {least}; depth must be 2 or more, factor "
                "above 0 and least from 0 to 1"
            )
        self._depth, self._factor, self._least = depth, factor, least
        self._trees: dict[int, _Tree] = {}

    def continuation(self, asked: Drafting) -> list[int]:
        """The likeliest way on from the suffix whose guesses promise most accepted tokens."""
        tree = self._trees.get(asked.id)
        if tree is None:
            tree = self._trees[asked.id] = _Tree(self._depth)
        tree.extend(asked.tokens)
        best: list[int] = []
        promise = 0.0
        for matched, node in tree.suffixes():
            most = min(asked.most, int(self._factor * matched))
            tokens, expected = self._walk(node, most)
            if expected > promise:
                best, promise = tokens, expected
        return best

    def forget(self, request_id: int) -> None:
        """Drop the tree of a request."""
        self._trees.pop(request_id, None)

    def _walk(self, node: _Node, most: int) -> tuple[list[int], float]:
        """From child to likeliest child: the tokens, and how many of them should be accepted."""
        tokens: list[int] = []
        chance, expected = 1.0, 0.0
        while len(tokens) < most and node.children:
            total = sum(child.count for child in node.children.values())
            token, child = max(node.children.items(), key=lambda item: item[1].count)
            chance *= child.count / total
            if chance < self._least:
                break
            tokens.append(token)
            expected += chance
            node = child
        return tokens, expected


class _Tree:
    """The strings of one text, and where in the tree its newest suffixes end."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._root = _Node()
        self._tips: list[_Node] = []  # of the suffixes of 1, 2, ... tokens
        self._seen = 0

    def extend(self, tokens: list[int]) -> None:
        """Count the new tokens behind every suffix that is short enough."""
        for token in tokens[self._seen :]:
            grown: list[_Node] = []
            for node in (self._root, *self._tips[: self._depth - 1]):
                child = node.children.get(token)
                if child is None:
                    child = node.children[token] = _Node()
                child.count += 1
                grown.append(child)
            self._tips = grown
        self._seen = len(tokens)

    def suffixes(self) -> list[tuple[int, _Node]]:
        """(length, node) of the suffixes that occurred before, the longest first."""
        found = [(length, node) for length, node in enumerate(self._tips, 1) if node.children]
        return found[::-1]
