"""``minilab generate``: texts continued by the engine on this machine."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from minilab.cli.output import check_place, print_json, tell
from minilab.cli.parser import Parser, number, whole_number
from minilab.cli.sim import RUNLOGS
from minilab.facts import runlog_io
from minilab.facts.errors import InputError
from minilab.facts.ticks import TICKS_PER_SECOND

if TYPE_CHECKING:
    from minilab.engine.llm import LLM
    from minilab.engine.output import Output
    from minilab.engine.sampling import SamplingParams


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "generate",
        help="continue texts with a real model",
        description="Continue one text or several, all in one batch. Needs torch.",
    )
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="what to continue")
    which = parser.add_argument_group("the model")
    add = which.add_argument
    add("--model", default="smollm2", metavar="M", help="folder, .gguf, smollm2 (default) or tiny")
    add("--dtype", default="auto", help="auto (default), float32, bfloat16, float16")
    add("--device", default="auto", help="auto (default), cpu, cuda")
    add("--num-blocks", type=whole_number(1), default=512, help="KV blocks of 16 tokens (512)")
    add("--cuda-graphs", action="store_true", help="replay decode steps; tells the launch share")
    how = parser.add_argument_group("how tokens are drawn")
    add = how.add_argument
    add("--max-tokens", type=whole_number(1), default=32, metavar="N", help="most tokens (32)")
    add("--temperature", type=number, default=0.0, metavar="T", help="0 (default): the likeliest")
    add("--top-k", type=whole_number(0), default=0, metavar="K", help="of the K likeliest only")
    add("--top-p", type=number, default=1.0, metavar="P", help="of the likeliest that sum to P")
    add("--seed", type=whole_number(0), metavar="N", help="makes the draws repeatable")
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this; repeatable")
    add("--ignore-eos", action="store_true", help="go on after the end-of-text token")
    out = parser.add_argument_group("what comes out")
    out.add_argument("--json", action="store_true", help="print one JSON object")
    out.add_argument("--out", metavar="RUNLOG", help="write the run log (.jsonl or .parquet)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    check_place(args.out, RUNLOGS)
    try:
        from minilab.core.config import SchedulerConfig
        from minilab.engine.load import load_llm
        from minilab.engine.sampling import SamplingParams
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed; the engine needs it; pip install 'minilab[gpu,model]'"
        ) from None
    params = SamplingParams(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        max_tokens=args.max_tokens,
        seed=args.seed,
        stop=args.stop,
        ignore_eos=args.ignore_eos,
    )
    llm = load_llm(args.model, SchedulerConfig(args.num_blocks), args.dtype, args.device)
    graphs = llm.use_decode_graphs() if args.cuda_graphs else None
    if len(args.texts) == 1 and not args.json:
        outputs = [_aloud(llm, args.texts[0], params)]
    else:
        outputs = llm.generate(args.texts, params)
    if args.out:
        source = {"name": "minilab generate", "kind": "measured"}
        runlog_io.write(llm.record.to_runlog(data=source, model=str(args.model)), args.out)
    if args.json:
        print_json({"model": str(args.model), "outputs": [_row(output) for output in outputs]})
    elif len(outputs) > 1:
        print("\n---\n".join(output.text for output in outputs))
    tell(_summary(llm, outputs))
    if graphs is not None and graphs.num_replays:
        tell(str(graphs.launch_share()))
    return 0


def _aloud(llm: LLM, text: str, params: SamplingParams) -> Output:
    """One text, printed while it grows."""
    if llm.tokenizer is None:
        raise InputError("the model has no tokenizer.json; put the model's own into its folder")
    state = llm.add(llm.tokenizer.encode(text), params)
    shown = 0
    while llm.step():
        grown = llm.executor.texts[state.id].text
        sys.stdout.write(grown[shown:])
        sys.stdout.flush()
        shown = len(grown)
    print()
    return llm.output(state, text)


def _row(output: Output) -> dict[str, Any]:
    return {
        "prompt": output.prompt,
        "prompt_tokens": len(output.prompt_token_ids),
        "text": output.text,
        "token_ids": output.token_ids,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "cached_tokens": output.num_cached_tokens,
    }


def _summary(llm: LLM, outputs: list[Output]) -> str:
    tokens = sum(len(output.token_ids) for output in outputs)
    seconds = llm.record.now() / TICKS_PER_SECOND
    model = llm.executor.model
    kind = str(model.dtype).removeprefix("torch.")
    return (
        f"{tokens} tokens in {llm.num_steps} steps, {seconds:.2f} s "
        f"({tokens / seconds:.1f} tokens/s) on {model.device}, {kind}"
    )
