"""Speculation on this machine's clock: five kinds of text at batch 1, and what it costs at 16.

Prompt lookup (4 to 2 tokens, 5 drafts) on SmolLM2-135M in fp32. The texts with and without drafts
must be the same; where they part, the target's two best logits must be a tie as far as rounding
goes, and the gap is reported. Counts hold anywhere; times are of the machine named beside them.
Where others use the machine, ``--clock cpu`` counts CPU seconds instead (one thread).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import common
from drafter.tasks import chat
from prediction import Neighbours

K, TOKENS = 5, 160
TIE = 1e-3
TARGET_SPEEDUP, TARGET_OVERHEAD = 2.0, 0.05
PASSAGE = (
    "The night train to the coast left at ten past nine, with four carriages and a dining car that "
    "nobody had used since spring. In the last compartment a man in a grey coat was counting the "
    "stations on his fingers. He had sold his clocks, all but one, and that one was running "
    "backwards. When the guard came by, he asked whether time was the same at the sea. The guard "
    "looked at the ticket, then at the clock, and said that it was always a little later there, "
    "because of the tide. At the third station a woman got in with a basket of plums and a dog "
    "that did not like clocks. They did not speak until the lights of the harbour came up behind "
    "the hills, and then all three of them looked out of the same window."
)
FUNCTION = '''def mean_gap(times, limit):
    """Average gap between times, gaps above limit left out."""
    gaps = []
    for i in range(1, len(times)):
        gap = times[i] - times[i - 1]
        if gap <= limit:
            gaps.append(gap)
    if not gaps:
        return None
    total = 0.0
    for gap in gaps:
        total = total + gap
    return total / len(gaps)


def longest_gap(times, limit):
    """Largest gap between times that is not above limit."""
    longest = 0.0
    for i in range(1, len(times)):
        gap = times[i] - times[i - 1]
        if gap <= limit and gap > longest:
            longest = gap
    return longest'''
PROMPTS = {
    "copy": f"Repeat the following text exactly.\n\n{PASSAGE}",
    "code edit": "Return 0.0 instead of None in mean_gap, and print the whole code again.\n\n"
    f"```python\n{FUNCTION}\n```",
    "summarise": f"Summarize the following text in a few sentences.\n\n{PASSAGE}",
    "RAG": f"Answer from the passage.\n\nPassage: {PASSAGE}\n\nQuestion: What did the man in the "
    "grey coat ask the guard, and what was the answer?",
    "story": "Write a short story about a clockmaker who travels to the sea.",
}


def engine(checkpoint: Any, seqs: int, drafts: bool) -> Any:
    """The engine with or without prompt lookup."""
    from minilab.core.config import SchedulerConfig
    from minilab.engine.llm import LLM
    from minilab.engine.spec.ngram import NGram
    from minilab.engine.spec.speculation import Speculation

    limits = SchedulerConfig(
        40 * seqs, 16, max_num_batched_tokens=2048, max_num_seqs=seqs, enable_prefix_caching=False
    )
    speculation = Speculation.of(NGram(4, 2), K) if drafts else None
    return LLM(*checkpoint, limits, speculation=speculation)


def timed(llm: Any, ids: list[list[int]], clock: Any) -> tuple[list[list[int]], float]:
    """Texts, and seconds from the end of the prompts' step to the last token."""
    from minilab.engine.sampling import SamplingParams

    rule = SamplingParams(temperature=0, max_tokens=TOKENS)
    states = [llm.add(one, rule) for one in ids]
    while llm.scheduler.waiting or llm.scheduler.prefilling:
        llm.step()
    began = clock.now()
    while llm.step():
        pass
    lasted = clock.now() - began
    return [llm.output(state).token_ids for state in states], lasted


def gap_where_they_part(checkpoint: Any, prompt: list[int], one: list[int], two: list[int]) -> Any:
    """None for equal texts, else the target's gap between its two best logits at that place."""
    import torch

    from minilab.engine.batch import Piece, StepBatch
    from minilab.engine.model import Decoder

    place = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), None)
    if place is None:
        return None if len(one) == len(two) else float("inf")
    text = prompt + one[:place]
    model = Decoder(*checkpoint, 1, len(text))
    batch = StepBatch.laid_out([Piece(text, 0, [0], 1)], len(text), torch.device("cpu"))
    best = model.forward(batch)[0].topk(2).values
    return float(best[0] - best[1])


