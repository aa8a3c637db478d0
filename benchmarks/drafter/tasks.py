"""Prompts for the target to write training text: six kinds of task over Python's own library.

Held-out prompts (``heldout.json``) use other modules, other paragraphs and other wordings, so a
drafter cannot have seen them.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

STORIES = (
    "a lighthouse keeper who finds a letter", "two friends who build a boat", "a lost dog in a "
    "snowy town", "a clockmaker and her last clock", "a boy who can talk to trees", "a train that "
    "never stops", "an old map and a hidden garden", "a robot that learns to paint", "a fisherman "
    "and a silver fish", "a girl who collects shadows", "a baker who wakes before the birds",
    "a teacher on a small island", "a market at the edge of the desert", "a violin with a secret",
    "a pilot who lands in a field", "twins who swap places", "a night guard in a museum",
    "a letter that arrives thirty years late", "a fox that guards a bridge", "a village without "
    "clocks", "a cook who loses her sense of taste", "a mountain that hums", "a shy dragon",
    "an astronaut who misses the rain",
)  # fmt: skip
ESSAYS = (
    "why cities need trees", "how bread is made", "the water cycle", "learning a new language",
    "the history of writing", "how bridges carry weight", "sleep and memory", "why we tell stories",
    "how vaccines work", "the life of bees", "saving money", "how the internet moves data",
    "photosynthesis", "the value of failure", "how to plan a trip", "music and mood", "recycling",
    "the invention of the printing press", "how to read a map", "teamwork", "gravity", "volcanoes",
    "healthy habits", "the role of libraries",
)  # fmt: skip
WORDINGS = {
    "story": ("Write a short story about {}.", "Tell me a story about {}."),
    "essay": ("Write a short essay about {}.", "Explain {} in a few paragraphs."),
    "summarise": ("Summarize the following text.\n\n{}", "{}\n\nSummarize the text above."),
    "qa": (
        "Read the text and answer the question.\n\n{}\n\nQuestion: What is this text about?",
        "{}\n\nQuestion: What are the most important points of this text?",
    ),
    "code": (
        "Add a docstring to this function and print the whole function.\n\n```python\n{}\n```",
        "Rewrite this function with clearer variable names.\n\n```python\n{}\n```",
    ),
    "copy": ("Repeat the following text exactly.\n\n{}", "Copy this text word for word:\n\n{}"),
}
SHARES = {"story": 17, "essay": 16, "summarise": 22, "qa": 17, "code": 16, "copy": 12}
HELD_OUT = ("heapq", "bisect", "textwrap", "shelve", "sched", "graphlib", "colorsys", "fractions")


def training_prompts(count: int, seed: int) -> list[tuple[str, str]]:
    """``count`` pairs of kind and prompt, the same ones for the same seed and Python version."""
    rng = random.Random(seed)
    functions, paragraphs = _sources()
    rng.shuffle(functions)
    rng.shuffle(paragraphs)
    kinds = rng.choices(list(SHARES), weights=list(SHARES.values()), k=count)
    prompts = []
    for number, kind in enumerate(kinds):
        about = {
            "story": STORIES[number % len(STORIES)],
            "essay": ESSAYS[number % len(ESSAYS)],
            "code": functions[number % len(functions)],
        }.get(kind, paragraphs[number % len(paragraphs)])
        prompts.append((kind, rng.choice(WORDINGS[kind]).format(about)))
    return prompts


def chat(prompt: str) -> str:
    """The prompt as SmolLM2-Instruct wants it."""
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def _sources() -> tuple[list[str], list[str]]:
    """Functions of 5 to 16 lines and paragraphs of 40 to 110 words of the standard library."""
    functions: list[str] = []
    paragraphs: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if path.stem in HELD_OUT:
            continue
        text = path.read_text(errors="replace")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if 5 <= size <= 16 and not node.col_offset:
                    functions.append("\n".join(lines[node.lineno - 1 : node.end_lineno]))
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                paragraphs += _paragraphs(ast.get_docstring(node) or "")
    return sorted(set(functions)), sorted(set(paragraphs))


def _paragraphs(text: str) -> Iterator[str]:
    for part in re.split(r"\n\s*\n", text):
        words = part.split()
        if 40 <= len(words) <= 110 and ">>>" not in part:
            yield " ".join(words)
