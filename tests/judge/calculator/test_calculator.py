"""The page's calculator says what facts say: no second truth about what fits."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from minilab.facts.capacity_limits import max_length
from minilab.facts.capacity_plan import Deployment
from minilab.facts.capacity_report import capacity
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.judge.calculator.page import Page
from minilab.judge.calculator.tables import as_json, parameters, tables

NUMBERS = ("tokens", "blocks", "max_concurrency", "kv_bytes_per_token")


def page() -> Page:
    return Page(as_json(), json.dumps(parameters()))


def random_settings(count: int, seed: int = 5) -> list[dict[str, Any]]:
    """Settings over the whole parameter space."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        values: dict[str, Any] = {}
        for row in parameters():
            low, high = row.get("min", 0), row.get("max", 0)
            words = row.get("choices") or sorted(tables().get(row.get("kind"), ()))
            if words:
                values[row["name"]] = rng.choice(words)
            elif row["scale"] == "log":
                values[row["name"]] = round(low * (high / low) ** rng.random())
            else:
                values[row["name"]] = round(
                    row["min"] + (row["max"] - row["min"]) * rng.random(), 3
                )
        found.append(values)
    return found


def deployment(given: dict[str, Any]) -> Deployment:
    return Deployment(
        get_model(given["model"]),
        get_gpu(given["gpu"]),
        given["kv_dtype"],
        given["weight_dtype"],
        tp=int(given["tp"]),
        utilization=given["utilization"],
        max_num_batched_tokens=given["batched"],
        max_num_seqs=given["sequences"],
    )


def test_what_fits_is_what_facts_say():
    """600 settings: every byte, token, request, length and launch line, to 1e-12."""
    seen = 0
    settings = random_settings(600)
    for given, ours in zip(settings, json.loads(page().batch(json.dumps(settings))), strict=True):
        try:
            theirs = capacity(deployment(given), given["length"])
        except InputError as error:
            assert not ours["fits"], (given, str(error))
            continue
        assert ours["fits"], given
        said = theirs.as_dict()
        assert [[t["name"], t["bytes"]] for t in said["terms"]] == [
            [name, pytest.approx(size, rel=1e-12)] for name, size, _ in ours["terms"]
        ]
        assert ours["available"] == pytest.approx(said["available_bytes"], rel=1e-12, abs=1e-3)
        for name in NUMBERS:
            assert ours[name] == pytest.approx(said[name], rel=1e-12), (given, name)
        assert ours["range"] == said["range"]["tokens"], given
        assert ours["longest"] == max_length(theirs.deployment, theirs.found, 1), given
        many = max_length(theirs.deployment, theirs.found, given["sequences"])
        assert ours["longest_together"] == many, given
        commands = [line for _, _, line in ours["flags"]]
        assert commands == [said["flags"][engine]["command"] for engine in ("vllm", "sglang")]
        seen += 1
    assert seen > 250


def test_weights_are_what_facts_say():
    for name in tables()["models"]:
        for dtype in ("native", "bf16", "fp8", "int4"):
            given = {"model": name, "weight_dtype": dtype, "gpu": "b200", "tp": "8"}
            told = json.loads(page().report(json.dumps(given)))
            expected = get_model(name).weight_bytes(dtype)
            assert told["weights"] == pytest.approx(expected, abs=1.0), (name, dtype)


def test_the_batch_is_bound_by_memory_or_by_the_setting():
    few = json.loads(page().report('{"sequences": 4}'))
    many = json.loads(page().report('{"sequences": 2000, "length": 32768}'))
    assert (few["batch"], few["limit"]) == (4, "max_num_seqs")
    assert many["limit"] == "KV memory" and many["batch"] == int(many["max_concurrency"])
    assert many["tokens_in_flight"] == many["batch"] * 32768 <= many["tokens"]


def test_the_arithmetic_shown_is_the_arithmetic_done():
    """The line for KV bytes, evaluated, gives the number beside it."""
    for name in ("llama-3.1-8b", "deepseek-v3", "qwen3-14b"):
        told = json.loads(page().report(json.dumps({"model": name, "gpu": "b200", "tp": "8"})))
        line = dict(told["arithmetic"])["KV per token"]
        left, _, right = line.partition(" = ")
        for word in (" layers", " KV heads", " B"):
            left = left.replace(word, "")
        left = left.replace("1 of 8", "1")
        assert eval(left.replace("x", "*")) == told["kv_bytes_per_token"], line
        assert right == f"{told['kv_bytes_per_token']:,} B"


def test_a_wrong_size_would_be_seen():
    """The comparison can fail: a GPU with one KiB less has other bytes."""
    changed = copy.deepcopy(tables())
    changed["gpus"]["h100"]["mem_bytes"] -= 1024
    told = json.loads(Page(json.dumps(changed), json.dumps(parameters())).report("{}"))
    theirs = capacity(Deployment(get_model("llama-3.1-8b"), get_gpu("h100")))
    assert told["available"] != pytest.approx(theirs.as_dict()["available_bytes"], rel=1e-12)


def test_what_does_not_fit_says_so():
    told = json.loads(page().report('{"model": "deepseek-v3", "gpu": "l4"}'))
    assert told["fits"] is False and told["available"] < 0
    assert [name for name, _, _ in told["terms"]][2] == "weights"


def test_every_parameter_can_be_drawn():
    for row in parameters():
        assert row["label"] and row["help"].endswith(".")
        assert ("min" in row) != ("kind" in row)
        if "min" in row:
            assert row["min"] <= row["default"] <= row["max"]
