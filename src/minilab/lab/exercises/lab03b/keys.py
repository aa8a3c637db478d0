"""Exercise 3b.1: extra keys of a block, tagged by kind."""

from __future__ import annotations

from minilab.lab.exercise import Case, Exercise, Misconception

Keys = list[tuple[str, str]]


def extra_keys(salt: str | None, adapter: str | None) -> Keys:
    """(kind, value) of each key that is there; an empty text is there, None is not."""
    both = (("salt", salt), ("adapter", adapter))
    return [(kind, value) for kind, value in both if value is not None]


KEYS = Exercise(
    "3b.1",
    "Extra keys, tagged by kind",
    extra_keys,
    cases=(
        Case(("acme", None), name="a salt"),
        Case((None, "acme"), name="an adapter of the same name"),
        Case(("", None), name="an empty salt"),
        Case((None, None), name="nothing"),
        Case(("a", "b"), name="both"),
    ),
    misconceptions=(
        Misconception(
            "untagged",
            lambda s, a: [x for x in (s, a) if x is not None],
            "without its kind, a salt can equal an adapter's name, and two tenants share KV",
        ),
        Misconception(
            "empty is nothing",
            lambda s, a: [(k, v) for k, v in (("salt", s), ("adapter", a)) if v],
            "an empty salt is a salt: whoever sends it must not share with those who send none",
        ),
        Misconception(
            "salt only",
            lambda s, a: [("salt", s)] if s is not None else [],
            "the adapter is missing: its KV was computed with other weights",
        ),
        Misconception(
            "None as a key",
            lambda s, a: [("salt", s), ("adapter", a)],
            "what is not there is no key: an unsalted request would stop sharing with old blocks",
        ),
        Misconception(
            "one text",
            lambda s, a: [("key", f"{s or ''}{a or ''}")],
            "joined texts lose their border: ab and c read like a and bc",
        ),
    ),
    hints=(
        "A key is a pair: what kind it is, and its value.",
        "None means that there is no such key. What about an empty text?",
    ),
    draw=lambda rng: Case((rng.choice([None, "", "a", "b"]), rng.choice([None, "", "a", "b"]))),
)
