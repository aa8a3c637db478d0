"""``minilab serve``: the engine behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minilab.cli.output import check_place, tell
from minilab.cli.parser import Parser, positive, whole_number
from minilab.facts import runlog_io
from minilab.facts.errors import InputError

if TYPE_CHECKING:
    from minilab.engine.llm import LLM
    from minilab.facts.runlog import RunLog

RUNLOGS = (".jsonl", ".parquet")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "serve",
        help="serve a model over HTTP, as OpenAI does",
        description="Serve /v1/completions, /v1/chat/completions, /v1/models, /health and "
        "/metrics (vLLM's names). SIGTERM or Ctrl-C finishes what runs; a second one ends at once.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a folder, a .gguf file, smollm2, or tiny (random weights)"
    )
    _add_place(parser)
    _add_engine(parser)
    _add_limits(parser)
    parser.set_defaults(run=run)


def _add_place(parser: Parser) -> None:
    group = parser.add_argument_group("where and for whom")
    add = group.add_argument
    add("--host", default="127.0.0.1", metavar="HOST", help="default: this machine alone")
    add("--port", type=whole_number(0), default=8000, metavar="N", help="0: any (default 8000)")
    add("--served-model-name", dest="name", metavar="NAME", help="default: MODEL's last part")
    add(
        "--api-key-file",
        metavar="FILE",
        help="one key per line, of which requests must carry one (default: $MINILAB_API_KEY)",
    )
    add("--chat-template", metavar="FILE", help="jinja2, in place of the model's own")
    add("--runlog", metavar="FILE", help="write a run log at the end (.jsonl or .parquet)")


def _add_engine(parser: Parser) -> None:
    group = parser.add_argument_group("engine")
    one = whole_number(1)
    add = group.add_argument
    add("--kv-blocks", type=one, default=2048, metavar="N", help="KV blocks (default 2048)")
    add("--block-size", type=one, default=16, metavar="N", help="tokens per block (default 16)")
    add("--max-num-batched-tokens", type=one, default=2048, metavar="N", help="tokens per step")
    add("--max-num-seqs", type=one, default=64, metavar="N", help="running requests (default 64)")
    add("--max-model-len", type=one, metavar="N", help="tokens of a request, prompt and output")
    add("--no-prefix-cache", action="store_true", help="compute every prompt from its start")
    add("--dtype", default="auto", metavar="DTYPE", help="float32, bfloat16, float16 or auto")
    add("--device", default="auto", metavar="DEVICE", help="cpu, cuda, cuda:1 or auto")
    add("--seed", type=whole_number(0), default=0, metavar="N", help="of requests without one")
    add(
        "--speculative-config",
        dest="speculative",
        metavar="JSON",
        help="guess several tokens ahead, in vLLM's words: "
        """'{"method": "ngram", "num_speculative_tokens": 4}'; methods: ngram, suffix, """
        "draft_model, eagle, medusa, table (the last four with a model)",
    )


def _add_limits(parser: Parser) -> None:
    group = parser.add_argument_group("limits")
    one = whole_number(1)
    add = group.add_argument
    add("--max-queue", type=one, default=256, metavar="N", help="waiting requests, then 429")
    add("--max-body", type=one, default=4 << 20, metavar="BYTES", help="of a request, then 413")
    add("--request-timeout", type=positive, default=600.0, metavar="S", help="then 504")
    add("--stall-timeout", type=positive, default=30.0, metavar="S", help="of a slow reader")
    add("--drain-timeout", type=positive, default=30.0, metavar="S", help="after SIGTERM")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    check_place(args.runlog, RUNLOGS)
    try:
        from minilab.engine.load import load_llm
        from minilab.engine.spec.config import SpeculativeConfig
        from minilab.serve.keys import api_keys
        from minilab.serve.runner import listen
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed; `pip install 'minilab[gpu,model,serve]'`"
        ) from None
    keys = api_keys(args.api_key_file)
    ahead = None if args.speculative is None else SpeculativeConfig.parse(args.speculative)
    template = _text(args.chat_template)
    with listen(args.host, args.port) as place:
        llm = load_llm(args.model, _scheduler(args), args.dtype, args.device, args.seed)
        if ahead is not None:
            llm.use_speculation(ahead.speculation(llm))
            tell(f"speculation: {ahead.method}, up to {ahead.table.most} guesses a step")
        if args.host not in LOOPBACK and not keys:
            tell(f"{args.host} may be reached by others and no API key is set; see --api-key-file")
        log, broken = asyncio.run(_serve(args, llm, place, keys, template))
    if log is not None:
        runlog_io.write(log, args.runlog)
    if broken is not None:
        raise RuntimeError(f"the engine stopped: {type(broken).__name__}: {broken}") from broken
    return 0


def _scheduler(args: argparse.Namespace) -> Any:
    from minilab.core.config import SchedulerConfig

    try:
        return SchedulerConfig(
            num_blocks=args.kv_blocks,
            block_size=args.block_size,
            max_num_batched_tokens=args.max_num_batched_tokens,
            max_num_seqs=args.max_num_seqs,
            enable_prefix_caching=not args.no_prefix_cache,
        )
    except ValueError as error:
        raise InputError(str(error)) from None


async def _serve(
    args: argparse.Namespace, llm: LLM, place: Any, keys: list[str], template: str | None
) -> tuple[RunLog | None, BaseException | None]:
    """Serve until told to end; returns the run log, and what broke the engine."""
    from minilab.serve.app import make_app
    from minilab.serve.limits import ServeLimits
    from minilab.serve.runner import run_app, signals, url_of
    from minilab.serve.service import Service

    limits = ServeLimits(
        max_queue=args.max_queue,
        max_body=args.max_body,
        request_timeout=args.request_timeout,
        stall_timeout=args.stall_timeout,
        drain_timeout=args.drain_timeout,
    )
    service = Service(
        llm,
        args.name or Path(args.model).name,
        limits,
        max_model_len=args.max_model_len,
        chat_template=template,
        keep_record=args.runlog is not None,
    )

    async def drain() -> None:
        tell(f"ending: {service.in_flight} requests have {limits.drain_timeout:g} s to finish")
        late = await service.drain(limits.drain_timeout)
        if late:
            tell(f"{late} requests did not finish in time and were told so")

    tell(f"{service.model} at {url_of(place)}/v1, up to {service.max_model_len} tokens a request")
    hurry = asyncio.Event()
    with signals(service.ended, hurry):
        await run_app(make_app(service, keys), place, drain, service.ended, hurry)
    return service.close(), service.broken


def _text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise InputError(f"{path}: {reason.lower()}; give a jinja2 file") from None
