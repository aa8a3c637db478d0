"""RadixTree: prompts as paths in a tree with compressed edges (SGLang's RadixAttention).

A page is the content of one block, *not* hashed with what stands before it: where a page belongs is
told by its path. An edge holds a run of pages and is split where two prompts part. Each page has a
key, a number of its own, by which the block pool knows it.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

Page = Hashable


def pages(spec: Any, num_tokens: int, size: int, request_id: int = 0) -> list[Page]:
    """The full pages of the first ``num_tokens`` tokens of a request's text, in order.

    A page is its pieces (content id, start in the content, length). Text that only this request has
    gets negative ids, as in ``SegmentHasher``.
    """
    own = -2 * request_id - 1
    prompt = spec.prompt or ((own, spec.prompt_tokens),)
    output = own - 1 if spec.output_content is None else spec.output_content
    found: list[Page] = []
    pieces: list[tuple[int, int, int]] = []
    filled = 0
    for content, length in (*prompt, (output, max(0, num_tokens - spec.prompt_tokens))):
        at = 0
        while at < length and len(found) < num_tokens // size:
            part = min(size - filled, length - at)
            pieces.append((content, at, part))
            at += part
            filled += part
            if filled == size:
                found.append(tuple(pieces))
                pieces, filled = [], 0
    return found


class _Node:
    """A run of pages; ``children`` by their first page."""

    __slots__ = ("children", "keys", "last_use", "pages", "parent")

    def __init__(self, pages: list[Page], keys: list[int], parent: _Node | None, now: int) -> None:
        self.pages, self.keys, self.parent, self.last_use = pages, keys, parent, now
        self.children: dict[Page, _Node] = {}


class RadixTree:
    """Pages by path.

    ``num_pages`` counts them. Prompts with different extra keys (salt, adapter) have different
    roots and share nothing.
    """

    def __init__(self, page_size: int = 16) -> None:
        self.page_size = page_size
        self.num_pages = 0
        self._roots: dict[Any, _Node] = {}
        self._now = count()
        self._new_key = count()

    def match(self, root: Hashable, path: Sequence[Page]) -> list[int]:
        """Keys of the leading pages of ``path`` that the tree holds; their nodes count as used."""
        found: list[int] = []
        now = next(self._now)
        for node, length in self._walk(root, path):
            node.last_use = now
            found += node.keys[:length]
        return found

    def insert(self, root: Hashable, path: Sequence[Page]) -> list[int]:
        """Add what is missing of ``path``; returns the keys of all its pages."""
        now = next(self._now)
        node = self._roots.setdefault(root, _Node([], [], None, now))
        keys: list[int] = []
        for step, length in self._walk(root, path):
            if length < len(step.pages):
                self._split(step, length)
            node = step
            node.last_use = now
            keys += node.keys
        missing = list(path[len(keys) :])
        if missing:
            fresh = [next(self._new_key) for _ in missing]
            node.children[missing[0]] = _Node(missing, fresh, node, now)
            self.num_pages += len(missing)
            keys += fresh
        return keys

    def evict(self, wanted: int, locked: Container[int]) -> list[int]:
        """Drop ``wanted`` pages, leaves first, the least recently used leaf first, its tail first.

        Pages whose keys are ``locked`` stay, and so does everything above them. Returns the keys
        dropped, fewer if no more could go.
        """
        leaves = [
            (n.last_use, n.keys[0], n) for root in self._roots.values() for n in _leaves(root)
        ]
        heapify(leaves)
        dropped: list[int] = []
        while leaves and len(dropped) < wanted:
            _, _, leaf = heappop(leaves)
            while leaf.keys and len(dropped) < wanted and leaf.keys[-1] not in locked:
                dropped.append(leaf.keys.pop())
                last = leaf.pages.pop()
            if leaf.keys or leaf.parent is None:
                continue
            parent = leaf.parent
            del parent.children[last]
            if not parent.children and parent.parent is not None:
                heappush(leaves, (parent.last_use, parent.keys[0], parent))
        self.num_pages -= len(dropped)
        return dropped

    def match_tokens(self, spec: Any) -> int:
        """Leading prompt tokens of a request that the tree holds, in whole pages."""
        path = pages(spec, spec.prompt_tokens, self.page_size, spec.id)
        return len(self.match(root_of(spec), path)) * self.page_size

    def insert_prompt(self, spec: Any) -> None:
        """Add a request's prompt."""
        self.insert(root_of(spec), pages(spec, spec.prompt_tokens, self.page_size, spec.id))

    def _walk(self, root: Hashable, path: Sequence[Page]) -> Iterator[tuple[_Node, int]]:
        """Nodes along ``path`` below the root, each with how many of its pages agree."""
        node, at = self._roots.get(root), 0
        while node is not None and at < len(path):
            node = node.children.get(path[at])
            if node is None:
                return
            run = node.pages
            length = 1
            most = min(len(run), len(path) - at)
            while length < most and run[length] == path[at + length]:
                length += 1
            yield node, length
            if length < len(run):
                return
            at += length

    def _split(self, node: _Node, at: int) -> None:
        """Keep the first ``at`` pages in ``node``; the rest moves to a child of it."""
        rest = _Node(node.pages[at:], node.keys[at:], node, node.last_use)
        rest.children = node.children
        for child in rest.children.values():
            child.parent = rest
        node.pages, node.keys, node.children = node.pages[:at], node.keys[:at], {}
        node.children[rest.pages[0]] = rest


def root_of(spec: Any) -> tuple[tuple[str, str | None], ...]:
    """Who may share at all: the extra keys, each tagged with its kind."""
    return (("salt", spec.cache_salt), ("adapter", spec.adapter))


def _leaves(node: _Node) -> Iterator[_Node]:
    stack = [node]
    while stack:
        node = stack.pop()
        if node.children:
            stack.extend(node.children.values())
        elif node.parent is not None:
            yield node
