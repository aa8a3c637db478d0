"""``minilab``: the command line. It parses, calls one command, and tells errors in one line.

Exit status: 0 done, 2 bad input (options, files, numbers, a full disk), 1 a fault of ours (from
``conform``: a broken rule), 130 interrupted, 141 when the reader of the output went away (as the
shell reports it).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from minilab import __version__
from minilab.cli import (
    calibrate,
    capacity_cmd,
    conform,
    cost_cmd,
    data_cmd,
    diagnose_cmd,
    generate,
    goodput,
    grade_cmd,
    load_cmd,
    models_cmd,
    place,
    predict_cmd,
    report_cmd,
    route_cmd,
    select_cmd,
    serve_cmd,
    sim,
    sweep_cmd,
    trace,
)
from minilab.cli.output import tell
from minilab.cli.parser import Parser
from minilab.facts.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. ``argv`` defaults to the process's own."""
    words = sys.argv[1:] if argv is None else list(argv)
    debug = "--debug" in words
    try:
        status = _call(words)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _drop_output()
        return 141
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except (InputError, OSError, MemoryError) as error:
        return _fail(_message(error), 2, debug)
    except Exception as error:
        kind = type(error).__name__
        return _fail(f"a fault of minilab's own: {kind}: {error}; --debug shows where", 1, debug)


def _call(words: Sequence[str]) -> int:
    try:
        args = parser().parse_all(words)
    except SystemExit as done:  # --help and --version have printed what they had to say
        return int(done.code or 0)
    return int(args.run(args))


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="minilab",
        description="Simulate, measure and judge LLM serving. All times are seconds.",
    )
    top.add_argument("--version", action="version", version=f"minilab {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    commands.required = True
    for module in (
        sim,
        load_cmd,
        goodput,
        diagnose_cmd,
        select_cmd,
        sweep_cmd,
        place,
        models_cmd,
        capacity_cmd,
        trace,
        cost_cmd,
        conform,
        calibrate,
        generate,
        serve_cmd,
        route_cmd,
        predict_cmd,
        report_cmd,
        grade_cmd,
        data_cmd,
    ):
        module.add(commands)
    return top


def _message(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "out of memory; take fewer requests (--limit), blocks or instances"
    if isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
        return f"{error.filename or 'standard output'}: {reason}"
    return str(error)


def _fail(message: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    _drop_output_if_broken()
    with suppress(OSError):
        tell(" ".join(message.split()))
    return status


def _drop_output_if_broken() -> None:
    """What could not be written (a full disk) would be tried again, and fail, at the exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Send what is still buffered nowhere."""
    with suppress(OSError, ValueError):
        output = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output)
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
