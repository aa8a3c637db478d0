"""Signals: the numbers that the rules read, each known or None, and what to fetch where one is not.

Times are seconds, shares 0 to 1. Runs in the page too.
"""

from minilab.judge.advisor.names import CONFIG, MOE_WORDS, PER_POSITION
from minilab.judge.advisor.window import Histogram, Window

TIMES = ["ttft", "itl", "tpot", "queue", "prefill", "decode", "e2e", "transfer"]


class Signals:
    """What is known of one server.

    Attributes:
        values: by name; None is unknown.
        unknown: name of a signal -> why it is unknown and how to learn it.
        notes: what a reader should know of how these were read.
    """

    def __init__(self, name: str = "server", role: str = "") -> None:
        self.name = name
        self.role = role
        self.values: dict[str, float | None] = {}
        self.facts: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.notes: list[str] = []

    def get(self, name: str) -> float | None:
        """A signal, or None."""
        return self.values.get(name)

    def at(self, name: str, default: float = 0.0) -> float:
        """A signal, or ``default`` where it is unknown."""
        value = self.values.get(name)
        return default if value is None else value

    def known(self, *names: str) -> bool:
        """Whether all of these are known."""
        return all(self.values.get(name) is not None for name in names)


def read_signals(window: Window, slo: dict[str, float], name: str, role: str = "") -> Signals:
    """The signals of one server over one window."""
    signals = Signals(name, role)
    _notes(signals, window)
    _latency(signals, window, slo)
    _volume(signals, window)
    _gauges(signals, window)
    _memory(signals, window)
    _speculation(signals, window)
    _transfer(signals, window)
    _model(signals, window)
    return signals


def _notes(signals: Signals, window: Window) -> None:
    if window.restarted:
        signals.notes.append("the server was restarted between the scrapes: counted from its start")
    elif window.since_start:
        signals.notes.append("one scrape: everything since the server's start, warm-up included")
    for scrape in window.scrapes:
        if scrape.num_unread:
            signals.notes.append(
                f"{scrape.num_unread} lines could not be read, such as: {_redact(scrape.unread[0])}"
            )
        if scrape.repeated:
            signals.notes.append(f"{scrape.repeated} samples came twice; the last one counts")


def _redact(line: str) -> str:
    """The beginning of a line without what may be private in it: quoted text and paths."""
    text = ""
    quoted = False
    for letter in line:
        if letter == '"':
            quoted = not quoted
        if not quoted:
            text += letter
    words = ["(path)" if "/" in word or "\\" in word else word for word in text.split()]
    return " ".join(words)[:60]


def _latency(signals: Signals, window: Window, slo: dict[str, float]) -> None:
    for name in TIMES:
        found = window.histogram(name)
        _spread(signals, name, found)
        limit = slo.get(name)
        if limit is not None:
            signals.values[name + "_limit"] = limit
            signals.values[name + "_over"] = found.share_above(limit) if found else None
            if found is None:
                signals.unknown[name] = f"no {name} was observed; scrape again after some load"
    if "itl" not in slo and "tpot" in slo:
        signals.values["itl_limit"] = slo["tpot"]
        signals.values["itl_over"] = signals.values["tpot_over"]


def _spread(signals: Signals, name: str, found: Histogram | None) -> None:
    values = signals.values
    values[name + "_mean"] = found.mean if found else None
    values[name + "_p50"] = found.quantile(0.5) if found else None
    values[name + "_p99"] = found.quantile(0.99) if found else None


def _volume(signals: Signals, window: Window) -> None:
    values = signals.values
    first = window.histogram("ttft")
    done = window.counter("finished")
    values["requests"] = first.count if first is not None else done
    for name in ("prompt", "output", "step_tokens"):
        found = window.histogram(name)
        values[name + "_mean"] = found.mean if found else None
    for name in ("prompt_tokens", "output_tokens", "refused"):
        values[name] = window.counter(name)
    requests = values["requests"] or 0.0
    for name in ("prompt", "output"):
        tokens = values[name + "_tokens"]
        if values[name + "_mean"] is None and tokens is not None and requests:
            values[name + "_mean"] = tokens / requests


