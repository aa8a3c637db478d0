"""How far the simulator lies from measured disaggregated serving. Nothing is fitted on these rows.

Reads aiconfigurator-silicon from MINILAB_DATA; the constants are those that ship.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from typing import Any

from common import host, write

from minilab.judge.data import SILICON, data_folder
from minilab.judge.silicon_rows import FILE, read_table
from minilab.judge.silicon_split import error_table, read_split, score


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    path = data_folder(SILICON) / FILE
    rows, refused = read_split(read_table(path))
    scores = []
    for at, row in enumerate(rows, 1):
        print(f"\r{at} of {len(rows)}", end="", file=sys.stderr, flush=True)
        scores.append(score(row))
    print(file=sys.stderr)
    found = error_table(scores)
    for line in found:
        print(
            f"{line['pair']:<34}{line['rows']:>4} rows  TTFT off by {line['ttft_median']:.0%} "
            f"(p90 {line['ttft_p90']:.0%}, bias {line['ttft_bias']:+.0%}), TPOT by "
            f"{line['tpot_median']:.0%} (p90 {line['tpot_p90']:.0%}, bias {line['tpot_bias']:+.0%})"
        )
    result: dict[str, Any] = {"host": host(), "seed": 0, "rows": len(rows), "refused": refused}
    result["input"] = {"name": FILE, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    result["errors"] = found
    result["points"] = [[s.row.id, s.row.ttft, s.ttft, s.row.tpot, s.tpot] for s in scores]
    if not args.no_write:
        print(f"written to {write('pd_silicon', result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
