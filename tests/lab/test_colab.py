"""The first cell and the environment: on a host only minilab may change, elsewhere nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minilab import lab
from minilab.facts.errors import InputError
from minilab.lab import colab
from minilab.lab.colab import Stamp, first_cell, read_stamp

ROOT = Path(__file__).parents[2]
STAMPED = Stamp("ada/serving", "v0.6.0")
FAKE_PIP = """
import json, os, sys
open(os.environ["PIP_LOG"], "a").write(json.dumps(sys.argv[1:]) + "\\n")
print("pip says: Successfully installed minilab")
print("and a warning", file=sys.stderr)
sys.exit(int(os.environ.get("PIP_EXIT", "0")))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with a pip that only writes down its arguments."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").write_text("")
    (tmp_path / "pip" / "__main__.py").write_text(FAKE_PIP)
    return tmp_path


def add(machine: Path, package: str, source: str = "") -> None:
    folder = machine.joinpath(*package.split("."))
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(source)


HOSTS = ("colab", "kaggle")


def place(machine: Path, host: str) -> dict[str, str]:
    """Make the machine look like that host; the variables that go with it."""
    if host == "kaggle":
        return {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}
    add(machine, "google.colab")
    return {}


def run_cell(machine: Path, stamp: Stamp, **environment: str) -> tuple[Any, list[list[str]]]:
    """Run the cell as Python would; returns the process and the calls that pip saw."""
    log = machine / "pip.log"
    paths = os.pathsep.join([str(machine), str(ROOT / "src")])
    clean = {k: v for k, v in os.environ.items() if not k.startswith("KAGGLE")}
    found = subprocess.run(
        [sys.executable, "-c", first_cell(stamp)],
        capture_output=True,
        text=True,
        cwd=machine,
        env={**clean, "PYTHONPATH": paths, "PIP_LOG": str(log), **environment},
    )
    calls = log.read_text().splitlines() if log.exists() else []
    return found, [json.loads(call) for call in calls]


def test_elsewhere_the_cell_installs_nothing_and_prints_the_environment(machine: Path) -> None:
    found, calls = run_cell(machine, Stamp())
    assert found.returncode == 0, found.stderr
    assert calls == []
    for said in ("versions: Python", "GPU:", "runs where:", "data:"):
        assert said in found.stdout


@pytest.mark.parametrize("host", HOSTS)
def test_on_a_host_it_installs_minilab_alone_from_the_tag_and_shows_what_pip_says(
    machine: Path, host: str
) -> None:
    found, calls = run_cell(machine, STAMPED, **place(machine, host))
    assert found.returncode == 0, found.stderr
    assert calls == [
        ["install", "--no-deps", "--progress-bar=off",
         "https://github.com/ada/serving/archive/refs/tags/v0.6.0.zip"]
    ]  # fmt: skip
    assert "pip says: Successfully" in found.stdout and "and a warning" in found.stdout
    assert found.stdout.index("pip says") < found.stdout.index("versions:")


@pytest.mark.parametrize("host", HOSTS)
def test_on_a_host_an_unstamped_copy_refuses_in_one_line_before_pip(
    machine: Path, host: str
) -> None:
    found, calls = run_cell(machine, Stamp(), **place(machine, host))
    assert (found.returncode, calls) == (1, [])
    assert found.stderr.count("\n") == 1 and "make stamp" in found.stderr


@pytest.mark.parametrize("host", HOSTS)
def test_on_a_host_a_failed_install_stops_the_cell_in_one_line(machine: Path, host: str) -> None:
    found, _ = run_cell(machine, STAMPED, PIP_EXIT="1", **place(machine, host))
    assert found.returncode == 1
    assert "was not installed" in found.stderr and "Internet" in found.stderr
    assert found.stderr.count("\n") == 1 and "Traceback" not in found.stderr
    assert "and a warning" in found.stdout


def test_the_cell_hides_nothing_and_follows_no_branch() -> None:
    cell = first_cell(Stamp())
    for trap in ("%%capture", "@main", "/heads/", "-q", "--quiet", "--upgrade", "==", "DEVNULL"):
        assert trap not in cell, trap
    assert max(map(len, cell.splitlines())) <= 100


def test_make_stamp_and_the_build_agree_on_the_cell() -> None:
    tool = ROOT / "tools" / "stamp.py"
    spec = importlib.util.spec_from_file_location("stamp_tool", tool)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stamp_tool"] = module
    spec.loader.exec_module(module)
    old = module.Address(Stamp().repo, Stamp().tag, module.pages_of(Stamp().repo))
    new = module.Address("ada/serving", "v0.7.1", module.pages_of("ada/serving"))
    in_notebook = json.dumps(first_cell(Stamp()).splitlines(keepends=True))
    wanted = json.dumps(first_cell(Stamp("ada/serving", "v0.7.1")).splitlines(keepends=True))
    assert module.replacer(old, new)(in_notebook) == wanted


# --- repo.toml -----------------------------------------------------------------------------------


def test_the_stamp_is_read_and_the_default_is_unstamped(tmp_path: Path) -> None:
    assert read_stamp(tmp_path) == Stamp() and not Stamp().stamped
    (tmp_path / "repo.toml").write_text('# a comment\nrepo = "ada/serving"\ntag="v1.2.3"\n')
    assert read_stamp(tmp_path) == Stamp("ada/serving", "v1.2.3")
    assert read_stamp(tmp_path).stamped


@pytest.mark.parametrize(
    "text",
    ['tag = "main"', 'tag = "HEAD"', 'tag = ""', 'repo = "serving"', 'repo = "a/b/c"',
     'repo = "https://github.com/a/b"'],
)  # fmt: skip
def test_a_branch_or_a_malformed_address_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "repo.toml").write_text(text)
    with pytest.raises(InputError, match=r"repo\.toml"):
        read_stamp(tmp_path)


# --- environment ---------------------------------------------------------------------------------


def fake_torch(capability: tuple[int, int] | None) -> SimpleNamespace:
    cuda = SimpleNamespace(
        is_available=lambda: capability is not None,
        get_device_capability=lambda _: capability,
        get_device_properties=lambda _: SimpleNamespace(total_memory=15 * 2**30),
        get_device_name=lambda _: "Test Card",
    )
    return SimpleNamespace(cuda=cuda, __version__="0.0", __spec__=SimpleNamespace())


@pytest.mark.parametrize(
    ("capability", "gpu", "where"),
    [
        (None, "none that torch can use", "take their CPU path"),
        ((7, 5), "Test Card, capability 7.5, 15 GiB", "no bf16"),
        ((8, 9), "Test Card, capability 8.9", "cells marked GPU on the GPU"),
    ],
)
def test_what_runs_where_follows_the_capability(
    capability: tuple[int, int] | None,
    gpu: str,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(capability))  # type: ignore[arg-type]
    lab.environment()
    lines = capsys.readouterr().out.splitlines()
    assert gpu in lines[1] and where in lines[2]


def test_torch_is_not_imported_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        colab.importlib.util, "find_spec", lambda n: None if n == "torch" else real(n)
    )
    lab.environment()
    assert "no torch here" in capsys.readouterr().out


def test_the_data_source_is_named_and_no_path_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINILAB_DATA", str(tmp_path))
    lab.environment()
    out = capsys.readouterr().out
    assert "MINILAB_DATA" in out and str(tmp_path) not in out
    lab.environment({"name": "azure-conv-2023", "kind": "stand-in", "origin": "generated"})
    assert "data: azure-conv-2023, stand-in (generated)" in capsys.readouterr().out
