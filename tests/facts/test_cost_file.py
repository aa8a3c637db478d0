"""Cost files, measured or assembled, and what is said of a bad one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minilab.facts.cost import Constants, StepCost, StepShape, WfksCost, load_cost
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu

DENSE = "llama-3.1-8b"


def load(tmp_path: Path, data: Any) -> StepCost | WfksCost:
    file = tmp_path / "cost.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return load_cost(file)


def test_both_forms_of_a_cost_file(tmp_path: Path) -> None:
    four = load(tmp_path, {"w": 0.015, "f": 9.7e-5, "k": 1.6e-7, "s": 2e-5})
    assert four.seconds(StepShape(30, 30, 30_000, 0)) == pytest.approx(
        0.015 + 30 * 9.7e-5 + 30_000 * 1.6e-7 + 30 * 2e-5
    )
    named = load(
        tmp_path,
        {"model": DENSE, "gpu": "h100", "tp": 2, "kv_dtype": "fp8", "constants": {"e_mem": 0.5}},
    )
    assert isinstance(named, StepCost)
    assert named.constants.e_mem == 0.5
    assert named.constants.e_comp == Constants.for_gpu(get_gpu("h100")).e_comp
    assert (named.tp, named.kv_dtype, named.link.name) == (2, "fp8", "nvlink-4")


def test_a_cost_file_may_name_own_model_and_gpu(tmp_path: Path) -> None:
    gpu = {"name": "mine", "mem_bytes": 8e10, "mem_bw": 1e12, "flops": {"bf16": 1e14}}
    (tmp_path / "gpu.json").write_text(json.dumps(gpu))
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
              "vocab_size": 100, "intermediate_size": 128}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    data = {"model": "tiny", "gpu": "mine", "gpu_file": str(tmp_path / "gpu.json"),
            "model_config": str(tmp_path / "config.json")}  # fmt: skip
    cost = load(tmp_path, data)
    assert isinstance(cost, StepCost) and cost.model.layers == 2 and cost.gpu.mem_bw == 1e12


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"w": 15.0, "f": 0.097, "k": 1.6e-4, "s": 0.02}, r"did you mean 0.015 \(15.0 ms\)"),
        ({"w": 0.01, "f": 0.097, "k": 0, "s": 0}, r"f is 0.097 .*did you mean 9.7e-05"),
        ({"w": -1e-3, "f": 0, "k": 0, "s": 0}, "cost w is -0.001; give seconds, 0 or more"),
        ('{"w": NaN, "f": 0, "k": 0, "s": 0}', "cost w is nan"),
        ('{"w": Infinity, "f": 0, "k": 0, "s": 0}', "cost w is inf"),
        ({"w": 0, "f": 0, "k": 1e-7, "s": 1e-5}, "a step would take no time"),
        ({"w": "15 ms", "f": 0, "k": 0, "s": 0}, "cost w is '15 ms'"),
        ({"w": True, "f": 0, "k": 0, "s": 0}, "cost w is True"),
        ({"w": 0.01, "f": 1e-4, "k": 1e-7}, "no 's'; give w, f, k, s"),
        ({"w": 0.01, "f": 1e-4, "k": 1e-7, "s": 0, "tt_req": 1}, "did you mean t_req"),
        ({"model": DENSE}, "no 'gpu'; give model, gpu"),
        ({"model": "llama-9", "gpu": "h100"}, "unknown model 'llama-9'; did you mean"),
        ({"model": DENSE, "gpu": "h10"}, "unknown GPU 'h10'; did you mean h100"),
        ({"model": DENSE, "gpu": "h100", "tp": "2"}, "tp is '2'"),
        ({"model": DENSE, "gpu": "h100", "tp": 0}, "tp is 0"),
        ({"model": DENSE, "gpu": 100}, "gpu is 100; give a string"),
        ({"model": DENSE, "gpu": "h100", "w": 1}, "unknown key 'w'"),
        ({"model": DENSE, "gpu": "h100", "constants": {"e_mem": 2}}, "e_mem is 2; expected"),
        ({"model": DENSE, "gpu": "h100", "constants": 3}, "constants is 3; give an object"),
        ([1], "expected a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_bad_cost_files_are_refused_in_one_line(tmp_path: Path, data: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        load(tmp_path, data)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "cost.json"))
