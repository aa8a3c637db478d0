"""Which rows a fit may see. Splits are by hash, so that nobody chooses them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from minilab.judge.silicon_rows import SiliconRow


class Split(NamedTuple):
    """``fit`` may be looked at; ``held`` is for the score."""

    fit: list[SiliconRow]
    held: list[SiliconRow]


def by_pair(rows: Iterable[SiliconRow]) -> dict[str, list[SiliconRow]]:
    """Rows by (model, GPU) pair, each in order of its hash."""
    groups: dict[str, list[SiliconRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.digest):
        groups[f"{row.engine}: {row.pair}"].append(row)
    return dict(sorted(groups.items()))


def halves(rows: Iterable[SiliconRow]) -> Split:
    """Every other row of each pair, in order of its hash: half and half within every pair."""
    fit: list[SiliconRow] = []
    held: list[SiliconRow] = []
    for group in by_pair(rows).values():
        fit += group[0::2]
        held += group[1::2]
    return Split(fit, held)


def leave_one_pair_out(rows: Iterable[SiliconRow]) -> Iterator[tuple[str, Split]]:
    """Each pair held back once, all others to fit on."""
    groups = by_pair(rows)
    for name, group in groups.items():
        others = [row for other, rows in groups.items() if other != name for row in rows]
        yield name, Split(others, group)
