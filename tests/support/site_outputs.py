"""Outputs of the site's pages, kept from one test run to the next.

To execute every page takes minutes. A page's outputs stay true as long as it and the package are
the same: ``tools/build_book.py`` drops what was made under another key. Kept in pytest's own cache;
the reader's ``_build`` is read, never written.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ".jupyter_cache"


def take_outputs(config: pytest.Config, build: Path) -> None:
    """Put the newest kept outputs into ``build``, where a build looks for them."""
    places = [ROOT / "_build" / CACHE, _kept(config)]
    there = [place for place in places if (place / "minilab.key").exists()]
    if there:
        newest = max(there, key=lambda place: (place / "minilab.key").stat().st_mtime)
        shutil.copytree(newest, build / CACHE)


def keep_outputs(config: pytest.Config, build: Path) -> None:
    """Keep what a whole build computed, in place of what was kept, unless that holds it all."""
    kept, made = _kept(config), build / CACHE
    if _contents(made) <= _contents(kept):
        return  # another worker may be reading it
    fresh = kept.with_name(f"{CACHE}.part")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(made, fresh)
    shutil.rmtree(kept, ignore_errors=True)
    fresh.rename(kept)


def _contents(cache: Path) -> set[str]:
    """The key, and the hashes of the notebooks whose outputs are there."""
    if not (cache / "minilab.key").exists():
        return set()
    found = {path.name for path in (cache / "executed").glob("*")}
    return found | {(cache / "minilab.key").read_text(encoding="utf-8")}


def _kept(config: pytest.Config) -> Path:
    assert config.cache is not None
    return Path(config.cache.mkdir("site")) / CACHE
