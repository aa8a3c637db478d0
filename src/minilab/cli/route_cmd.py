"""``minilab route``: an OpenAI-compatible proxy in front of several replicas."""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

from minilab.cli.output import check_place, tell
from minilab.cli.parser import Parser, positive, whole_number
from minilab.core.routers import ROUTERS, make_router
from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name

if TYPE_CHECKING:
    from minilab.core.router import Router


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "route",
        help="an OpenAI-compatible proxy in front of replicas",
        description="Pass requests on to replicas (minilab serve, or vLLM) by a router's policy. "
        "SIGTERM or Ctrl-C finishes what runs; a second one ends at once.",
    )
    parser.add_argument("replicas", nargs="+", metavar="URL", help="such as http://127.0.0.1:8000")
    add = parser.add_argument
    add("--router", default="prefix-load", metavar="NAME", help=f"{', '.join(ROUTERS)}")
    add("--seed", type=whole_number(0), default=0, metavar="N", help="of routers that draw")
    add("--host", default="127.0.0.1", metavar="HOST", help="default: this machine alone")
    add("--port", type=whole_number(0), default=8080, metavar="N", help="0: any (default 8080)")
    add("--tenants", metavar="FILE", help="lines of API key and cache salt; only these may ask")
    add("--events", metavar="FILE", help="write what was seen and chosen (.jsonl)")
    add("--chars-per-token", type=positive, default=4.0, metavar="C", help="to guess lengths")
    add("--health-interval", type=positive, default=1.0, metavar="S", help="between probes")
    add("--stall-timeout", type=positive, default=30.0, metavar="S", help="of a slow reader")
    add("--drain-timeout", type=positive, default=30.0, metavar="S", help="after SIGTERM")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    check_place(args.events, (".jsonl",))
    policy = _router(args)
    for url in args.replicas:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"replica {url!r}; give its address, such as http://127.0.0.1:8000")
    try:
        from minilab.serve.keys import tenants
        from minilab.serve.runner import listen
    except ImportError as error:
        raise InputError(f"{error.name} is not installed; pip install 'minilab[serve]'") from None
    known = tenants(args.tenants)
    with ExitStack() as stack:
        place = stack.enter_context(listen(args.host, args.port))
        events = None
        if args.events:
            events = stack.enter_context(open(args.events, "w", encoding="utf-8"))
        asyncio.run(_route(args, policy, place, events, known))
    return 0


def _router(args: argparse.Namespace) -> Router:
    try:
        return make_router(args.router, args.seed)
    except KeyError:
        raise unknown_name("router", args.router.partition(":")[0], ROUTERS) from None
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None


async def _route(
    args: argparse.Namespace,
    policy: Router,
    place: Any,
    events: IO[str] | None,
    tenants: dict[str, str],
) -> None:
    from minilab.serve.keys import VARIABLE
    from minilab.serve.route_app import make_route_app
    from minilab.serve.route_log import EventLog
    from minilab.serve.route_metrics import RouteMetrics
    from minilab.serve.route_proxy import Proxy
    from minilab.serve.route_state import Fleet
    from minilab.serve.runner import run_app, signals, url_of

    count = len(args.replicas)
    proxy = Proxy(
        Fleet(count, policy),
        EventLog(events, args.router, args.seed, count),
        RouteMetrics(args.replicas),
        chars_per_token=args.chars_per_token,
        stall_timeout=args.stall_timeout,
        replica_key=os.environ.get(VARIABLE) or None,
    )
    app = make_route_app(proxy, args.replicas, tenants=tenants, period=args.health_interval)

    async def drain() -> None:
        tell(f"ending: {len(proxy.in_flight)} requests have {args.drain_timeout:g} s to finish")
        late = await proxy.drain(args.drain_timeout)
        if late:
            tell(f"{late} requests did not finish in time and were told so")

    tell(f"{count} replicas at {url_of(place)}/v1, router {args.router}")
    stop, hurry = asyncio.Event(), asyncio.Event()
    with signals(stop, hurry):
        await run_app(app, place, drain, stop, hurry)
