"""At which load does speculation stop paying: what the simulator says, and what the engine does.

1. A model of random weights, large enough that a wide step costs more than a narrow one, is put
   into a folder. Its steps are timed (``minilab calibrate engine``), verifying steps too, and one
   cost is fitted to all of them.
2. The same requests arrive at six rates. Simulator and engine serve them without guesses and with
   always ``K``; with ``--dynamic`` the engine also with as many as the table says that follows
   from the fitted cost (dynamic K).
3. The turning point is the first rate of the grid at which guesses do not pay any more: in mean
   time per token, and in goodput at a stated limit. Both should agree within one step of the grid.

On the engine guesses are foretold: each is the true next token with chance ALPHA, so that both
sides have the same acceptance, and guessing costs a look-up. The clock is the process's own CPU
time with one thread (waits are skipped), so neighbours count little; ``load`` says how many.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import host, verdict, write
from foretold import ALPHA, PROMPT, SHAPE, answers_of, checkpoint, foretold
from prediction import Neighbours, tell

K, REQUESTS, OUTPUT = 4, 16, 32
SHARES = (0.1, 0.25, 0.4, 0.6, 0.85, 1.1)
"""The grid: rates as shares of what the simulated server can do at most, without guesses."""
BATCHES = (1, 2, 4, 8, 16)
MARGIN = 0.03
"""Of goodput: below it there is no difference. An unhurried server serves what arrives, and the
last request's end alone moves its rate by a per cent."""


def engine(setup: Any, table: Any, answers: Any, seed: int) -> Any:
    """The engine with foretold guesses, so many as ``table`` says; None: without."""
    from minilab.engine.spec.speculation import Speculation

    llm = setup.load(prefix_cache=False)
    if table is not None:
        llm.use_speculation(Speculation(foretold(answers, seed), table))
    return llm


def verify_rows(setup: Any, answers: Any, seed: int) -> list[tuple[Any, float]]:
    """(shape, CPU seconds) of steps in which each of B sequences verifies 1 + k positions."""
    from minilab.engine.spec.draft_table import DraftTable
    from minilab.facts.cost import StepShape
    from minilab.judge.engine_calibrate import greedy
    from minilab.judge.engine_clock import CLOCKS

    rows = []
    clock = CLOCKS[setup.clock]()
    for k in (1, 2, K):
        llm = engine(setup, DraftTable.constant(k), answers, seed)
        for batch in BATCHES:
            states = [llm.add([*p], greedy(OUTPUT)) for p in list(answers)[:batch]]
            while llm.scheduler.num_running + llm.scheduler.num_waiting:
                begin = clock.now()
                plan = llm.scheduler.schedule()
                shape = StepShape(plan.num_tokens, plan.num_seqs, plan.context, plan.pairs)
                llm.scheduler.update(plan, llm.executor.execute(plan))
                if not plan.prefills and plan.drafts:
                    rows.append((shape, clock.now() - begin))
            for state in states:
                llm.output(state)
    return rows


def cost_of(setup: Any, rounds: int, seed: int, rows: list[tuple[Any, float]]) -> Any:
    """(fitted cost, its errors on plain and on verifying steps)."""
    from minilab.facts.cost import StepShape
    from minilab.judge.engine_calibrate import calibrate_engine
    from minilab.judge.engine_fit import error_summary, fit_steps

    plain = calibrate_engine(setup, rounds, seed, None, tell)["about"]["steps"]
    shapes = [StepShape(r["tokens"], r["sequences"], r["context"], r["pairs"]) for r in plain]
    own = [*zip(shapes, (row["seconds"] for row in plain), strict=True)]
    cost = fit_steps(*zip(*(own + rows), strict=True))

    def errors(part: list[tuple[Any, float]]) -> dict[str, float]:
        return error_summary([{"error": cost.seconds(shape) / s - 1} for shape, s in part])

    return cost, {"plain steps": errors(own), "verifying steps": errors(rows)}


def figures(log: Any, limit: float) -> dict[str, float]:
    """Mean time per token (s), and goodput (requests per second) at ``limit`` on it."""
    from minilab.facts import slo

    tpot = slo.metric(log, "tpot")
    judged = slo.goodput(log, f"tpot={limit},ttft={20 * limit}")
    return {"tpot": float(tpot.mean()), "goodput": float(judged.goodput or 0.0)}


def turning(rows: list[dict[str, Any]], side: str, figure: str, drafter: str) -> int:
    """Index of the first rate at which ``drafter`` does not pay; one behind the last if always."""
    for number, row in enumerate(rows):
        plain, guessed = row[side]["plain"][figure], row[side][drafter][figure]
        if (guessed >= plain) if figure == "tpot" else (guessed < (1 - MARGIN) * plain):
            return number
    return len(rows)


