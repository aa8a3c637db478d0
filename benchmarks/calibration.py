"""How far the simulator lies from measured silicon, and the constants that ship because of it.

Fits six constants a GPU family on half of the measured rows, scores the other half by simulation
and by the closed form, leaves each (model, GPU) pair out once, takes terms away one by one, replays
the published runs, and carries constants to models they were not fitted on. Reads MINILAB_DATA
(aiconfigurator-silicon, llmservingsim-bench, splitwise-perf, distserve-profile); ``--ship`` writes
what was scored into the package. A full pass takes some minutes; with ``--store`` an interrupted
one goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from common import RESULTS, host, verdict, write

from minilab.judge import ship
from minilab.judge.carry import carried
from minilab.judge.closed_scores import closed_scores
from minilab.judge.data import REPLAY, SILICON, data_folder
from minilab.judge.replays import replay_all
from minilab.judge.sensitivity import link_shares, pair_weights
from minilab.judge.silicon import calibrate
from minilab.judge.silicon_gate import read_silicon
from minilab.judge.silicon_rows import FILE
from minilab.judge.store import ScoreStore

TARGETS = {
    "held half, TPOT median": 0.08,
    "held half, TPOT p90": 0.25,
    "held half, TTFT median": 0.18,
    "held half, TTFT p90": 0.50,
    "Hopper pairs left out, TPOT median": 0.06,
    "Hopper pairs left out, TTFT median": 0.20,
    "closed form's TPOT median minus the simulator's": 0.01,
    "replay, worst of p50 and p90 of TTFT and TPOT": 0.03,
}


def reached(result: dict[str, Any]) -> dict[str, float]:
    """The figure behind each of TARGETS."""
    held, hopper = result["silicon"]["held"], result["silicon"]["left_out"]["hopper"]
    worst = [
        abs(case[metric][q])
        for run in result["replay"]
        for case in (run["cases"]["two terms fitted"],)
        for metric in ("ttft", "tpot")
        for q in ("p50", "p90")
    ]
    figures = (
        held["tpot"]["median"],
        held["tpot"]["p90"],
        held["ttft"]["median"],
        held["ttft"]["p90"],
        hopper["tpot"]["median"],
        hopper["ttft"]["median"],
        abs(held["closed_tpot"]["median"] - held["tpot"]["median"]),
        max(worst),
    )
    return dict(zip(TARGETS, figures, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="scores as JSON lines: an interrupted pass goes on")
    parser.add_argument(
        "--choices", action="store_true", help="renew only that part of the result file (seconds)"
    )
    parser.add_argument("--ship", action="store_true", help="write the package's constants.json")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    if not os.environ.get("MINILAB_DATA"):
        print("needs aiconfigurator-silicon: set MINILAB_DATA; nothing was measured")
        return 0
    table = data_folder(SILICON) / FILE
    result: dict[str, Any] = {"host": host(), "input_sha256": sha256(table)}
    silicon = read_silicon(table)
    result["choices"] = {
        "host": host(),
        "link": link_shares(silicon.rows),
        "weights": pair_weights(silicon.rows),
    }
    if args.choices:
        return add_choices(result)
    result["silicon"] = calibrate(silicon, ScoreStore(args.store), progress=tell)
    result["engines"] = closed_scores(read_silicon(table, None).rows)
    result["replay"] = replay_all(data_folder(REPLAY))
    result["carried"] = carried(os.environ["MINILAB_DATA"])
    figures = reached(result)
    result["targets"] = [
        {"what": what, "target": limit, "reached": figures[what], "met": figures[what] <= limit}
        for what, limit in TARGETS.items()
    ]
    for row in result["targets"]:
        print(f"{row['what']:<52}{row['reached']:>8.1%} (at most {row['target']:.0%}: "
              f"{verdict(row['met'])})")  # fmt: skip
    if args.ship:
        print(f"shipped in {ship.write(ship.fits(result['silicon'], result['replay']))}")
    if not args.no_write:
        print(f"written to {write('calibration', result)}")
    return 1 if args.strict and not all(row["met"] for row in result["targets"]) else 0


def add_choices(result: dict[str, Any]) -> int:
    """Put the part "choices" into the result file; 1 if that file is of other measurements."""
    known = json.loads((RESULTS / "calibration.json").read_text())
    if known["input_sha256"] != result["input_sha256"]:
        print("calibration.json is of another table: run without --choices", file=sys.stderr)
        return 1
    print(f"written to {write('calibration', {**known, 'choices': result['choices']})}")
    return 0


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
