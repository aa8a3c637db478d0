"""Filled: settings that were read off a running server or a finished run, and how.

    from_metrics    pages of /metrics of one server, as ``judge.advisor`` reads them
    from_requests   one row per request, whoever recorded it
    from_lines      the lines of a run log, as ``facts.runlog_jsonl`` writes them

Nothing that was not read is set. Runs in the page too.
"""

import json
from typing import Any

from minilab.judge.advisor.signals import read_signals
from minilab.judge.advisor.window import Window
from minilab.judge.selector.lengths import acceptance_of, spread, spread_of_buckets

UNSEEN = "GPU, number of GPUs, interconnect, limits and price: no server exports them"


class Filled:
    """What was read.

    Attributes:
        values: settings by name; how: (name, sentence) for each.
        unread: (name, why it could not be read and what would tell).
        notes: what a reader should know of the source.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.how: list[tuple[str, str]] = []
        self.unread: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def put(self, name: str, value: Any, how: str) -> None:
        """Set a parameter."""
        self.values[name] = value
        self.how.append((name, how))

    def lack(self, name: str, why: str) -> None:
        """Say that a parameter stays as it is."""
        self.unread.append((name, why))

    def inside(self, parameters: list[Any]) -> None:
        """Bring numbers into the ranges of the sliders, and say where that changed one."""
        for parameter in parameters:
            name = parameter["name"]
            if name not in self.values or parameter.get("kind"):
                continue
            value = self.values[name]
            kept = min(parameter["max"], max(parameter["min"], value))
            if kept != value:
                self.notes.append(f"{name} was read as {value:.3g}; the slider ends at {kept:.3g}")
                self.values[name] = kept


def from_metrics(pages: list[Any], seconds: Any, known: dict[str, Any]) -> Filled:
    """Settings from one server's pages (``Scrape``) in order of time.

    ``seconds``: between the first and the last page, or since the server's start for one page;
    None where nobody knows. ``known``: the tables, of which the names of models and GPUs are read.
    """
    window = Window(pages)
    signals = read_signals(window, {}, "server")
    filled = Filled()
    filled.notes += signals.notes
    _rate(filled, signals, seconds, window.since_start)
    for name, label in (("prompt", "prompt"), ("output", "output")):
        mean = signals.get(name + "_mean")
        if mean is None or mean < 1:
            filled.lack(name, f"no {label} tokens were counted; scrape after some load")
        else:
            filled.put(name, _digits(mean), f"mean of the {label} lengths")
    lengths = window.histogram("prompt")
    if lengths is not None and len(lengths.points) > 1:
        filled.put("cv", _digits(spread_of_buckets(lengths)), "from the buckets, so roughly")
    else:
        filled.lack("cv", "no histogram of prompt lengths")
    _prefix(filled, signals)
    _drafts(filled, signals)
    _formats(filled, signals, _model_name(window.last), known)
    filled.lack("the rest", UNSEEN)
    return filled


def _rate(filled: Filled, signals: Any, seconds: Any, since_start: bool) -> None:
    count = signals.get("requests")
    if not count:
        filled.lack("rate", "no request was counted between the pages")
    elif not seconds or seconds <= 0:
        filled.lack("rate", "the time between the pages is unknown; give it in seconds")
    else:
        span = "since the server's start" if since_start else "between the pages"
        how = f"{count:.0f} requests in {seconds:.3g} s {span}"
        filled.put("rate", _digits(count / seconds), how)


def _prefix(filled: Filled, signals: Any) -> None:
    rate = signals.get("hit_rate")
    if signals.get("prefix_on") == 0.0:
        filled.lack("prefix_share", "prefix caching is off, so nothing could be hit")
    elif rate is None:
        filled.lack("prefix_share", "no hits of the prefix cache were exported")
    else:
        how = "share of prompt tokens found in the cache: at least so much is shared"
        filled.put("prefix_share", _digits(rate), how)
    filled.lack("groups", "the number of different prefixes is not exported")


def _drafts(filled: Filled, signals: Any) -> None:
    length, drafts = signals.get("acceptance_length"), signals.get("num_drafts")
    rate = signals.get("acceptance")
    if drafts is None and length is not None and rate:
        drafts = (length - 1.0) / rate
    if length is None or not drafts:
        filled.lack("acceptance", "speculation is off, or drafted nothing")
        return
    value = acceptance_of(length - 1.0, drafts)
    how = f"{length - 1.0:.2f} of {drafts:.3g} draft tokens accepted per step"
    filled.put("acceptance", _digits(value), how)


def _formats(filled: Filled, signals: Any, served: str, known: dict[str, Any]) -> None:
    found = known_model(served, known["models"])
    if found:
        filled.put("model", found, "the label model_name")
    else:
        filled.lack("model", "no label model_name that is known here; choose it")
    kind = signals.facts.get("kv_dtype", "")
    if kind.startswith("fp8"):
        filled.put("kv_dtype", "fp8", "the label cache_dtype")
    elif kind in ("auto", "bfloat16"):
        filled.put("kv_dtype", "bf16", "the label cache_dtype")


def _model_name(scrape: Any) -> str:
    for name in scrape.samples:
        model = scrape.samples[name][0].labels.get("model_name")
        if model:
            return str(model)
    return ""


def known_model(served: str, names: list[str]) -> str:
    """The longest known name that a served name holds as whole words; "" if there is none."""
    words = "-" + served.split("/")[-1].lower().replace("_", "-") + "-"
    held = [name for name in names if "-" + name + "-" in words]
    return max(held, key=len) if held else ""


def from_requests(rows: list[Any], meta: dict[str, Any], known: dict[str, Any]) -> Filled:
    """Settings from (arrival s, prompt, output, cached tokens, finished) of each request.

    ``meta``: what the run says of itself; its "config" has the names of ``sim.Experiment``.
    """
    filled = Filled()
    if not rows:
        filled.lack("everything", "no request in it")
        return filled
    span = max([row[0] for row in rows]) - min([row[0] for row in rows])
    if len(rows) > 1 and span > 0:
        how = f"{len(rows)} arrivals in {span:.3g} s"
        filled.put("rate", _digits((len(rows) - 1) / span), how)
    else:
        filled.lack("rate", "all requests arrived at once")
    prompts = [row[1] for row in rows if row[1] > 0]
    outputs = [row[2] for row in rows if row[4] and row[2] > 0]
    for name, values in (("prompt", prompts), ("output", outputs)):
        if values:
            filled.put(name, _digits(sum(values) / len(values)), f"mean of {len(values)} requests")
        else:
            filled.lack(name, "not recorded")
    if prompts:
        filled.put("cv", _digits(spread(prompts)), "spread of the prompt lengths")
    cached = sum([max(0, row[3]) for row in rows if row[4]])
    of = sum([row[1] for row in rows if row[4]])
    if cached and of:
        how = "share of prompt tokens found in the cache: at least so much is shared"
        filled.put("prefix_share", _digits(cached / of), how)
    else:
        filled.lack("prefix_share", "no cached tokens were recorded")
    _config(filled, meta, known)
    return filled


def _config(filled: Filled, meta: dict[str, Any], known: dict[str, Any]) -> None:
    config = meta.get("config")
    config = config if isinstance(config, dict) else {}
    served = known_model(str(config.get("model", "")), known["models"])
    if served:
        filled.put("model", served, "the run's own configuration")
    else:
        filled.lack("model", "the run does not name one that is known here; choose it")
    if config.get("gpu") in known["gpus"]:
        filled.put("gpu", config["gpu"], "the run's own configuration")
        filled.put("gpus", meta.get("gpus", 0), "the run's own configuration")
    else:
        filled.lack("gpu", "the run does not name it; choose it")
    if config.get("kv_dtype") in ("bf16", "fp8"):
        filled.put("kv_dtype", config["kv_dtype"], "the run's own configuration")
    if config.get("num_speculative_tokens"):
        how = "the run's own configuration"
        filled.put("acceptance", config.get("acceptance_rate", 0.0), how)


def from_lines(text: str, known: dict[str, Any]) -> Filled:
    """Settings from a run log in lines of JSON; lines that are none are counted."""
    rows, meta, bad = [], {}, 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if "minilab_runlog" in value:
                meta = value.get("meta", {})
            elif "request" in value:
                rows.append(_row(value["request"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            bad += 1
    filled = from_requests(rows, meta if isinstance(meta, dict) else {}, known)
    if bad:
        filled.notes.append(f"{bad} lines could not be read")
    return filled


def _row(request: dict[str, Any]) -> Any:
    return (
        float(request["arrival"]),
        int(request["prompt_tokens"]),
        int(request["output_tokens"]),
        int(request["cached_tokens"]),
        request["status"] == "finished",
    )


def _digits(value: float) -> float:
    """Three digits: nobody's traffic is known better."""
    if value < 1e-9:
        return 0.0
    return float(f"{value:.3g}")
