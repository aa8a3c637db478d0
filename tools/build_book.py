"""Build the course site, strictly, and refuse to call it done when a page is missing.

    python tools/build_book.py [--source DIR] [--out DIR] [--lax]

Why a script around Jupyter Book: its execution cache doesn't know that the package changed, it does
not copy changed style sheets when no page changed, and a version that cannot read `_config.yml`
exits 0 having written nothing. The pages end up in OUT/_build/html.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CACHE = ".jupyter_cache"
KEY_FILE = "minilab.key"
KEYED_PACKAGES = ("numpy", "matplotlib", "ipykernel", "myst-nb")
"""Their versions show in outputs, so that a new one makes the cached outputs stale."""


class BuildError(Exception):
    """The site is not what `_toc.yml` promises; the message says what is missing."""


def toc_pages(toc: dict[str, Any]) -> list[str]:
    """Every document of a table of contents, without its suffix, in reading order.

    Raises BuildError for a document listed twice, or a table without a root.
    """
    if not toc or "root" not in toc:
        raise BuildError("_toc.yml: no `root`; name the start page, as in `root: book/index`")

    def walk(node: dict[str, Any]) -> Iterator[str]:
        for key in ("root", "file"):
            if key in node:
                yield str(node[key]).removesuffix(".md").removesuffix(".ipynb")
        for key in ("parts", "chapters", "sections", "entries", "subtrees"):
            for child in node.get(key) or []:
                yield from walk(child)

    pages = list(walk(toc))
    twice = sorted({page for page in pages if pages.count(page) > 1})
    if twice:
        raise BuildError(f"_toc.yml: listed twice: {', '.join(twice)}; keep one of each")
    return pages


def missing_pages(html: Path, pages: list[str]) -> list[str]:
    """The pages that were not written, or that hold no heading."""
    missing = []
    for page in pages:
        path = html / f"{page}.html"
        if not path.exists() or "<h1" not in path.read_text(encoding="utf-8"):
            missing.append(page)
    return missing


def outputs_key(source: Path, *folders: str | Path | None) -> str:
    """A hash of what outputs depend on beside the pages: the package, the benchmarks' results that
    pages draw, versions, the data there.

    folders: where pages find traces; one that is empty or not there counts for nothing.
    """
    digest = hashlib.sha256(f"python {sys.version_info[:2]}".encode())
    for name in KEYED_PACKAGES:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    for folder in (source / "src" / "minilab", source / "benchmarks" / "results"):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(source).as_posix().encode())
                digest.update(path.read_bytes())
    for given in filter(None, folders):
        for path in sorted(Path(given).rglob("*")):
            if path.is_file():
                digest.update(f"{path.relative_to(given)} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def fetched_traces() -> Path | None:
    """Where `minilab trace fetch` keeps traces: a page changes when its trace arrives there."""
    try:
        from minilab.facts.trace_fetch import cache_folder
    except ImportError:  # another source tree is built, by a Python that has no minilab
        return None
    return cache_folder()


def drop_stale_cache(build: Path, key: str) -> bool:
    """Remove the cached outputs unless they were made under this key. True if they were removed."""
    cache = build / CACHE
    key_file = cache / KEY_FILE
    if cache.exists() and key_file.exists() and key_file.read_text(encoding="utf-8") == key:
        return False
    stale = cache.exists()
    if stale:
        shutil.rmtree(cache)
    cache.mkdir(parents=True)
    key_file.write_text(key, encoding="utf-8")
    return stale


def build_environment(source: Path, key: str) -> dict[str, str]:
    """The environment of the build and of the kernels it starts."""
    env = dict(os.environ, MINILAB_STATIC="1", MINILAB_BOOK_KEY=key)
    env.pop("MPLBACKEND", None)  # else a kernel draws into nothing and the figures are missing
    paths = [str(source / "src"), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    if env.get("MINILAB_DATA"):  # a kernel runs in the folder of its page
        env["MINILAB_DATA"] = str(Path(env["MINILAB_DATA"]).resolve())
    return env


def run_jupyter_book(source: Path, out: Path, env: dict[str, str], strict: bool) -> None:
    """Run the build. Raises BuildError when it fails."""
    # matplotlib's first import writes a line about its font cache into whatever page comes first.
    subprocess.run(
        [sys.executable, "-c", "import matplotlib.font_manager"],
        env=env,
        capture_output=True,
        check=False,
    )
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build"]
    # --all, else a changed style sheet isn't copied when no page changed
    command += [str(source), "--path-output", str(out), "--all"]
    if strict:
        command += ["-W", "--keep-going", "-n"]
    done = subprocess.run(command, env=env, cwd=source, check=False)
    if done.returncode:
        raise BuildError(f"Jupyter Book failed (exit {done.returncode}); its warnings are above")


def build(source: Path, out: Path, strict: bool = True) -> list[str]:
    """Build the site of `source` into out/_build/html and return its pages.

    Raises BuildError for a warning (if strict), for a failure, and for each page not written.
    """
    pages = toc_pages(yaml.safe_load((source / "_toc.yml").read_text(encoding="utf-8")))
    target = out / "_build"
    key = outputs_key(source, os.environ.get("MINILAB_DATA"), fetched_traces())
    if drop_stale_cache(target, key):
        print("The package or its data changed: all pages are computed anew.", flush=True)
    shutil.rmtree(target / "html", ignore_errors=True)  # a page removed from the toc must not stay
    run_jupyter_book(source, out, build_environment(source, key), strict)
    missing = missing_pages(target / "html", pages)
    if missing:
        raise BuildError(
            f"{len(missing)} of {len(pages)} pages of _toc.yml were not written: "
            f"{', '.join(missing)}; is this Jupyter Book 1.x?"
        )
    return pages


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status is 0 only for a complete site."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", type=Path, default=ROOT, help="folder with _config.yml")
    parser.add_argument("--out", type=Path, help="where _build goes (default: the source)")
    parser.add_argument("--lax", action="store_true", help="let warnings pass, for drafts")
    args = parser.parse_args(argv)
    source = args.source.resolve()
    out = (args.out or source).resolve()
    start = time.perf_counter()
    try:
        pages = build(source, out, strict=not args.lax)
    except BuildError as err:
        print(f"build_book: {err}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - start
    print(f"{len(pages)} pages in {seconds:.1f} s: {out / '_build' / 'html' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
