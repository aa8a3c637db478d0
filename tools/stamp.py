"""Write the repository address and tag everywhere they appear: `make stamp REPO=o/n TAG=v1.2.3`.

The address lives in repo.toml. Badges, site configuration, package metadata and the Colab cells of
the notebooks repeat it, because each is read by a program that knows nothing of repo.toml.
All files change or none does; an interrupted stamp can be run again, since repo.toml goes last.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

SOURCE = "repo.toml"
DERIVED = (
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "pyproject.toml",
    "_config.yml",
    "book/**/*.md",
    "book/**/*.ipynb",
    "solutions/**/*.ipynb",
    "labs/**/*.ipynb",
    "capstones/**/*.ipynb",
)
"""Every file that may name the repository. A test fails when any other one does."""

REPO = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9._-]{1,100}")
TAG = re.compile(r"v\d+\.\d+\.\d+(?:(?:a|b|rc|\.dev|\.post)\d+)?")


class Address(NamedTuple):
    """Where the course is published: 'owner/name', a tag of it, and the address of its site."""

    repo: str
    tag: str
    pages: str


def main(arguments: list[str]) -> int:
    """Stamp ``[repo, tag]``; 0 when done, 2 with one line on stderr when refused."""
    try:
        repo, tag = arguments
    except ValueError:
        return refuse("give a repository and a tag: make stamp REPO=owner/name TAG=v0.6.0")
    if not REPO.fullmatch(repo):
        return refuse(f"REPO={repo} is not owner/name, as in REPO=ada/frontier-serving-lab")
    if not TAG.fullmatch(tag):
        return refuse(
            f"TAG={tag} is not a version tag such as v0.6.0; a branch would give Colab other code"
            " next month than the pages show today"
        )
    try:
        changed = stamp(ROOT, Address(repo, tag, pages_of(repo)))
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}; nothing was changed, try again")
    except ValueError as error:
        return refuse(str(error))
    print(f"{repo} at {tag}: " + (f"{len(changed)} files changed" if changed else "already so"))
    for path in changed:
        print(f"  {path}")
    return 0


def refuse(reason: str) -> int:
    """Say why in one line."""
    print(f"stamp: {reason}", file=sys.stderr)
    return 2


def pages_of(repo: str) -> str:
    """Address of the site that GitHub Pages makes of ``repo``, without a slash at the end."""
    owner, name = repo.split("/")
    host = f"{owner.lower() if owner != 'OWNER' else owner}.github.io"
    return f"https://{host}" if name.lower() == host else f"https://{host}/{name}"


def read_address(root: Path) -> Address:
    """The address in ``root``/repo.toml."""
    text = (root / SOURCE).read_text(encoding="utf-8")
    found = dict(re.findall(r'^(repo|tag|pages) = "([^"]+)"$', text, re.MULTILINE))
    if len(found) < len(Address._fields):
        raise ValueError(f"{SOURCE} must have the lines {', '.join(Address._fields)} = ...")
    return Address(**found)


def files(root: Path) -> list[Path]:
    """The files that may name the repository, repo.toml last."""
    derived = sorted({path for pattern in DERIVED for path in root.glob(pattern)})
    return [path for path in derived if ".ipynb_checkpoints" not in path.parts] + [root / SOURCE]


def stamp(root: Path, new: Address) -> list[str]:
    """Replace the address in every file under ``root``; return the paths that changed."""
    change = replacer(read_address(root), new)
    texts: dict[Path, tuple[str, str]] = {}
    for path in files(root):
        old_text = path.read_bytes().decode("utf-8")
        new_text = change(old_text)
        if new_text != old_text:
            texts[path] = (old_text, new_text)
    write_all(texts)
    return [str(path.relative_to(root)) for path in texts]


def replacer(old: Address, new: Address) -> Callable[[str], str]:
    """A function that moves a text from the old address to the new one.

    A bare tag is left alone ("mini-vLLM v0.6.0" is prose): it counts after the repository's name
    (also as the next string: ``REPO, TAG = "...", "..."``, and in raw.githubusercontent.com's
    form, where nothing stands between the two), as the site's branch and in repo.toml.
    """
    repo = re.compile(rf"(?<![\w.-]){re.escape(old.repo)}(?![\w-])")
    pages = re.compile(rf"{re.escape(old.pages)}(?![\w.-])")
    owner_of_tag = (
        rf"{re.escape(new.repo)}(?:\.git)?(?:@|/blob/|/tree/|/archive/refs/tags/|/|\\?\", \\?\")"
        r"|^[ ]*branch:[ ]|^tag[ ]=[ ]\""
    )
    tag = re.compile(rf"({owner_of_tag}){re.escape(old.tag)}(?![\w-]|\.\w)", re.MULTILINE)

    def change(text: str) -> str:
        text = pages.sub(lambda _: new.pages, text)
        text = repo.sub(lambda _: new.repo, text)
        return tag.sub(lambda found: found[1] + new.tag, text)

    return change


def write_all(texts: dict[Path, tuple[str, str]]) -> None:
    """Replace each file's old text by its new one; on an error put back what was replaced."""
    temporary = {path: path.with_name(path.name + ".stamp") for path in texts}
    replaced: list[Path] = []
    try:
        for path, (_, new_text) in texts.items():
            temporary[path].write_bytes(new_text.encode("utf-8"))
        for path in texts:
            os.replace(temporary[path], path)
            replaced.append(path)
    except OSError:
        for path in replaced:
            path.write_bytes(texts[path][0].encode("utf-8"))
        raise
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
