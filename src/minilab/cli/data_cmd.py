"""``minilab data``: a folder with all that a class needs, for machines without internet."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from minilab.cli.parser import Parser
from minilab.facts.errors import InputError
from minilab.facts.mirror import MODEL, mirror, verify


def add(commands: Any) -> None:
    """Add the command and its two own."""
    parser: Parser = commands.add_parser(
        "data",
        help="mirror traces, wheels and the small model for a class; verify a mirror",
        description="One folder with what a class needs on machines without internet.",
    )
    inner = parser.add_subparsers(title="commands", dest="what", metavar="COMMAND")
    inner.required = True
    make: Parser = inner.add_parser("mirror", help="fill a folder, each file checked by its hash")
    make.add_argument("folder", metavar="DIR", help="where; a second call goes on")
    make.add_argument("--requirements", metavar="FILE", help="the lock (default: the checkout's)")
    make.add_argument("--no-wheels", action="store_true", help="traces and model only")
    make.add_argument("--no-model", action="store_true", help=f"without {MODEL}")
    make.set_defaults(run=run_mirror)
    check: Parser = inner.add_parser("verify", help="whether a copy is what the mirror was")
    check.add_argument("folder", metavar="DIR", help="a mirror")
    check.set_defaults(run=run_verify)


def run_mirror(args: argparse.Namespace) -> int:
    """Run ``data mirror``."""
    folder = Path(args.folder)
    lock = None if args.no_wheels else _lock(args.requirements)
    made = mirror(folder, lock, model=not args.no_model)
    size = sum(file["bytes"] for file in made["files"].values())
    print(f"{folder}: {len(made['files'])} files, {size / 2**20:,.0f} MiB; on each machine:")
    print(f"  export MINILAB_DATA={folder.resolve() / 'data'}")
    if any(name.startswith("wheels/") for name in made["files"]):
        print(f"  export PIP_NO_INDEX=1 PIP_FIND_LINKS={folder.resolve() / 'wheels'}")
    return 0


def _lock(given: str | None) -> Path:
    path = Path(given) if given else Path("requirements.txt")
    if not path.is_file():
        raise InputError(
            f"{path}: is not there; call this in the checkout, name the lock with --requirements, "
            "or leave wheels out with --no-wheels"
        )
    return path


def run_verify(args: argparse.Namespace) -> int:
    """Run ``data verify``."""
    print(f"{args.folder}: {verify(Path(args.folder))} files, all as they were")
    return 0
