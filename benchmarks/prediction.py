"""Does the simulator foretell the engine? Fit a cost on timed steps, predict a workload, play it.

1. Steps made to order are timed on the engine (``minilab calibrate engine``) and a cost is fitted.
2. Another thing altogether, requests that arrive at random and share steps as the scheduler likes,
   is simulated with that cost.
3. The same requests are played on the engine, on the real clock, three times.
4. TTFT p50 and p90 and the gaps' p50 and p99, predicted over measured.

The machine should be quiet: what else ran is measured beside each part (/proc/stat) and written
down; a part counts as quiet below QUIET cores of other work. All repeats are kept, quiet or not.
Where others use the machine, ``--clock cpu`` counts the engine's own CPU seconds instead of the
wall's (one thread; waits for arrivals are skipped), in the calibration and in the measurement.
With ``--state DIR`` an interrupted pass goes on where it was, part by part.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import host, spread, verdict, write

TARGET = 0.15
FIGURES = ("ttft p50", "ttft p90", "itl p50", "itl p99")
QUIET = 0.10
"""Cores' worth of other work, up to which a machine is called quiet."""

WORKLOAD = {
    "trace": "synthetic",
    "limit": 40,
    "rate": 0.5,
    "prompt_tokens": 160,
    "output_tokens": 40,
    "jitter": 0.5,
    "seed": 7,
}


class Neighbours:
    """Cores that others kept busy since ``__init__``: all of /proc/stat less our own time."""

    def __init__(self) -> None:
        self._begin = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float, float] | None:
        try:
            words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        except OSError:
            return None
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, soft, steal = (int(word) / tick for word in words[:8])
        own = sum(os.times()[:2])
        return time.perf_counter(), user + nice + system + irq + soft, steal, own

    def cores(self) -> dict[str, float] | None:
        """``others``: cores of other processes; ``steal``: cores that the host took away."""
        now = self._read()
        if now is None or self._begin is None:
            return None
        wall, busy, steal, own = (a - b for a, b in zip(now, self._begin, strict=True))
        return {"others": max(0.0, busy - own) / wall, "steal": steal / wall}


class State:
    """Finished parts, one JSON file each in a folder; without a folder nothing is kept."""

    def __init__(self, folder: str | None) -> None:
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)

    def part(self, name: str, make: Any) -> dict[str, Any]:
        """The part of an earlier pass, or what ``make`` returns now."""
        path = None if self.folder is None else self.folder / f"{name}.json"
        if path is not None and path.exists():
            return json.loads(path.read_text())
        tell(f"{name}: begins")
        watch = Neighbours()
        made = {**make(), "neighbours": watch.cores()}
        tell(f"{name}: done, other work {made['neighbours']}")
        if path is not None:
            path.write_text(json.dumps(made))
        return made


def calibrated(args: argparse.Namespace, setup: Any) -> dict[str, Any]:
    """The fitted cost with its residuals."""
    from minilab.judge.engine_calibrate import calibrate_engine

    store = None if args.state is None else Path(args.state) / "steps.jsonl"
    return calibrate_engine(setup, args.rounds, args.seed, store, tell)


def measured(setup: Any, work: Any, seed: int) -> dict[str, Any]:
    """One play of the workload on a fresh engine, warmed up by three requests."""
    from minilab.facts.workload import synthetic
    from minilab.judge.engine_calibrate import greedy
    from minilab.judge.engine_clock import CLOCKS
    from minilab.judge.engine_play import figures, play

    llm, clock = setup.load(), CLOCKS[setup.clock]()
    play(llm, synthetic(50.0, 3, 40, 4, seed=seed + 1000), greedy, seed + 1000, clock=clock)
    log = play(llm, work, greedy, seed, tell, clock)
    runs = llm.record.runs
    return {"figures": figures(log), "steps": len(runs), "requests": len(log)}


