"""Which backend runs, what is said about it, and that the package asks for no more than it says."""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import minilab.kernels
from minilab.kernels import device
from minilab.kernels.device import Backend, backends_used, choose_backend

CPU, GPU = torch.device("cpu"), torch.device("cuda")
FOLDER = Path(minilab.kernels.__file__).parent
USE = """
import sys, warnings
{before}
import torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from minilab.kernels import aot, device
    modules = [__import__(f"minilab.kernels.{{name}}", fromlist=[name]) for name in aot.MODULES]
    copy = modules[0]
    with device.backends_used() as used:
        for _ in range(3):
            copy.gather_blocks(torch.arange(6).view(3, 2), torch.tensor([2, 0]))
    try:
        copy.gather_blocks(torch.zeros(3, 2), torch.tensor([2]), backend="interpreter")
    except ValueError as error:
        print("refused:", error)
print("used:", used["gather_blocks"].name)
print("warned:", [str(w.message) for w in caught])
"""


@pytest.fixture
def gpu(monkeypatch):
    """A process that sees a CUDA GPU of the capability asked for."""

    def pretend(major: int, minor: int, triton: bool = True) -> None:
        monkeypatch.setattr(device, "HAS_TRITON", triton)
        monkeypatch.setattr(device, "INTERPRETED", False)
        monkeypatch.setattr(device, "MIXED", False)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (major, minor))
        device._warn_once.cache_clear()

    return pretend


def test_auto_takes_triton_where_the_kernel_compiles(gpu):
    """The capability decides, and is told."""
    gpu(8, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = choose_backend("paged_prefill", GPU, min_capability=80)
    assert (chosen.name, chosen.capability) == ("triton", 89)


def test_auto_falls_back_on_a_t4_and_says_so_once(gpu):
    """One warning for each kernel, not one for each of its thousand calls."""
    gpu(7, 5)
    with pytest.warns(RuntimeWarning, match=r"no variant for compute capability 7\.5") as caught:
        for _ in range(3):
            assert choose_backend("paged_prefill", GPU, min_capability=80).name == "reference"
    assert len(caught) == 1
    assert choose_backend("paged_decode", GPU).name == "triton"


def test_gpu_without_triton(gpu):
    """Slow is better than broken, but not silently."""
    gpu(9, 0, triton=False)
    with pytest.warns(RuntimeWarning, match="triton is not installed"):
        assert choose_backend("paged_decode", GPU).name == "reference"


@pytest.mark.parametrize("backend", ["triton", "interpreter"])
def test_explicit_backend_never_falls_back(gpu, backend):
    """CPU tensors, and a GPU that is too old."""
    gpu(7, 5)
    with pytest.raises(ValueError, match="the tensors are on the cpu"):
        choose_backend("paged_prefill", CPU, backend)
    with pytest.raises(ValueError, match=r"no variant for compute capability 7\.5"):
        choose_backend("paged_prefill", GPU, backend, min_capability=80)


def test_interpreter_asked_for_where_the_gpu_compiles(gpu):
    """The process runs in the other mode."""
    gpu(9, 0)
    with pytest.raises(ValueError, match="kernels run as 'triton' here"):
        choose_backend("paged_decode", GPU, "interpreter")


def test_unknown_backend():
    """Named, with the ones there are."""
    with pytest.raises(ValueError, match="backend is 'cuda'; it must be one of auto, triton"):
        choose_backend("paged_decode", CPU, "cuda")


def test_backends_used_is_scoped():
    """Collected inside the block only, also when the block fails."""
    with pytest.raises(KeyError), backends_used() as used:
        choose_backend("kv_write", CPU, "reference")
        raise KeyError
    choose_backend("rejection", CPU, "reference")
    assert used == {"kv_write": Backend("reference", 0, "asked for")}


@pytest.mark.parametrize(
    ("capability", "refused"), [(75, True), (80, True), (89, False), (90, False)]
)
def test_native_fp8_needs_its_hardware(capability, refused):
    """Our own sentence, with the way out, before the compiler's."""
    said = device.native_fp8_refusal(capability)
    assert bool(said) == refused
    assert not refused or ("8.9 is the first" in said and "view(torch.uint8)" in said)


def test_without_triton(python):
    """macOS and Windows: every kernel file imports, runs the reference, and warns once."""
    done = python("-c", USE.format(before="sys.modules['triton'] = None"))
    assert done.returncode == 0, done.stderr
    assert "used: reference" in done.stdout
    assert "refused: backend is 'interpreter', but triton is not installed" in done.stdout
    said = "triton is not installed; gather_blocks runs the plain-torch reference"
    assert f"warned: [{said!r}]" in done.stdout


def test_cpu_tensors_take_the_reference_in_silence(python):
    """The usual case on a laptop: nothing to warn of."""
    pytest.importorskip("triton", reason="needs triton")
    done = python("-c", USE.format(before=""))
    assert "used: reference" in done.stdout and "warned: []" in done.stdout, done.stderr


def test_interpreter_is_used_where_it_was_chosen(python):
    """CPU tensors with backend="auto"."""
    pytest.importorskip("triton", reason="needs triton")
    done = python("-c", USE.format(before=""), TRITON_INTERPRET="1")
    assert "used: interpreter" in done.stdout and "warned: []" in done.stdout, done.stderr


def test_mode_changed_too_late(python):
    """The variable set after triton was imported would mix two kinds of functions."""
    pytest.importorskip("triton", reason="needs triton")
    late = "import os, triton; os.environ['TRITON_INTERPRET'] = '1'"
    done = python("-c", USE.format(before=late))
    assert "used: reference" in done.stdout, done.stderr
    assert "TRITON_INTERPRET changed after triton was imported" in done.stdout


def test_package_import_is_light(python):
    """`import minilab.kernels` must not cost a reader of docs a torch."""
    code = "import sys, minilab.kernels; print({'torch', 'triton'} & set(sys.modules))"
    assert python("-c", code).stdout.strip() == "set()"


def test_imports_torch_and_triton_alone():
    """The folder must run on any GPU machine: no other part of the package, no numpy."""
    allowed = {"torch", "triton", *sys.stdlib_module_names}
    for file in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                inside = name == "minilab.kernels" or name.startswith("minilab.kernels.")
                assert inside or name.split(".")[0] in allowed, f"{file.name} imports {name}"


def test_kernel_files_name_their_parts():
    """aot, the benchmark and the pages rely on wrapper, twin, cost, CONFIGS and AOT being there."""
    code = (
        "from minilab.kernels import aot; import importlib\n"
        "for name in aot.MODULES:\n"
        "    module = importlib.import_module(f'minilab.kernels.{name}')\n"
        "    assert module.AOT and module.CONFIGS and callable(module.cost), name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
