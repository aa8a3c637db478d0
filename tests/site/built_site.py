"""The site that the tests of this folder look at: the real pages, and two that hold everything."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from site_outputs import keep_outputs, take_outputs

from build_book import BuildError, build

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).parent / "sample"
SOURCES = ("_config.yml", "_toc.yml", "_ext", "book", "labs", "solutions", "capstones", "src",
           "pyproject.toml", "benchmarks/results", "benchmarks/drafter/weights")  # fmt: skip


@dataclass(frozen=True)
class Built:
    """source: the copy; html: its built site; pages: what its table of contents lists."""

    source: Path
    html: Path
    pages: list[str]


def copy_sources(target: Path) -> None:
    """The parts of the repository that make the site, plus the sample pages in the contents."""
    for name in SOURCES:
        origin = ROOT / name
        if origin.is_dir():
            shutil.copytree(
                origin, target / name, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        elif origin.exists():
            shutil.copy(origin, target / name)
    shutil.copy(SAMPLE / "sample.md", target / "book" / "sample.md")
    (target / "labs").mkdir(exist_ok=True)
    shutil.copy(SAMPLE / "sample.ipynb", target / "labs" / "99_sample.ipynb")
    toc = yaml.safe_load((target / "_toc.yml").read_text(encoding="utf-8"))
    toc["parts"].append({"caption": "Sample", "chapters": [{"file": "book/sample"}]})
    toc["parts"][-1]["chapters"].append({"file": "labs/99_sample"})
    (target / "_toc.yml").write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")


def build_into(source: Path, config: pytest.Config) -> str:
    """Build, with outputs kept from earlier builds if there are any; "" or what went wrong."""
    copy_sources(source)
    take_outputs(config, source / "_build")
    try:
        build(source, source)
    except BuildError as err:
        return str(err)
    keep_outputs(config, source / "_build")
    return ""
