"""Ahead-of-time compilation: the kernels for GPUs that are not here, and a harness that notices."""

from __future__ import annotations

import json
import sys

import pytest

from minilab.kernels import aot
from minilab.kernels.spec import ARCHS, Config, Spec, config_for

FINE = {"registers": 90, "stack": 0, "local": 0, "shared": 1000, "matrix": {"HMMA": 4}}
SPEC = Spec("k", None, {}, {}, dict.fromkeys(ARCHS, Config({})), expect={80: "HMMA"})
OTHER_TRITON = "3.6.0"


@pytest.mark.parametrize(
    ("arch", "changed", "said"),
    [
        (80, {}, None),
        (80, {"stack": 8}, "8 bytes of stack, 0 allowed"),
        (80, {"local": 16}, "bytes of stack"),
        (80, {"shared": 166_913}, "166913 bytes of shared memory, cap 166912"),
        (75, {"matrix": {}, "shared": 65_537}, "cap 65536"),
        (80, {"matrix": {}}, "no HMMA, but no matrix instruction"),
        (80, {"matrix": {"HGMMA": 1}}, "no HMMA, but {'HGMMA': 1}"),
        (75, {"matrix": {}}, None),
        (75, {}, "but none was expected"),
        (80, {"error": "PassManager failed"}, "PassManager failed"),
    ],
)
def test_harness_notices(arch, changed, said):
    """A check that lets everything through would look like a kernel that is always fine."""
    found = aot.problems(SPEC, arch, {**FINE, **changed})
    assert (found == []) if said is None else (len(found) == 1 and said in found[0])


def test_harness_notices_a_guard_too_many():
    """Our guard refuses what the compiler takes."""
    spec = Spec("k", None, {}, {}, SPEC.configs, refused=(80,))
    assert aot.problems(spec, 80, FINE) and not aot.problems(spec, 80, {"error": "not supported"})


def test_config_for():
    """The highest entry that the GPU reaches; an unknown newer one takes the newest."""
    table = {75: Config({}, 1), 80: Config({}, 2), 90: Config({}, 4)}
    assert [config_for(table, cc).warps for cc in (75, 80, 89, 90, 121)] == [1, 2, 2, 4, 4]
    with pytest.raises(ValueError, match="capability is 70; the table begins at 75"):
        config_for(table, 70)


def test_every_kernel_covers_a_t4_or_says_not():
    """The sm_75 variants that a free Colab relies on."""
    archs = {}
    for name in aot.MODULES:
        for spec in aot.all_specs([name]):
            archs.setdefault(name, set()).update(spec.configs)
    without = {name for name, found in archs.items() if 75 not in found}
    assert without == {"paged_prefill", "quant_gemm", "quant_gemm_int4"}
    assert all(set(ARCHS) - {75} <= found for found in archs.values())


def test_interpreter_mode_is_refused(python):
    """Interpreted functions cannot be compiled; said in a sentence."""
    done = python("-m", "minilab.kernels.aot", TRITON_INTERPRET="1")
    assert done.returncode == 2 and "TRITON_INTERPRET not set" in done.stderr


def test_fast_subset(python, tmp_path):
    """Stack 0, shared memory under the caps, the expected instructions, on 75, 80 and 90."""
    pytest.importorskip("triton", reason="needs triton")
    done = python("-m", "minilab.kernels.aot", "--json", tmp_path / "aot.json")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    rows = json.loads((tmp_path / "aot.json").read_text())["rows"]
    assert {row["arch"] for row in rows} == set(aot.FAST_ARCHS)
    assert {row["spec"].split()[0] for row in rows} == set(aot.MODULES)
    assert any("HGMMA" in row["matrix"] for row in rows)


@pytest.mark.slow
def test_everything(python):
    """All specs on all architectures."""
    pytest.importorskip("triton", reason="needs triton")
    done = python("-m", "minilab.kernels.aot", "--all")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_everything_under_an_older_triton(python, tmp_path):
    """Colab's torch may bring triton 3.6, whose compiler differs."""
    wheel = f"triton=={OTHER_TRITON}"
    got = python("-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path, wheel)
    if got.returncode:
        pytest.skip(f"needs triton {OTHER_TRITON} (pip could not get it)")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import triton\n"
        f"assert triton.__version__ == {OTHER_TRITON!r}, triton.__version__\n"
        "from minilab.kernels.aot import main; sys.exit(main(['--all']))"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert sys.platform == "linux"
