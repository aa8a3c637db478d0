"""How many drafts a request gets, by how many requests decode: vLLM's table [[from, to, k], ...].

A guess is free as long as the step is bound by reading weights. At a large batch it is not, and
each wrong guess takes time from everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minilab.facts.errors import InputError

Row = tuple[int, int, int]


class DraftTable:
    """``k_for(batch)`` of rows (from, to, k), both ends included; 0 above the last one.

    Raises:
        InputError: a row that is empty, or that overlaps another, or a negative k.
    """

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.rows: list[Row] = []
        last = 0
        for row in rows:
            if len(row) != 3:
                raise InputError(f"row {list(row)}: a row is [from, to, k]")
            first, end, k = row
            if not last < first <= end or k < 0:
                raise InputError(
                    f"row {list(row)}: from must be above the row before ({last}), to at least "
                    "from, and k 0 or more"
                )
            self.rows.append((first, end, k))
            last = end

    @classmethod
    def constant(cls, k: int) -> DraftTable:
        """The same for every batch."""
        return cls([(1, 1 << 30, k)])

    @property
    def most(self) -> int:
        """The largest k of all rows."""
        return max((k for _, _, k in self.rows), default=0)

    def k_for(self, batch: int) -> int:
        """Drafts per request when ``batch`` requests decode."""
        return next((k for first, end, k in self.rows if first <= batch <= end), 0)

    @classmethod
    def best(
        cls,
        seconds: Mapping[tuple[int, int], float],
        accepted: Sequence[float],
    ) -> DraftTable:
        """The k with the most tokens per second at each measured batch size.

        Args:
            seconds: step time by (batch, k), k = 0 among them, proposing included.
            accepted: probability that the draft at each position is kept, 0-based, unconditional
                (``DraftCounts.per_position`` times the share of steps that have a draft).
        """
        batches = sorted({batch for batch, _ in seconds})
        rows: list[list[int]] = []
        for number, batch in enumerate(batches):
            last = number + 1 == len(batches)
            until = batch if last else batches[number + 1] - 1
            speed = {
                k: (1 + sum(accepted[:k])) / time
                for (measured, k), time in seconds.items()
                if measured == batch
            }
            k = max(speed, key=lambda each: (speed[each], -each))
            if rows and rows[-1][2] == k:
                rows[-1][1] = until
            else:
                rows.append([batch if rows else 1, until, k])
        return cls(rows)
