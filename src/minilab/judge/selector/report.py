"""report: what the selector says of one setting, as plain values; flips: where it would change."""

from typing import Any

from minilab.judge.selector.choose import choose, flip
from minilab.judge.selector.levers import advice
from minilab.judge.selector.room import weight_bytes
from minilab.judge.selector.verdict import BARS


def flips(tables: Any, settings: Any) -> list[Any]:
    """[(parameter, lever, value, used_above)]: where the recommendation changes."""
    found = []
    for name, low, high, lever in (
        ("acceptance", 0.05, 0.95, "spec_decode"),
        ("rate", settings.rate / 10.0, settings.rate * 10.0, "spec_decode"),
        ("rate", settings.rate / 10.0, settings.rate * 10.0, "chunked_prefill"),
        ("prompt", 64.0, 65536.0, "pd_split"),
        ("rate", settings.rate / 10.0, settings.rate * 10.0, "fp8_kv"),
    ):
        value, above = flip(tables, settings, name, low, high, lever)
        if value is not None:
            found.append((name, lever, value, above))
    return found


def report(tables: Any, settings: Any) -> dict[str, Any]:
    """The recommendation as plain values, lists of pairs where order matters; {} if no fit."""
    choice = choose(tables, settings)
    if choice is None:
        need = weight_bytes(tables, settings.model, "native")
        return {"fits": False, "weights_gb": need / 1e9}
    best, now = choice.best, choice.plain
    use, leave = advice(tables, settings, choice)
    band = tables["gpus"][settings.gpu]["bands"].get(settings.model)
    told = numbers(now)
    told.update(
        {
            "fits": True,
            "recommended": numbers(best),
            "stack_name": best.stack.name(),
            "stack": [list(row) for row in use],
            "avoid": [list(row) for row in leave],
            "after": best.bottleneck,
            "band": band,
            "says": "a model, not a benchmark",
        }
    )
    return told


def numbers(verdict: Any) -> dict[str, Any]:
    """A verdict as plain values: bars in order, seconds, requests/s, tokens."""
    return {
        "bottleneck": verdict.bottleneck,
        "bars": [[name, verdict.bars[name]] for name in BARS],
        "ttft": verdict.ttft,
        "itl": verdict.itl,
        "stall": verdict.stall,
        "attainment": verdict.attainment,
        "tokens_in_flight": verdict.tokens_in_flight,
        "goodput": verdict.goodput,
        "goodput_per_gpu": verdict.goodput_per_gpu,
        "capacity": verdict.capacity,
        "cost_per_million_good_tokens": verdict.cost_per_million,
        "gpus": verdict.gpus,
        "layout": verdict.layout,
    }