def share_of_proposing(checkpoint: Any, ids: list[list[int]], clock: Any) -> dict[str, float]:
    """At batch 16: proposing, judging and bookkeeping as a share of the decode steps' time."""
    llm = engine(checkpoint, 16, drafts=True)
    spent = {"propose": 0.0, "judge": 0.0}
    for name in spent:
        inner = getattr(llm.executor.speculation, name)

        def outer(*args: Any, inner: Any = inner, name: str = name) -> Any:
            began = clock.now()
            found = inner(*args)
            spent[name] += clock.now() - began
            return found

        setattr(llm.executor.speculation, name, outer)
    _, total = timed(llm, ids, clock)
    counts = llm.executor.speculation.counts
    return {
        "share": sum(spent.values()) / total,
        **{f"{name}_share": value / total for name, value in spent.items()},
        "seconds": total,
        "tokens_per_step": counts.tokens_per_step,
        "expanded_batch": counts.expanded_batch,
    }


def width_curve(checkpoint: Any, clock: Any) -> dict[str, float]:
    """Milliseconds of one step of one sequence by the number of tokens verified, context 512."""
    import torch

    from minilab.engine.batch import Piece, StepBatch
    from minilab.engine.model import Decoder

    model = Decoder(*checkpoint, 34, 16)
    found = {}
    for width in (1, 2, 3, 4, 5, 6, 9, 17):
        piece = Piece(list(range(width)), 512, list(range(34)), width)
        batch = StepBatch.laid_out([piece], 16, torch.device("cpu"))
        lasted = []
        for _ in range(8):
            began = clock.now()
            model.forward(batch)
            lasted.append(clock.now() - began)
        found[str(width)] = round(1e3 * min(lasted), 2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail where a target is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file alone")
    parser.add_argument("--threads", type=int, default=0, help="default: all cores; cpu clock: 1")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    host = common.host()

    import torch

    from minilab.engine.gguf_file import GgufFile
    from minilab.engine.load import smollm2_file
    from minilab.engine.spec.metrics import DraftCounts
    from minilab.engine.tokenizer import Tokenizer
    from minilab.judge.engine_clock import CLOCKS

    if options.clock == "cpu":
        options.threads = 1
    torch.set_num_threads(options.threads or os.cpu_count() or 1)
    clock, watch = CLOCKS[options.clock](), Neighbours()
    file = GgufFile(smollm2_file())
    tokenizer = Tokenizer.from_gguf(file.fields)
    checkpoint = file.load(torch.device("cpu"), torch.float32)
    ids = {kind: tokenizer.encode(chat(prompt), False) for kind, prompt in PROMPTS.items()}
    rows: dict[str, Any] = {}
    plain, llm = (engine(checkpoint, 1, drafts) for drafts in (False, True))
    for kind, prompt in ids.items():
        (without,), slow = timed(plain, [prompt], clock)
        llm.executor.speculation.counts = DraftCounts()
        (with_drafts,), fast = timed(llm, [prompt], clock)
        counts = llm.executor.speculation.counts
        rows[kind] = {
            "tokens": len(without),
            "tokens_per_step": round(counts.tokens_per_step, 3),
            "acceptance_length": round(counts.acceptance_length, 3),
            "acceptance_rate": round(counts.acceptance_rate, 3),
            "per_position": [round(each, 3) for each in counts.per_position],
            "expanded_batch": round(counts.expanded_batch, 3),
            "seconds_plain": round(slow, 3),
            "seconds_speculative": round(fast, 3),
            "speedup": round(slow / fast, 3),
            "logit_gap_where_texts_part": gap_where_they_part(
                checkpoint, prompt, without, with_drafts
            ),
        }
        print(kind, rows[kind], file=sys.stderr, flush=True)
    shared = [tokenizer.encode(chat(f"{PROMPTS[k]} ({n})"), False) for n in range(4) for k in
              ("copy", "summarise", "RAG", "story")]  # fmt: skip
    batch = share_of_proposing(checkpoint, shared, clock)
    result = {
        "what": f"SmolLM2-135M fp32, prompt lookup 4..2 with {K} drafts, {TOKENS} tokens, greedy",
        "host": host | {"torch": torch.__version__, "threads": torch.get_num_threads()},
        "clock": options.clock,
        "neighbours": watch.cores(),
        "batch 1": rows,
        "batch 16": batch,
        "step_ms_by_width": width_curve(checkpoint, clock),
    }
    gaps = [row["logit_gap_where_texts_part"] for row in rows.values()]
    met = {
        "same texts": all(gap is None or gap < TIE for gap in gaps),
        "copy at batch 1": rows["copy"]["speedup"] >= TARGET_SPEEDUP,
        "proposing at batch 16": batch["share"] < TARGET_OVERHEAD,
        "copy and code edit": min(rows[k]["tokens_per_step"] for k in ("copy", "code edit")) >= 3.5,
    }
    print(
        f"copy {rows['copy']['speedup']:.2f}x (wanted {TARGET_SPEEDUP}x), proposing "
        f"{100 * batch['share']:.2f} % (wanted < 5 %);",
        ", ".join(f"{name}: {common.verdict(each)}" for name, each in met.items()),
    )
    if not options.no_write:
        common.write("spec_speed", result)
    return 0 if all(met.values()) or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
