"""The first cell on a host like Colab or Kaggle, for real: a bare environment, its own torch, pip.

Nothing is fetched: the address of the repository leads to a server on this machine that has the
archive of a tag, as the real one lays it out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from bare_venv import BASE, bare_environment, make_bare

from minilab import __version__
from minilab.lab.colab import Stamp, first_cell
from site_server import serve

pytest.importorskip("pip", reason="needs pip")

ROOT = Path(__file__).parents[2]
STAMP = Stamp("ada/serving", "v0.6.0")
ARCHIVED = ("pyproject.toml", "README.md", "LICENSE", "src")
TORCH = """
from types import SimpleNamespace as _N
__version__ = "9.9.1"
cuda = _N(is_available=lambda: True, get_device_name=lambda _: "Test Card",
          get_device_capability=lambda _: (7, 5),
          get_device_properties=lambda _: _N(total_memory=15 * 2**30))
"""
AFTER = """
from minilab.facts.traces import load, notice
from minilab.lab.experiment import Experiment
print(notice(load("azure-conv-2023", limit=5)))
log = Experiment().with_(trace="synthetic", limit=20).run()
print("finished", (log.requests["finish"] > 0).sum())
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that has the tag's archive and nothing else."""
    top = tmp_path_factory.mktemp("github")
    tree = top / "tree" / "serving-0.6.0"
    tree.mkdir(parents=True)
    for name in ARCHIVED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tree)
    tag = top / "www" / STAMP.repo / "archive" / "refs" / "tags" / STAMP.tag
    tag.parent.mkdir(parents=True)
    shutil.make_archive(str(tag), "zip", tree.parent)
    with serve(top / "www") as address:
        yield address


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An environment with the packages of a host: its Python and its site-packages.

    torch and triton are stubs of versions that no range of ours asks for and no index has.
    """
    python, site = make_bare(tmp_path_factory.mktemp("host") / "venv", (*BASE, "pip", "setuptools"))
    for name, version, source in (("torch", "9.9.1", TORCH), ("triton", "9.9.2", "")):
        add_package(site, name, version, source)
    seen = "import importlib.util as u; print([u.find_spec(n) for n in ('minilab', 'pooch')])"
    done = subprocess.run([python, "-c", seen], env=bare_environment(), capture_output=True)
    assert done.stdout.strip() == b"[None, None]", "not bare: what follows would prove nothing"
    return python, site


def add_package(site: Path, name: str, version: str, source: str) -> None:
    """Put a package there as pip would, so that pip could replace it if it wanted to."""
    (site / name).mkdir()
    (site / name / "__init__.py").write_text(source)
    told = site / f"{name}-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (told / "RECORD").write_text(f"{name}/__init__.py,,\n{told.name}/METADATA,,\n")
    (told / "INSTALLER").write_text("pip\n")


def contents(site: Path) -> dict[str, str]:
    """What is installed, by name; for the two stubs, what their files hold."""
    found = {path.name: "" for path in site.iterdir() if path.name != "__pycache__"}
    for name in ("torch/__init__.py", "triton/__init__.py"):
        found[name] = sha256((site / name).read_bytes()).hexdigest()
    return found


@pytest.mark.parametrize("kind", ["colab", "kaggle"])
def test_only_minilab_comes_and_torch_stays(
    kind: str, host: tuple[Path, Path], archive: str, tmp_path: Path
) -> None:
    """A cell that lets pip resolve dependencies replaces the host's torch: the session breaks."""
    python, site = host
    for old in (*site.glob("minilab*"), *site.glob("google")):
        shutil.rmtree(old)
    env = bare_environment("KAGGLE", "PIP_", "XDG")
    env |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_CACHE_DIR": "0"}
    env["HOME"] = str(tmp_path)  # no cache of traces, no settings of pip
    if kind == "kaggle":
        env["KAGGLE_KERNEL_RUN_TYPE"] = "Interactive"
    else:
        (site / "google" / "colab").mkdir(parents=True)
        (site / "google" / "colab" / "__init__.py").touch()
    before = contents(site)
    cell = first_cell(STAMP).replace("https://github.com/", archive)
    done = subprocess.run(
        [python, "-c", cell + AFTER],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    new = {name: told for name, told in contents(site).items() if before.get(name) != told}
    wheel = f"minilab-{__version__}.dist-info"
    assert sorted(new) == ["minilab", wheel], "something else was installed, or torch was changed"
    assert before.items() <= contents(site).items(), "something was removed"
    origin = json.loads((site / wheel / "direct_url.json").read_text())
    assert origin["url"] == f"{archive}ada/serving/archive/refs/tags/v0.6.0.zip"
    said = done.stdout
    assert "Building wheel for minilab" in said, "pip's output is hidden"
    assert f"minilab {__version__}" in said
    assert "torch 9.9.1" in said and "triton 9.9.2" in said
    assert "GPU: Test Card, capability 7.5, 15 GiB" in said
    assert "data: no data folder" in said
    assert "stand-in" in said.partition("data: ")[2].partition("\n")[2], "no data, and not said"
    assert "finished 20" in said
