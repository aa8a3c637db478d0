"""What the page asks of the calculator: JSON text in, JSON text out. Runs under MicroPython."""

import json
from typing import Any

from minilab.judge.calculator.budget import Budget, weight_bytes
from minilab.judge.calculator.commands import sglang, vllm
from minilab.judge.calculator.fit import concurrency, longest, tokens
from minilab.judge.calculator.held import Held
from minilab.judge.calculator.shown import (
    batch_line,
    budget_line,
    kv_line,
    tokens_line,
    weight_line,
)

BLOCK = 16


class Asked:
    """One setting, every value of the kind that it is: tokens and sequences whole."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.model = values["model"]
        self.gpu = values["gpu"]
        self.weights = values["weight_dtype"]
        self.kv = values["kv_dtype"]
        self.tp = int(values["tp"])
        self.length = int(values["length"])
        self.sequences = int(values["sequences"])
        self.batched = int(values["batched"])
        self.utilization = float(values["utilization"])


class Page:
    """The calculator behind the sliders."""

    def __init__(self, tables: str, parameters: str) -> None:
        self.tables = json.loads(tables)
        self.defaults = {p["name"]: p["default"] for p in json.loads(parameters)}

    def report(self, given: str) -> str:
        """``answer`` for the values in ``given``; what is not given has its default."""
        return json.dumps(self._answer(json.loads(given)))

    def batch(self, given: str) -> str:
        """The same for a list of settings."""
        return json.dumps([self._answer(values) for values in json.loads(given)])

    def _answer(self, given: dict[str, Any]) -> dict[str, Any]:
        values = {name: given.get(name, self.defaults[name]) for name in self.defaults}
        return answer(self.tables, Asked(values))


def answer(tables: Any, asked: Asked) -> dict[str, Any]:
    """What fits, as plain values: bytes per GPU, tokens, requests; the arithmetic in words."""
    model, sizes = tables["models"][asked.model], tables["dtype_bytes"]
    budget = Budget(tables, asked)
    held = Held(model, sizes[asked.kv], asked.tp, BLOCK)
    told: dict[str, Any] = {
        "fits": budget.left > 0,
        "terms": budget.terms,
        "available": budget.left,
        "weights": weight_bytes(model, asked.weights, sizes),
        "kv_bytes_per_token": held.per_token,
    }
    if budget.left <= 0:
        return told
    left, window, most = budget.left, model["window"], asked.sequences
    room = tokens(left, held)
    together = concurrency(left, held, asked.length)
    batch = min(int(together), most)
    told.update(
        {
            "tokens": room,
            "blocks": room // BLOCK,
            "range": [tokens(budget.least, held), tokens(budget.most, held)],
            "max_concurrency": together,
            "batch": batch,
            "limit": "max_num_seqs" if together >= most else "KV memory",
            "tokens_in_flight": batch * asked.length,
            "longest": longest(left, held, window, 1),
            "longest_together": longest(left, held, window, most),
            "model_max_len": model["max_len"],
            "arithmetic": [
                ["weights", weight_line(model, asked.weights, sizes, asked.tp)],
                ["KV per token", kv_line(held)],
                ["for KV", budget_line(budget.terms, left)],
                ["tokens", tokens_line(left, held, room)],
                ["requests", batch_line(left, held, room, asked.length, most)],
            ],
            "flags": [
                ["vLLM", tables["versions"]["vllm"], vllm(model["hub"], asked)],
                ["SGLang", tables["versions"]["sglang"], sglang(model["hub"], asked, budget)],
            ],
            "notes": notes(model, held, asked),
        }
    )
    return told


def notes(model: dict[str, Any], held: Held, asked: Asked) -> list[str]:
    """Why a number is what it is, one sentence each."""
    said = []
    heads = [group[1] for group in held.groups if group[1]]
    if any(group[3] for group in held.groups) and asked.tp > 1:
        said.append(
            "MLA: every tensor-parallel rank keeps the whole latent, so more GPUs buy no KV tokens "
            "per GPU; DP attention does."
        )
    elif heads and asked.tp > max(heads):
        said.append(f"{max(heads)} KV heads on {asked.tp} GPUs: each is kept on several of them.")
    if not held.uniform:
        said.append(
            "Not every layer keeps every token: 'tokens' charges them all, requests and lengths "
            "count windows and states as they fill."
        )
    if held.indexer:
        said.append(f"The sparse-attention indexer keeps {held.indexer:,} B a token more.")
    if model["max_len"] and asked.length > model["max_len"]:
        said.append(f"{asked.length:,} tokens is past the model's own limit, {model['max_len']:,}.")
    return said
