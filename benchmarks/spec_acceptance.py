"""What drafters achieve on SmolLM2-135M: tokens per step, by kind of text and by position.

The target writes 50 held-out prompts greedily once; every drafter is then replayed on these texts,
which is exact (``minilab.engine.spec.replay``). Loops at the end of a text are cut. All are counts:
a busy machine changes nothing. Intervals are bootstrapped over prompts.

The second EAGLE seed's weights are not in the repository, only its log and its rows here: train it
again (``drafter/train.py eagle DATA OUT --seed 1``), or keep its rows with ``--keep``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from drafter.tasks import chat

KINDS = ("copy", "code", "summarise", "qa", "story")
PROMPTS = Path(__file__).parent / "drafter" / "heldout.json"
TOKENS, RESAMPLES = 160, 1000


def texts(cache: Path) -> list[dict[str, Any]]:
    """The target's texts, with hidden states; kept in ``cache`` between runs."""
    import torch
    from drafter.generate import HiddenStates
    from safetensors.torch import load_file, save_file

    from minilab.core.config import SchedulerConfig
    from minilab.engine.load import load_llm
    from minilab.engine.sampling import SamplingParams
    from minilab.engine.spec.replay import Text, without_loop

    asked = json.loads(PROMPTS.read_text())
    if not cache.exists():
        limits = SchedulerConfig(
            1024, 16, max_num_batched_tokens=2048, max_num_seqs=16, enable_prefix_caching=False
        )
        llm = load_llm("smollm2", limits, device="cpu")
        states = HiddenStates(llm)
        ids = [llm.tokenizer.encode(chat(one["prompt"]), False) for one in asked]  # type: ignore[union-attr]
        outputs = llm.generate(ids, SamplingParams(temperature=0, max_tokens=TOKENS))
        kept: dict[str, torch.Tensor] = {}
        for number, output in enumerate(outputs):
            tokens = [*output.prompt_token_ids, *output.token_ids]
            kept[f"{number}.tokens"] = torch.tensor(tokens)
            kept[f"{number}.prompt"] = torch.tensor(len(output.prompt_token_ids))
            kept[f"{number}.hidden"] = torch.cat(states.rows[number])
        save_file(kept, cache)
    found = load_file(cache)
    result = []
    for number, one in enumerate(asked):
        tokens, prompt = found[f"{number}.tokens"].tolist(), int(found[f"{number}.prompt"])
        cut = without_loop(tokens, prompt)
        if len(cut) > prompt + 8:
            text = Text(cut, prompt, found[f"{number}.hidden"])
            result.append({"kind": one["kind"], "text": text, "cut": len(tokens) - len(cut)})
    return result


