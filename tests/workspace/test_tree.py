"""What must not be in the tree, and what must agree in it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

import minilab

OPTIONAL_DATA = "../" + "shared/data"
DATA_IS_NAMED_IN = "Makefile"
REGISTRIES = (
    "pypi." + "org/simple",
    "files.python" + "hosted.org",
    "registry." + "npmjs.org",
    "deb." + "debian.org",
)
PIP_FLAGS = re.compile(r"--(?:extra-)?index" + "-url|--find" + "-links|--trusted" + "-host")


def private_places(root: Path) -> set[str]:
    """Folders and hosts that exist on this machine alone: checkout, home, pip's mirrors."""
    folders = {root, root.parent, Path.home()} - {Path(tempfile.gettempdir())}
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    urls = [urlsplit(url) for url in re.findall(r"\w+://[^\s'\"]+", configured.stdout)]
    places = {str(folder) for folder in folders if len(folder.parts) > 1}
    places |= {url.hostname for url in urls if url.hostname and "." in url.hostname}
    return places | {url.path for url in urls if url.scheme == "file" and url.path.strip("/")}


def test_no_place_of_this_machine(texts, root):
    """A path of ours in a stored output or a lock breaks for everybody else, or leaks."""
    places = private_places(root)
    found = [
        f"{path}: {place}"
        for path, text in texts.items()
        for place in places
        if re.search(rf"(?<![\w.]){re.escape(place)}(?![\w-])", text)
    ]
    assert not found


def test_no_registry_is_named(texts):
    """Which registry or mirror to use is the reader's setting, not ours."""
    found = [
        f"{path}: {match[0] if match else host}"
        for path, text in texts.items()
        for host in REGISTRIES
        if (match := PIP_FLAGS.search(text)) or host in text
    ]
    assert not found


def test_only_the_makefile_names_the_data_folder(texts):
    """Code that looks beside the checkout by itself would ignore MINILAB_DATA."""
    naming = {path for path, text in texts.items() if OPTIONAL_DATA in text}
    assert naming == {DATA_IS_NAMED_IN}
    assert texts[DATA_IS_NAMED_IN].count(OPTIONAL_DATA) == 1


def test_version_is_the_same_everywhere(texts):
    """A citation or changelog of another version than the code sends people to the wrong code."""
    here = minilab.__version__
    assert version("minilab") == here, "installed metadata is old: `make lint` installs anew"
    assert yaml.safe_load(texts["CITATION.cff"])["version"] == here
    newest = re.search(r"^## \[([^\]]+)\]", texts["CHANGELOG.md"], re.MULTILINE)
    assert newest is not None and newest[1] == here


@pytest.mark.parametrize(
    ("name", "opening", "closing"),
    [
        ("LICENSE", "Apache License", "limitations under the License."),
        ("LICENSE-TEXT", "Attribution 4.0 International", "contacted at creativecommons.org."),
    ],
)
def test_licence_is_whole(name, opening, closing, texts):
    """A stub instead of the licence text grants nothing."""
    text = texts[name].strip()
    assert opening in text[:200]
    assert text.endswith(closing)
    assert len(text) > 10_000


def test_readme_links_lead_somewhere(texts, root):
    """The README is the first page a stranger reads; its picture and its links must exist."""
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", texts["README.md"])
    local = {a or b for a, b in links if "://" not in (a or b) and not (a or b).startswith("#")}
    assert "book/assets/readme.png" in local
    assert not {link for link in local if not (root / link.partition("#")[0]).exists()}


def test_readme_pictures_have_alternative_text(texts):
    """A picture with no text says nothing to a screen reader."""
    markdown = re.findall(r"!\[([^\]]*)\]\(", texts["README.md"])
    html = re.findall(r"<img\b(?![^>]*\balt=\"[^\"]+\")[^>]*>", texts["README.md"])
    assert markdown and all(text.strip() for text in markdown)
    assert not html


def test_readme_maps_every_folder(texts):
    """A folder that the map leaves out is one that a newcomer has to guess."""
    folders = {path.split("/")[0] for path in texts if "/" in path and not path.startswith(".")}
    missing = {folder for folder in folders if f"`{folder}/`" not in texts["README.md"]}
    assert not missing
