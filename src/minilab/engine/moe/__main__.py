"""``python -m minilab.engine.moe``: the tiny DeepSeek on several processes, and what they send."""

from __future__ import annotations

import argparse
import sys

from minilab.engine.deepseek.shipped import DOMAINS, FOLDER, held_out
from minilab.engine.moe.group import GroupError
from minilab.engine.moe.launch import run_ranks
from minilab.engine.moe.worker import MODES, SENDING, Job
from minilab.facts.errors import InputError

PROMPT = 48


def main() -> int:
    """Run it, print bytes by kind and process; 2 for bad input, 3 if the group fails."""
    parser = argparse.ArgumentParser(prog="python -m minilab.engine.moe", description=__doc__)
    parser.add_argument("--size", type=int, default=2, help="processes")
    parser.add_argument("--mode", choices=MODES, default="ep")
    parser.add_argument("--sending", choices=tuple(SENDING), default="per_rank")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=16)
    options = parser.parse_args()
    texts = [held_out(DOMAINS[i % 2])[i * PROMPT :][:PROMPT] for i in range(options.requests)]
    job = Job(
        str(FOLDER),
        [text.tolist() for text in texts],
        options.max_tokens,
        options.mode,
        options.sending,
    )
    try:
        results = run_ranks(job, options.size)
    except (GroupError, InputError) as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, GroupError) else 2
    tokens = options.requests * (PROMPT + options.max_tokens - 1)
    print(f"{options.size} processes over gloo, {options.mode}, {tokens} tokens computed")
    for rank, result in enumerate(results):
        sent = ", ".join(f"{kind} {count:,} B" for kind, count in result.sent_bytes.items())
        print(f"rank {rank}: {result.num_steps} steps with own tokens; sent {sent or 'nothing'}")
    for kind in ("dispatch", "combine", "all_reduce"):
        total = sum(result.sent_bytes.get(kind, 0) for result in results)
        if total:
            print(f"{kind}: {total / tokens:,.0f} B per token, all layers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