def _gauges(signals: Signals, window: Window) -> None:
    """Gauges tell of the moment: those of an idle server say nothing of the load before."""
    running, waiting = window.gauge("running"), window.gauge("waiting")
    usage = window.gauge("kv_usage")
    busy = any(value > 0 for value in running + waiting + usage)
    for name, seen in (("running", running), ("waiting", waiting), ("kv_usage", usage)):
        signals.values[name] = max(seen) if seen and busy else None
        if signals.values[name] is None:
            why = "is 0 because the server was idle at the scrape" if seen else "is not in the page"
            signals.unknown[name] = f"{name} {why}; scrape /metrics again while the load runs"
    signals.values["running_min"] = min(running) if running and busy else None
    seen = window.gauge("hit_rate")
    signals.values["hit_rate"] = seen[-1] if seen and busy else None


def _memory(signals: Signals, window: Window) -> None:
    values = signals.values
    requests = values["requests"]
    lost = window.counter("preemptions")
    values["preemptions"] = lost
    values["preempted"] = lost / requests if lost is not None and requests else None
    queries, hits = window.counter("prefix_queries"), window.counter("prefix_hits")
    total = queries if queries else values["prompt_tokens"]
    if hits is not None and total and (queries is None or queries > 0):
        values["hit_rate"] = hits / total
    said = window.last.label(CONFIG, "enable_prefix_caching")
    if said is not None:
        values["prefix_on"] = 1.0 if said == "True" else 0.0
    elif queries is not None and values["prompt_tokens"]:
        values["prefix_on"] = 1.0 if queries > 0 else 0.0
    tier, found = window.counter("tier_queries"), window.counter("tier_hits")
    values["tier_hit_rate"] = found / tier if found is not None and tier else None
    for name, label in (("block_size", "block_size"), ("kv_tokens", "kv_cache_size_tokens")):
        values[name] = _as_number(window.last.label(CONFIG, label))
    kind = window.last.label(CONFIG, "cache_dtype")
    if kind is not None:
        signals.facts["kv_dtype"] = kind
    needed = values["prompt_mean"], values["output_mean"], values["kv_tokens"]
    if needed[0] is not None and needed[1] is not None and needed[2]:
        values["kv_seqs"] = needed[2] / (needed[0] + needed[1])


def _speculation(signals: Signals, window: Window) -> None:
    values = signals.values
    drafts, tokens = window.counter("drafts"), window.counter("draft_tokens")
    accepted, output = window.counter("accepted"), values["output_tokens"]
    length, rate = window.gauge("accept_length"), window.gauge("accept_rate")
    values["spec_on"] = 1.0 if drafts is not None or length else 0.0
    if length:
        values["acceptance_length"] = length[-1]
    if rate:
        values["acceptance"] = rate[-1]
    if drafts is None:
        return
    values["drafts"] = drafts
    if output is not None and accepted is not None:
        steps = output - accepted - (values["requests"] or 0.0)
        values["drafted_share"] = min(1.0, drafts / steps) if steps > 0 else None
    if drafts and tokens and accepted is not None:
        values["num_drafts"] = tokens / drafts
        values["acceptance"] = accepted / tokens
        values["acceptance_length"] = 1.0 + accepted / drafts
    first = [s.value for s in window.last.of(PER_POSITION) if s.labels.get("position") == "0"]
    if first and drafts and window.since_start:
        values["first_position"] = sum(first) / drafts


def _transfer(signals: Signals, window: Window) -> None:
    size, time = window.histogram("transfer_bytes"), signals.values["transfer_mean"]
    signals.values["transfer_bytes"] = size.mean if size else None
    if size is not None and time:
        signals.values["transfer_rate"] = size.mean / time
    pieces = window.histogram("transfer_descriptors")
    signals.values["transfer_descriptors"] = pieces.mean if pieces else None
    signals.values["failed_transfers"] = window.counter("failed_transfers")
    seen = window.gauge("balance")
    signals.values["balance"] = seen[-1] if seen else None


def _model(signals: Signals, window: Window) -> None:
    """Whether the name of the model, in the labels, is that of a mixture of experts."""
    for name in window.last.samples:
        model = window.last.samples[name][0].labels.get("model_name")
        if model:
            words = model.split("/")[-1].lower()
            moe = any(part in words for part in MOE_WORDS)
            signals.values["moe"] = 1.0 if moe else 0.0
            if moe and signals.get("balance") is None:
                signals.unknown["expert_balance"] = (
                    "vLLM exports no expert balance; log the tokens per expert (EPLB's statistics)"
                )
            return


def _as_number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
