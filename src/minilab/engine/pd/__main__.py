"""``python -m minilab.engine.pd``: the same requests to one engine and to the split.

Prints how many answers are equal, and what crossed the wire. Exit status: 0 all are equal, 1 some
are not, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from minilab.core.config import SchedulerConfig
from minilab.engine.load import load_llm
from minilab.engine.pd.settings import FIRST_TOKEN, TRANSPORTS, PdSettings
from minilab.engine.pd.split import SplitEngine
from minilab.engine.pd.trial import BLOCK, TIGHT, plain_answers, requests, split_answers
from minilab.facts.errors import InputError

UNTESTED = "transport nccl: untested; no machine with two GPUs has run it yet"


def main() -> int:
    """Compare once."""
    parser = argparse.ArgumentParser(prog="python -m minilab.engine.pd", description=__doc__)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--model", default="tiny", help="see minilab.engine.load (default: tiny)")
    parser.add_argument("--device", default="auto", help="of both processes (default: auto)")
    parser.add_argument("--transport", choices=TRANSPORTS, default="gloo")
    parser.add_argument("--pieces", action="store_true", help="send each block of each layer")
    parser.add_argument("--first-token", choices=FIRST_TOKEN, default="prefill")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.requests < 1:
        parser.error(f"--requests is {args.requests}; give at least 1")
    if args.transport == "nccl":
        print(UNTESTED, file=sys.stderr)
    settings = PdSettings(
        model=args.model,
        device=args.device,
        seed=args.seed,
        prefill=TIGHT,
        decode=TIGHT,
        transport=args.transport,
        gather=not args.pieces,
        first_token=args.first_token,
    )
    try:
        return _compare(args.requests, settings)
    except InputError as error:
        print(f"minilab: {error}", file=sys.stderr)
        return 2


def _compare(count: int, settings: PdSettings) -> int:
    small = SchedulerConfig(1, BLOCK, max_num_seqs=1)
    model = load_llm(settings.model, small, settings.dtype, settings.device, settings.seed)
    asked = requests(count, model.executor.model.config.vocab_size, settings.seed)
    plain = plain_answers(asked, settings)
    with SplitEngine(settings) as split:
        outputs = split_answers(asked, split)
        status = split.status()
    equal = sum(mine.token_ids == one for mine, one in zip(outputs, plain, strict=True))
    print(f"{equal} of {count} answers are those of one engine, token for token")
    print(f"{sum(one.handed_over for one in outputs)} requests were handed over")
    for role, found in status.items():
        print(
            f"{role:8}{found['steps']:>5} steps, {found['chunked']} prompts in chunks, "
            f"{found['preemptions']} preemptions, {found['cached_tokens']} tokens from the prefix "
            f"cache, {found['used_blocks']} of {found['num_blocks']} blocks in use at the end"
        )
    print(_transfers(status["decode"]["moved"]))
    for output in outputs:
        if output.error:
            print(output.error)
    return int(equal < count)


def _transfers(moved: dict[str, Any]) -> str:
    return (
        f"{moved['transfers']} transfers: {moved['blocks']} blocks in {moved['pieces']} pieces, "
        f"{moved['nbytes']:,} bytes, {1e3 * moved['seconds']:.0f} ms on the wire"
    )


if __name__ == "__main__":
    sys.exit(main())
