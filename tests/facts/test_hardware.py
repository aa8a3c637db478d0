"""hardware.json and what users give instead of it."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu, get_link, gpus, links, read_gpu_file

NAMES = [
    "t4", "l4", "l40s", "a10", "a100-40g", "a100-80g", "h20", "h100", "h200", "b200", "b300",
    "gb200", "rtx-4090", "rtx-pro-6000", "mi300x",
]  # fmt: skip
LINKS = [
    "nvlink-3", "nvlink-4", "nvlink-5", "pcie-4", "pcie-5", "infiniband-400", "roce-100",
    "roce-200", "ethernet-10", "ethernet-25",
]  # fmt: skip
GOOD = {"name": "mine", "mem_bytes": 80e9, "mem_bw": 3.35e12, "flops": {"bf16": 9.89e14}}


def write(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_every_promised_name_is_there() -> None:
    assert sorted(gpus()) == sorted(NAMES)
    assert set(LINKS) <= set(links())
    for name, gpu in gpus().items():
        assert gpu.name == name and name == name.lower() and "_" not in name


@pytest.mark.parametrize("name", NAMES)
def test_no_number_without_a_source(name: str) -> None:
    """A figure nobody can check is the failure; a link a GPU names must exist."""
    gpu = get_gpu(name)
    numbers = ["mem_bytes", "mem_bw", *(f"flops.{d}" for d in gpu.flops)]
    numbers += ["sm"] if gpu.sm else []
    numbers += [] if gpu.price_per_hour is None else ["price_per_hour"]
    for field in numbers:
        assert len(gpu.source[field]) > 20, (field, gpu.source.get(field))
    for wire in gpu.links:
        assert get_link(wire).source["bandwidth"]


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_dense(name: str) -> None:
    """Data sheets print twice the dense rate "with sparsity"; that would halve every prefill."""
    gpu = get_gpu(name)
    if "bf16" in gpu.flops:
        assert gpu.flops["bf16"] == gpu.flops["fp16"]
        assert gpu.flops["bf16"] < 2.6e15
    if "fp8" in gpu.flops:
        assert gpu.flops["fp8"] == pytest.approx(2 * gpu.flops["bf16"], rel=0.02)
    ridge = gpu.flops_at("bf16") / gpu.mem_bw  # FLOPs per byte where compute takes over
    assert 30 < ridge < 420


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a100-80g", "a100_sxm"),
        ("h100", "h100_sxm"),
        ("h200", "h200_sxm"),
        ("b200", "b200_sxm"),
        ("gb200", "gb200"),
    ],
)
def test_numbers_are_those_of_the_cited_file(
    data_folder: Callable[[str], Path], name: str, file: str
) -> None:
    """A transcription error in our table."""
    text = (data_folder("aiconfigurator-silicon") / f"{file}.yaml").read_text()
    spec = {key: int(n) for key, n in re.findall(r"^ +(\w+): (\d+) *(?:#|$)", text, re.M)}
    gpu = get_gpu(name)
    assert gpu.mem_bw == spec["mem_bw"]
    assert gpu.flops["bf16"] == spec["bfloat16_tc_flops"]
    assert gpu.flops["int8"] == spec["int8_tc_flops"]
    assert gpu.flops.get("fp8") == spec.get("fp8_tc_flops")
    assert gpu.flops.get("fp4") == spec.get("fp4_tc_flops")
    assert gpu.sm == spec["sm_version"]
    assert get_link(gpu.links[0]).bandwidth == spec["intra_node_bw"]
    assert gpu.mem_bytes == pytest.approx(spec["mem_capacity"], rel=0.005)


def test_price_can_be_changed_and_only_in_the_copy() -> None:
    gpu = get_gpu("h100")
    cheap = gpu.with_price(2.5)
    assert cheap.price_per_hour == 2.5 and cheap.source["price_per_hour"] == "set by the user"
    assert get_gpu("h100").price_per_hour == gpu.price_per_hour != 2.5
    assert cheap.mem_bw == gpu.mem_bw
    with pytest.raises(InputError, match="price_per_hour is -1"):
        gpu.with_price(-1)


def test_gpu_is_a_value() -> None:
    """Sweeps pickle it to workers and use it as a key."""
    gpu = get_gpu("h100")
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    assert len({gpu, get_gpu("h100"), get_gpu("h200")}) == 2
    json.dumps(gpu.to_dict())
    with pytest.raises(AttributeError):
        gpu.mem_bw = 1.0  # type: ignore[misc]
    gpus().clear()
    assert gpus(), "a caller's copy must not empty the table"


def test_formats_the_tensor_cores_lack_are_computed_wider() -> None:
    assert get_gpu("a100-80g").flops_at("fp8") == 312e12  # weight-only fp8
    assert get_gpu("t4").flops_at("bf16") == 65e12  # no bf16 on sm 75
    assert get_gpu("h100").flops_at("int4") == 989e12
    assert get_gpu("b200").flops_at("fp4") == 9e15


@pytest.mark.parametrize(
    ("given", "meant"), [("H100", "h100"), ("RTX_4090", "rtx-4090"), (" a100 80g", "a100-80g")]
)
def test_names_are_lenient_about_case_and_dashes(given: str, meant: str) -> None:
    assert get_gpu(given).name == meant


@pytest.mark.parametrize(("given", "close"), [("h10", "h100"), ("a100", "a100-80g"), ("zzz", "t4")])
def test_unknown_gpu_names_the_closest(given: str, close: str) -> None:
    with pytest.raises(InputError) as caught:
        get_gpu(given)
    assert close in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"unknown link 'nvlink'; did you mean .*nvlink-4"):
        get_link("nvlink")


def test_own_file_adds_and_overrides(tmp_path: Path) -> None:
    file = write(tmp_path / "own.json", {"gpus": [GOOD, {**GOOD, "name": "H100", "mem_bw": 3e12}]})
    assert get_gpu("mine", file).links == ("pcie-4",)
    assert get_gpu("h100", file).mem_bw == 3e12
    assert get_gpu("t4", file) == get_gpu("t4")
    assert get_gpu("h100").mem_bw == 3.35e12
    assert "own.json" in get_gpu("mine", file).source["mem_bw"]
    full = {**GOOD, "sm": 90, "links": ["nvlink-4"], "price_per_hour": [2, "quote of Monday"]}
    gpu = read_gpu_file(write(tmp_path / "one.json", full))["mine"]
    assert gpu.price_per_hour == 2.0 and gpu.source["price_per_hour"] == "quote of Monday"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mem_bw": 3350}, "mem_bw is 3350; .* bytes per second; did you mean 3.35e12"),
        ({"mem_bw": 3.35}, r"did you mean 3.35e12 \(3.35 TB/s\)"),
        ({"mem_bytes": 80}, r"did you mean 8e10 \(80 GB\)"),
        ({"mem_bytes": 81920}, r"did you mean 8.59e10 \(8.192e4 MiB\)"),
        ({"flops": {"bf16": 989}}, r"flops.bf16 is 989; .*did you mean 9.89e14 \(989 TFLOPS\)"),
        ({"sm": 9.0}, None),
        ({"sm": 8.9}, "did you mean 89"),
        ({"price_per_hour": -1}, "price_per_hour is -1"),
        ({"price_per_hour": 5000}, "did you mean 50"),
        ({"mem_bw": float("nan")}, "mem_bw is nan"),
        ({"mem_bw": True}, "mem_bw is True"),
        ({"mem_bw": "3.35 TB/s"}, "give a number of bytes per second"),
        ({"flops": 9.89e14}, "flops must be an object"),
        ({"flops": {"bf17": 1e14}}, "unknown dtype 'bf17'; did you mean bf16"),
        ({"links": ["nvlnk-4"]}, "did you mean nvlink-4"),
        ({"links": "pcie-4"}, "links must be a list"),
        ({"membw": 1}, "unknown field 'membw'; did you mean mem_bw"),
    ],
)
def test_unit_and_field_errors_say_the_way_out(
    tmp_path: Path, change: dict[str, object], says: str | None
) -> None:
    file = write(tmp_path / "gpu.json", {**GOOD, **change})
    if says is None:
        assert get_gpu("mine", file)
        return
    with pytest.raises(InputError, match=says) as caught:
        get_gpu("mine", file)
    assert str(caught.value).startswith(f"{file}:1: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"gpus": 3}', "'gpus' must be a list"),
        ('{"name": "x"}', "no 'mem_bytes'"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_gpu_file(write(tmp_path / "bad.json", text))
    assert "\n" not in str(caught.value)


def test_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        get_gpu("h100", tmp_path / "absent.json")