def drafters(folder: Path, target: Any) -> dict[str, Callable[[], Any]]:
    """Constructors by name, as far as their files are there."""
    from minilab.engine.spec.eagle import Eagle
    from minilab.engine.spec.hybrid import Hybrid
    from minilab.engine.spec.medusa import Medusa
    from minilab.engine.spec.ngram import NGram
    from minilab.engine.spec.suffix import Suffix
    from minilab.engine.spec.table import Table

    found: dict[str, Callable[[], Any]] = {
        "n-gram 4..2": lambda: NGram(4, 2),
        "n-gram 3..1": lambda: NGram(3, 1),
        "suffix tree": Suffix,
    }
    learned: dict[str, Callable[[], Any]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        kind = path.stem.split("-")[0]
        if kind == "table":
            learned["static table"] = lambda path=path: Table.load(path)
        elif kind in ("eagle", "medusa"):
            made = {"eagle": Eagle, "medusa": Medusa}[kind]
            learned[path.stem] = lambda path=path, made=made: made.load(target, path)
    for name, make in learned.items():
        found[name] = make
        found[f"n-gram, else {name}"] = lambda make=make: Hybrid(NGram(4, 2), make())
    return found


def measure(make: Callable[[], Any], known: list[dict[str, Any]], k: int) -> list[Any]:
    """Counts of each text; one proposer for all, as a server has."""
    from minilab.engine.spec.replay import replay

    proposer = make()
    return [replay(proposer, one["text"], k) for one in known]


def summary(counts: list[Any], kinds: list[str]) -> dict[str, Any]:
    """Sums by kind and over all."""
    return {
        kind: _sums([c for c, own in zip(counts, kinds, strict=True) if kind in (own, "all")])
        for kind in (*KINDS, "all")
    }


def _sums(counts: list[Any]) -> dict[str, Any]:
    steps = sum(c.num_steps for c in counts)
    emitted = sum(c.num_emitted_tokens for c in counts)
    drafts = sum(c.num_drafts for c in counts)
    drafted = sum(c.num_draft_tokens for c in counts)
    kept = sum(c.num_accepted_tokens for c in counts)
    width = max((len(c.accepted_per_pos) for c in counts), default=0)
    by_position = [
        sum(c.accepted_per_pos[i] for c in counts if i < len(c.accepted_per_pos))
        for i in range(width)
    ]
    return {
        "steps": steps,
        "tokens": emitted,
        "tokens_per_step": round(emitted / steps, 3),
        "acceptance_length": round(1 + kept / drafts, 3) if drafts else 1.0,
        "acceptance_rate": round(kept / drafted, 3) if drafted else 0.0,
        "share_of_steps_with_draft": round(drafts / steps, 3),
        "kept_by_position_per_step": [round(each / steps, 3) for each in by_position],
        "expanded_batch": round((steps + drafted) / emitted, 3),
    }


def interval(
    counts: list[Any], kinds: list[str], other: list[Any] | None, kind: str, seed: int
) -> list[float]:
    """95 % interval of tokens per step, or of its difference to ``other``, over prompts."""
    rng = random.Random(seed)
    rows = [i for i, own in enumerate(kinds) if kind in (own, "all")]

    def value(own: list[Any], drawn: list[int]) -> float:
        steps = sum(own[i].num_steps for i in drawn)
        return float(sum(own[i].num_emitted_tokens for i in drawn)) / steps

    found = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(rows, k=len(rows))
        found.append(value(counts, drawn) - (value(other, drawn) if other else 0.0))
    found.sort()
    return [round(found[int(share * (RESAMPLES - 1))], 3) for share in (0.025, 0.975)]


def tries(eagle: Any, known: list[dict[str, Any]], count: int = 4) -> dict[str, list[float]]:
    """By kind: how often the true next token was the drafter's first, second, ... choice."""
    from minilab.engine.spec.proposer import Drafting
    from minilab.engine.spec.replay import GREEDY, show

    hits = {kind: [0] * count for kind in (*KINDS, "all")}
    places = dict.fromkeys(hits, 0)
    for one in known:
        text, seen = one["text"], 0
        for end in range(text.num_prompt_tokens + 1, len(text.tokens)):
            show(eagle, text, seen, end - 1)
            seen = end - 1
            guesses = eagle.tries([Drafting(0, text.tokens[:end], GREEDY, 1)], count)[0]
            for kind in (one["kind"], "all"):
                places[kind] += 1
                if text.tokens[end] in guesses:
                    hits[kind][guesses.index(text.tokens[end])] += 1
        eagle.forget(0)
    return {kind: [round(n / max(1, places[kind]), 3) for n in hits[kind]] for kind in hits}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--drafters", type=Path, default=Path(__file__).parent / "drafter" / "weights"
    )
    parser.add_argument("--cache", type=Path, default=Path("/tmp/minilab-heldout.safetensors"))
    parser.add_argument("--only", default="", help="drafters whose names hold this")
    parser.add_argument("--k", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="keep other drafters' earlier results")
    parser.add_argument("--no-write", action="store_true", help="leave the result file alone")
    options = parser.parse_args()
    host = common.host()

    import torch

    from minilab.engine.load import smollm2_file
    from minilab.engine.loader import load
    from minilab.engine.model import Decoder

    torch.set_num_threads(1)
    known = texts(options.cache)
    kinds = [one["kind"] for one in known]
    target = Decoder(*load(smollm2_file()), 1, 16)
    base = measure(drafters(options.drafters, target)["n-gram 4..2"], known, 4)
    table = "n-gram, else static table"
    made = drafters(options.drafters, target)
    fallback = measure(made[table], known, 4) if table in made else None
    result: dict[str, Any] = {
        "what": f"SmolLM2-135M fp32 greedy, {len(known)} held-out prompts, up to {TOKENS} tokens",
        "host": host | {"torch": torch.__version__},
        "seed": options.seed,
        "prompts": {kind: kinds.count(kind) for kind in KINDS},
        "tokens_cut_with_loops": sum(one["cut"] for one in known),
        "drafters": {},
    }
    earlier = common.RESULTS / "spec_acceptance.json"
    if options.keep and earlier.exists():
        before = json.loads(earlier.read_text())
        result["drafters"], result["tries"] = before["drafters"], before.get("tries", {})
    for name, make in drafters(options.drafters, target).items():
        if options.only not in name:
            continue
        learned = any(word in name for word in ("eagle", "medusa"))
        for k in options.k:
            if learned and k != 4:
                continue
            counts = measure(make, known, k)
            row = summary(counts, kinds)
            for kind in row:
                row[kind]["interval"] = interval(counts, kinds, None, kind, options.seed)
                if k == 4:
                    row[kind]["minus_n_gram"] = interval(counts, kinds, base, kind, options.seed)
                if k == 4 and learned and "else" in name and fallback:
                    row[kind]["minus_table_hybrid"] = interval(
                        counts, kinds, fallback, kind, options.seed
                    )
            result["drafters"].setdefault(name, {})[f"k={k}"] = row
            print(
                f"{name:28s} k={k}",
                *(f"{kind} {row[kind]['tokens_per_step']:.2f}" for kind in row),
                flush=True,
            )
    for path in sorted(options.drafters.glob("eagle-*.safetensors")):
        if options.only in path.stem:
            from minilab.engine.spec.eagle import Eagle

            result.setdefault("tries", {})[path.stem] = tries(Eagle.load(target, path), known)
    if not options.no_write:
        common.write("spec_acceptance", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
