"""``minilab calibrate``: fit the step cost on measurements, and say how far off it stays."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from minilab.cli.output import check_place, duration, facts, print_json, share, table, tell
from minilab.cli.parser import Parser, whole_number
from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError

METRICS = ("tpot", "ttft", "closed_tpot", "closed_ttft")


def add(commands: Any) -> None:
    """Add the command and what can be calibrated on."""
    parser: Parser = commands.add_parser(
        "calibrate",
        help="fit the step cost on measurements",
        description="Fit the cost model's constants on measurements, score what was not fitted.",
    )
    kinds = parser.add_subparsers(title="on what", dest="kind", metavar="KIND")
    kinds.required = True
    silicon: Parser = kinds.add_parser("silicon", help="on a table of measured operating points")
    replay: Parser = kinds.add_parser("replay", help="on a published run, request by request")
    engine: Parser = kinds.add_parser("engine", help="on this machine's own engine")
    for one in (silicon, replay):
        one.add_argument("--data", metavar="DIR", help="folder of data (default: $MINILAB_DATA)")
        one.add_argument("--json", action="store_true", help="print one JSON object")
        one.add_argument("--out", metavar="FILE", help="write the result as JSON")
    add_silicon = silicon.add_argument
    add_silicon("--engine", default="vllm", help="vllm, sglang, trtllm or all (default vllm)")
    add_silicon("--model", metavar="NAME", help="only rows of this model")
    add_silicon("--store", metavar="FILE", help="scores as JSON lines; an interrupted run goes on")
    add_silicon("--leave-pairs-out", action="store_true", help="score each (model, GPU) unseen")
    add_silicon("--ablations", action="store_true", help="what each term is worth")
    add_silicon("--refused", action="store_true", help="list refused rows with their reasons")
    silicon.set_defaults(run=run_silicon)
    silicon.add_argument("--file", metavar="FILE", help="a table of your own with those columns")
    replay.add_argument("--run", dest="name", metavar="NAME", help="one run (default: all)")
    replay.add_argument("--folder", metavar="DIR", help="a run of your own, named CARD_Model")
    replay.set_defaults(run=run_replay)
    _add_engine(engine)


def _add_engine(parser: Parser) -> None:
    one = whole_number(1)
    add = parser.add_argument
    add("--model", default="smollm2", metavar="NAME", help="a folder, .gguf, smollm2 or tiny")
    add("--kv-blocks", type=one, default=1024, metavar="N", help="KV blocks (1024)")
    add("--block-size", type=one, default=16, metavar="N", help="tokens per block (16)")
    add("--max-num-batched-tokens", type=one, default=256, metavar="N", help="per step (256)")
    add("--max-num-seqs", type=one, default=16, metavar="N", help="running requests (16)")
    add("--threads", type=one, metavar="N", help="of torch (default: as they are)")
    add("--clock", default="wall", metavar="NAME", help="wall; cpu, where others use the machine")
    add("--rounds", type=one, default=5, metavar="N", help="each kind of step N times (5)")
    add("--seed", type=whole_number(0), default=0, metavar="N", help="of prompts and order (0)")
    add("--store", metavar="FILE", help="timed steps as JSON lines; an interrupted run goes on")
    add("--json", action="store_true", help="print one JSON object")
    add("--out", metavar="FILE", help="write the cost model (JSON), for `minilab sim --cost`")
    parser.set_defaults(run=run_engine)


def run_silicon(args: argparse.Namespace) -> int:
    """Fit on one half of the rows, score the other."""
    from minilab.judge.data import SILICON, data_folder
    from minilab.judge.silicon import calibrate
    from minilab.judge.silicon_gate import Silicon, read_silicon
    from minilab.judge.silicon_rows import FILE
    from minilab.judge.store import ScoreStore

    engines = ("vllm", "sglang", "trtllm", "all")
    if args.engine not in engines:
        raise InputError(f"--engine {args.engine}; give one of {', '.join(engines)}")
    check_place(args.out, (".json",))
    check_place(args.store, (".jsonl",))
    engine = None if args.engine == "all" else args.engine
    path = args.file or data_folder(SILICON, args.data) / FILE
    silicon = read_silicon(path, engine)
    if args.model:
        rows = [row for row in silicon.rows if row.spec.name == args.model]
        silicon = Silicon(rows, silicon.refused)
    if args.refused:
        print("\n".join(f"{row.id}: {row.reason}" for row in silicon.refused))
        return 0
    result = calibrate(silicon, ScoreStore(args.store), args.leave_pairs_out, args.ablations, tell)
    if not result["families"]:
        raise InputError(_too_few(len(silicon.rows), silicon.refused))
    _write(args.out, result)
    if args.json:
        print_json(result)
    else:
        print(silicon_text(result))
    return 0


def _too_few(rows: int, refused: Sequence[tuple[str, str]]) -> str:
    said = f"{rows} rows left, at least 24 of a GPU family asked"
    if not refused:
        return f"{said}; give a table with more"
    name, reason = refused[0]
    return (
        f"{said}; {len(refused)} were refused, the first ({name}) because {reason}; "
        "--refused lists all"
    )


def silicon_text(result: dict[str, Any]) -> str:
    """The result for people."""
    counts = ", ".join(f"{n} {why}" for why, n in result["refused"].items() if n)
    lines = [f"{result['rows']} rows used; refused: {counts or 'none'}", ""]
    rows = [["median / p90 error of the held half", "rows", *METRICS]]
    for name, row in [*result["families"].items(), ("all", result["held"])]:
        rows.append([name, str(row["tpot"]["n"]), *(_pair(row[metric]) for metric in METRICS)])
    for name, row in result["left_out"].items():
        if name != "by_pair":
            cells = (_pair(row[metric]) for metric in METRICS)
            rows.append([f"{name}, pairs left out", str(row["tpot"]["n"]), *cells])
    for name, row in result["held_by_pair"].items():
        rows.append([f"  {name}", str(row["tpot"]["n"]), *(_pair(row[m]) for m in METRICS)])
    lines.append(table(rows))
    for name, row in result["families"].items():
        numbers = {k: v for k, v in row["constants"].items() if k != "provenance"}
        lines += ["", f"{name}: " + ", ".join(f"{k} {v:.4g}" for k, v in numbers.items())]
        if row["warning"]:
            lines.append(f"  {row['warning']}")
    for name, row in result.get("ablation", {}).items():
        parts = [f"{metric} {_pair(error)}" for metric, error in row.items()]
        lines.append(f"{name}: {', '.join(parts)}")
    return "\n".join(lines)


def _pair(error: dict[str, Any]) -> str:
    return f"{share(error['median'])} / {share(error['p90'])}"


def run_replay(args: argparse.Namespace) -> int:
    """Replay published runs."""
    from minilab.judge.data import REPLAY, data_folder
    from minilab.judge.replay_run import RUNS, PublishedRun
    from minilab.judge.replays import replay_all, replays

    check_place(args.out, (".json",))
    if args.name is not None and args.name not in RUNS:
        raise InputError(f"--run {args.name}; give one of {', '.join(RUNS)}")
    if args.folder:
        result = replays([PublishedRun.read(args.folder)])
    else:
        names = RUNS if args.name is None else (args.name,)
        result = replay_all(data_folder(REPLAY, args.data), names)
    _write(args.out, result)
    if args.json:
        print_json(result)
    else:
        print(replay_text(result))
    return 0


def replay_text(result: list[dict[str, Any]]) -> str:
    """The result for people."""
    rows = [["error", "TTFT p50", "TTFT p90", "TPOT p50", "TPOT p90", "makespan"]]
    for run in result:
        cases = {**run["cases"], **{f"of {c['from']}": c for c in run["carried"]}}
        rows.append([f"{run['run']} ({run['engine']})", "", "", "", "", ""])
        for name, case in cases.items():
            errors = [case[metric][q] for metric in ("ttft", "tpot") for q in ("p50", "p90")]
            rows.append([f"  {name}", *(f"{e:+.1%}" for e in (*errors, case["makespan"]))])
    return table(rows)


def run_engine(args: argparse.Namespace) -> int:
    """Time steps of the engine on this machine and fit them."""
    from minilab.judge.engine_calibrate import EngineSetup, calibrate_engine

    check_place(args.out, (".json",))
    check_place(args.store, (".jsonl",))
    setup = EngineSetup(
        model=args.model,
        num_blocks=args.kv_blocks,
        block_size=args.block_size,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_num_seqs=args.max_num_seqs,
        threads=args.threads,
        clock=args.clock,
    )
    result = calibrate_engine(setup, args.rounds, args.seed, args.store, tell)
    _write(args.out, result)
    if args.json:
        print_json(result)
    else:
        print(engine_text(result, args.out))
    return 0


def engine_text(result: dict[str, Any], path: str | None) -> str:
    """The result for people, with the command that uses it."""
    about, setup = result["about"], result["about"]["setup"]
    meaning = {"w": "a step", "f": "a token", "k": "a token of context", "s": "a sequence",
               "q": "a pair of a prompt's tokens"}  # fmt: skip
    rows = [["cost of", "seconds"]]
    rows += [[f"{name}: {what}", f"{result[name]:.4g}"] for name, what in meaning.items()]
    steps = [["step", "measured", "fitted", "error"]]
    for row in about["steps"]:
        times = (duration(row["seconds"]), duration(row["predicted"]))
        steps.append([row["step"], *times, f"{row['error']:+.1%}"])
    error = about["error"]
    limits = " ".join(
        f"--{name.replace('_', '-')} {setup[name]}"
        for name in ("block_size", "max_num_batched_tokens", "max_num_seqs")
    )
    command = f"minilab sim --cost {path or 'FILE'} --kv-blocks {setup['num_blocks']} {limits}"
    lines = [
        ("engine", f"{setup['model']} on {about['machine']['cpu']}"),
        ("", f"{about['machine']['threads']} threads of {about['machine']['cores']} cores"),
        ("error", f"{share(error['median'])} median, {share(error['p90'])} p90, "
                  f"{share(error['max'])} at most"),
        ("predict", command),
    ]  # fmt: skip
    legend = "step: decodes x context of each + prompt tokens @ prompt tokens computed before"
    return "\n\n".join([facts(lines), table(rows), table(steps), legend])


def _write(path: str | None, result: Any) -> None:
    if path is not None:
        with whole_file(path) as file:
            file.write((json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