def best_table(cost: Any) -> Any:
    """Dynamic K from the fitted cost: vLLM's [[from, to, k], ...]."""
    from minilab.engine.spec.draft_table import DraftTable
    from minilab.facts.cost import StepShape

    context = PROMPT + OUTPUT // 2
    seconds = {
        (batch, k): cost.seconds(StepShape(batch * (k + 1), batch, batch * context, 0))
        for batch in range(1, BATCHES[-1] + 1)
        for k in range(K + 1)
    }
    return DraftTable.best(seconds, [ALPHA ** (i + 1) for i in range(K)])


def served(setup: Any, experiment: Any, work: Any, table: Any, known: Any) -> Any:
    """One rate: figures of simulator and engine, for each way of guessing."""
    from minilab.engine.spec.draft_table import DraftTable
    from minilab.judge.engine_calibrate import greedy
    from minilab.judge.engine_clock import CLOCKS
    from minilab.judge.engine_play import play

    answers, seed, limit = known
    found: dict[str, Any] = {"simulator": {}, "engine": {}}
    ways = {"plain": None, "always": DraftTable.constant(K), "dynamic": table}
    for name, rows in ways.items():
        if name == "dynamic" and table is None:
            continue
        if name != "dynamic":  # the simulator has no table
            drafts = 0 if rows is None else K
            log = experiment.with_(num_speculative_tokens=drafts).run(work)
            found["simulator"][name] = figures(log, limit)
        llm = engine(setup, rows, answers, seed)
        found["engine"][name] = figures(
            play(llm, work, greedy, seed, clock=CLOCKS[setup.clock]()), limit
        )
        if rows is not None:
            counts = llm.executor.speculation.counts
            found["engine"][name]["acceptance_rate"] = counts.acceptance_rate
            found["engine"][name]["expanded_batch"] = counts.expanded_batch
    return found


def measured(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole comparison."""
    from minilab.facts.workload import synthetic
    from minilab.judge.engine_calibrate import EngineSetup
    from minilab.sim.experiment import Experiment

    checkpoint(folder)
    setup = EngineSetup(str(folder), 512, 16, 256, BATCHES[-1], threads=1, clock="cpu")

    def work(rate: float, seed: int) -> Any:
        return synthetic(rate, REQUESTS, PROMPT, OUTPUT, seed=seed)

    answers = answers_of(setup, work(1.0, args.seed), args.seed)
    cost, errors = cost_of(setup, args.rounds, args.seed, verify_rows(setup, answers, args.seed))
    experiment = Experiment(
        cost=json.dumps(cost.to_dict()), kv_blocks=512, max_num_batched_tokens=256,
        max_num_seqs=BATCHES[-1], prefix_cache=False, acceptance_rate=ALPHA,
    )  # fmt: skip
    flood = experiment.run(work(1e6, args.seed))
    most = REQUESTS / float(flood.requests["finish"].max())
    limit = 2.5 * figures(experiment.run(work(0.01 * most, args.seed)), 1.0)["tpot"]
    table = best_table(cost)
    rows = []
    for share in SHARES:
        repeats = [
            served(setup, experiment, work(share * most, seed), table if args.dynamic else None,
                   (answers, args.seed, limit))
            for seed in range(args.seed, args.seed + args.seeds)
        ]  # fmt: skip
        rows.append({"rate": share * most, "share": share, **mean(repeats)})
        tell(json.dumps(rows[-1]))
    turns = {}
    for figure in ("tpot", "goodput"):
        said, seen = (turning(rows, side, figure, "always") for side in ("simulator", "engine"))
        turns[figure] = {"simulator": said, "engine": seen, "met": abs(said - seen) <= 1}
    return {
        "model": {**SHAPE, "weights": "random"},
        "setup": {**asdict(setup), "model": "random weights of the shape above"},
        "k": K, "alpha": ALPHA, "requests": REQUESTS, "prompt": PROMPT, "output": OUTPUT,
        "seed": args.seed, "seeds": args.seeds, "tpot_limit": limit, "cost": cost.to_dict(),
        "errors": errors, "table": [list(row) for row in table.rows], "rows": rows,
        "turning": turns, "goodput_margin": MARGIN,
    }  # fmt: skip


def mean(repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure over the seeds."""
    first = repeats[0]
    if not isinstance(first, dict):
        return sum(repeats) / len(repeats)  # type: ignore[arg-type,return-value]
    return {key: mean([one[key] for one in repeats]) for key in first}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="of the calibration")
    parser.add_argument("--seeds", type=int, default=2, help="arrivals at each rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dynamic", action="store_true", help="serve with the table as well")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    watch, machine = Neighbours(), host()
    with tempfile.TemporaryDirectory() as folder:
        result = measured(args, Path(folder) / "random-llama")
    result = {"host": machine, "load": watch.cores(), **result}
    for name, one in result["turning"].items():
        print(f"{name}: simulator {one['simulator']}, engine {one['engine']} "
              f"(within one step: {verdict(one['met'])})")  # fmt: skip
    print("dynamic K:", result["table"])
    if not args.no_write:
        print(f"written to {write('spec_turning_point', result)}")
    met = all(one["met"] for one in result["turning"].values())
    return 0 if met or not args.strict else 1


if __name__ == "__main__":
    sys.exit(main())