def predicted(cost: dict[str, Any], setup: Any, spec: Any, work: Any) -> dict[str, float]:
    """The same figures by simulation."""
    from minilab.judge.engine_calibrate import fitted_cost
    from minilab.judge.engine_play import figures
    from minilab.sim.experiment import Experiment

    experiment = Experiment(
        workload=spec,
        cost=json.dumps(fitted_cost(cost).to_dict()),
        kv_blocks=setup.num_blocks,
        block_size=setup.block_size,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        max_num_seqs=setup.max_num_seqs,
    )
    return figures(experiment.run(work))


def judged(said: dict[str, float], repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """Each figure: predicted, measured (median and range over the repeats), the error's share."""
    rows = {}
    for name in (*FIGURES, "own itl p50"):
        values = [repeat["figures"][name] for repeat in repeats]
        seen = spread(values)
        error = said[name] / seen["median"] - 1
        rows[name] = {"predicted": said[name], "measured": seen, "error": error}
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=1, help="of torch (1: no neighbour needed)")
    parser.add_argument("--clock", default="wall", help="wall; cpu, where others use the machine")
    parser.add_argument("--rounds", type=int, default=3, help="of the calibration")
    parser.add_argument("--repeats", type=int, default=3, help="plays of the workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="requests (default 40)")
    parser.add_argument("--state", metavar="DIR", help="an interrupted pass goes on where it was")
    parser.add_argument("--name", default="prediction", help="of the result file")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    try:
        import torch
    except ModuleNotFoundError:
        print("needs torch; nothing was measured")
        return 0
    from minilab.facts.errors import InputError
    from minilab.judge.engine_calibrate import EngineSetup
    from minilab.sim.workload_spec import WorkloadSpec

    setup = EngineSetup(args.model, threads=args.threads, clock=args.clock)
    given = {**WORKLOAD, **({} if args.limit is None else {"limit": args.limit})}
    spec = WorkloadSpec(**given)
    work, state = spec.load(), State(args.state)
    result: dict[str, Any] = {"host": {**host(), "torch": torch.__version__}, "seed": args.seed}
    try:
        cost = state.part("calibration", lambda: calibrated(args, setup))
        repeats = [
            state.part(f"repeat-{k}", lambda: measured(setup, work, args.seed))
            for k in range(args.repeats)
        ]
    except InputError as error:
        print(f"{error}; nothing was measured")
        return 0
    rows = judged(predicted(cost, setup, spec, work), repeats)
    result |= {
        "setup": asdict(setup),
        "workload": given,
        "workload_hash": work.hash(),
        "cost": {name: cost[name] for name in ("w", "f", "k", "s", "q", "t_req")},
        "calibration": {**cost["about"], "neighbours": cost["neighbours"]},
        "repeats": repeats,
        "quiet": [is_quiet(part["neighbours"]) for part in (cost, *repeats)],
        "quiet_below_cores": QUIET,
        "figures": rows,
        "target": TARGET,
        "met": all(abs(rows[name]["error"]) <= TARGET for name in FIGURES),
    }
    report(rows, result["quiet"])
    if not args.no_write:
        print(f"written to {write(args.name, result)}")
    return 1 if args.strict and not result["met"] else 0


def is_quiet(cores: dict[str, float] | None) -> bool | None:
    """Whether nobody else worked; None where that cannot be told."""
    return None if cores is None else cores["others"] + cores["steal"] <= QUIET


def report(rows: dict[str, Any], quiet: list[bool | None]) -> None:
    for name, row in rows.items():
        seen = row["measured"]
        goal = f" (at most {TARGET:.0%}: {verdict(abs(row['error']) <= TARGET)})"
        print(
            f"{name:<12} predicted {row['predicted'] * 1e3:>8.1f} ms, measured "
            f"{seen['median'] * 1e3:>8.1f} ({seen['min'] * 1e3:.1f} to {seen['max'] * 1e3:.1f}), "
            f"error {row['error']:+.1%}{goal if name in FIGURES else ''}"
        )
    print(f"quiet parts: {sum(q is True for q in quiet)} of {len(quiet)}")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
