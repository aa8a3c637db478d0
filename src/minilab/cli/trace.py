"""``minilab trace info`` and ``minilab trace fetch``: what a trace holds, and getting it."""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli.output import facts, plain, print_json, tell
from minilab.cli.parser import Parser
from minilab.facts import trace_fetch, traces
from minilab.facts.user_input import tidy_name


def add(commands: Any) -> None:
    """Add the command and its two own."""
    parser: Parser = commands.add_parser(
        "trace", help="what a trace holds; download one", description="Public request traces."
    )
    inner = parser.add_subparsers(title="commands", dest="what", metavar="COMMAND")
    inner.required = True
    names = ", ".join(traces.names())
    info: Parser = inner.add_parser("info", help="statistics, source and licence of a trace")
    info.add_argument("name", metavar="NAME", help=f"one of {names}")
    info.add_argument("--json", action="store_true", help="print one JSON object")
    info.set_defaults(run=run_info)
    fetch: Parser = inner.add_parser("fetch", help="download a trace, checked by its hash")
    fetch.add_argument("name", metavar="NAME", help=f"one of {names}")
    fetch.set_defaults(run=run_fetch)


def run_info(args: argparse.Namespace) -> int:
    """Run ``trace info``."""
    found = traces.info(tidy_name(args.name))
    if found["source"]["kind"] == "stand-in":
        name = found["name"]
        tell(f"{name}: a stand-in, not the trace (`minilab trace fetch {name}` gets the trace)")
    if args.json:
        print_json(found)
    else:
        print(facts(_lines(found), 14))
    return 0


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    loaded, source = found["loaded"], found["source"]
    pairs = [("trace", found.get("title") or found["name"])]
    pairs += [(name, str(found[name])) for name in ("licence", "citation", "url") if name in found]
    pairs += [
        ("loaded", f"{source['kind']}: {source['origin']}"),
        ("sha256", str(source["sha256"] or "none: not a file")),
        ("requests", f"{loaded['rows']} in {plain(loaded['span_s'])} s"),
        ("rate", f"{plain(loaded['rate'])} requests/s, gaps' CV {plain(loaded['cv'])}"),
    ]
    for name, title in (("input", "prompt"), ("output", "output")):
        numbers = (f"{key} {plain(value, 6)}" for key, value in loaded[name].items())
        pairs.append((f"{title} tokens", ", ".join(numbers)))
    hits = found["reuse"]
    if hits is None:
        pairs.append(("reuse", "unknown: the trace has lengths only, so nothing can be shared"))
    else:
        rates = ", ".join(f"{name} {value:.3f}" for name, value in hits.items())
        pairs.append(("reuse", f"hit rates of an endless cache read in sequence: {rates}"))
    return pairs


def run_fetch(args: argparse.Namespace) -> int:
    """Run ``trace fetch``: prints the path of the verified file."""
    print(trace_fetch.fetch(tidy_name(args.name)))
    return 0
