"""``minilab calibrate``, and the error that ``minilab sim`` states beside its numbers."""

from __future__ import annotations

import csv
import json

import pytest

from minilab.facts.cost_constants import FUSED_ALL_REDUCE, RANGES, Constants, fit_for
from minilab.facts.error_band import error_band
from minilab.facts.hardware import get_gpu, gpus
from minilab.judge.silicon_rows import FILE

SIM = ("sim", "--trace", "synthetic", "--limit", 40, "--prompt-tokens", 512)


@pytest.fixture
def made_data(tmp_path):
    """A data folder whose rows a card with known constants would have measured."""
    from dataclasses import replace

    from minilab.facts.models import get_model
    from minilab.judge.composition import simulate
    from minilab.judge.silicon_rows import SiliconRow

    truth = Constants(0.75, 0.65, 0.15, 35e-6, 12e-6, 18e-3)
    base = {
        "backend": "vllm", "backend_version": "0.18.0", "mode": "agg", "system": "h100_sxm",
        "model_path": "meta-llama/Llama-3.1-8B-Instruct", "precision": "", "osl": "32",
        "attention_dp_size": "1", "moe_ep_size": "1",
    }  # fmt: skip
    row = SiliconRow(
        "x", "vllm", "", get_model("llama-3.1-8b"), get_gpu("h100"), "h100", "bf16", 1, 1, 32, 1,
        1.0, 1.0,
    )  # fmt: skip
    lines = []
    for tp in (1, 2):
        for isl in (128, 1024, 4096):
            for clients in (1, 2, 4, 8, 16):
                one = replace(row, tp=tp, isl=isl, concurrency=clients)
                seen = simulate(one, truth)
                lines.append(
                    {**base, "id": f"r{len(lines)}", "isl": isl, "tp_size": tp, "moe_tp_size": tp,
                     "silicon_data_source": f"silicon_concurrency={clients}",
                     "silicon_ttft_ms": 1e3 * seen.ttft, "silicon_tpot_ms": 1e3 * seen.tpot}
                )  # fmt: skip
    lines.append({**lines[0], "id": "bad", "silicon_tpot_ms": 0.5})
    folder = tmp_path / "aiconfigurator-silicon"
    folder.mkdir()
    with (folder / FILE.removesuffix(".gz")).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    import gzip

    (folder / FILE).write_bytes(gzip.compress((folder / FILE.removesuffix(".gz")).read_bytes()))
    return tmp_path


def test_silicon(cli, made_data, tmp_path):
    """The whole way, from a table to constants, on rows that the model can explain."""
    out, store = tmp_path / "result.json", tmp_path / "scores.jsonl"
    words = ("calibrate", "silicon", "--data", made_data, "--store", store, "--out", out)
    called = cli(*words, "--ablations", "--json")
    result = called.json
    assert called.status == 0 and json.loads(out.read_text()) == result
    assert result["rows"] == 30 and result["refused"]["physically impossible"] == 1
    found = result["families"]["hopper"]
    assert found["constants"]["e_mem"] == pytest.approx(0.75, rel=0.03)
    assert found["constants"]["t_req"] == pytest.approx(18e-3, rel=0.1)
    assert found["tpot"]["n"] == 15 and found["tpot"]["p90"] < 0.03
    assert result["ablation"]["no time per request (t_req)"]["ttft"]["median"] > 0.05
    assert len(store.read_text().splitlines()) == 15
    text = cli(*words).out
    assert "30 rows used; refused: 1 physically impossible" in text
    assert "hopper: e_mem 0.7" in text and "llama-3.1-8b on h100" in text
    own = made_data / "aiconfigurator-silicon" / FILE.removesuffix(".gz")
    listed = cli("calibrate", "silicon", "--file", own, "--refused").out
    assert listed.startswith("bad: reading the weights in 0.50 ms takes")


def test_refusals(refused, tmp_path, monkeypatch):
    """What is missing is named, with the way to it."""
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    assert "needs aiconfigurator-silicon: set MINILAB_DATA" in refused("calibrate", "silicon")
    assert "needs llmservingsim-bench" in refused("calibrate", "replay", "--data", tmp_path)
    assert "give one of vllm, sglang" in refused("calibrate", "silicon", "--engine", "tgi")
    assert "give one of RTX4090" in refused("calibrate", "replay", "--run", "A100_x")
    assert "cannot end in '.txt'" in refused("calibrate", "replay", "--out", tmp_path / "a.txt")


def test_too_few_rows(refused, made_data):
    """Two rows a constant are little; fewer are a plot of noise."""
    words = ("calibrate", "silicon", "--data", made_data, "--model", "qwen3-32b")
    said = refused(*words)
    assert "0 rows left, at least 24" in said
    assert "1 were refused, the first (bad) because reading the weights in 0.50 ms" in said


def test_replay(cli, data_folder):
    """The published runs, as a table and as JSON."""
    folder = data_folder("llmservingsim-bench").parent
    words = ("calibrate", "replay", "--data", folder, "--run", "RTXPRO6000_Qwen3-32B")
    (row,) = cli(*words, "--json").json
    assert row["gpu"] == "rtx-pro-6000" and len(row["points"]) == 300
    text = cli(*words).out
    assert "two terms fitted" in text and "%" in text


def test_sim_states_its_band(cli):
    """A number without its error teaches superstition."""
    known = (*SIM, "--model", "llama-3.1-70b", "--tp", 4, "--weight-dtype", "fp8")
    result = cli(*known, "--json").json
    band = result["error_band"]
    assert band["why_none"] is None and band["coverage"] == 0.8
    for name in ("ttft", "tpot"):
        low, high = band[name]["p50"]
        assert low < result[name]["p50"] < high
        assert low == pytest.approx(result[name]["p50"] * band["factors"][name][0])
    assert result["cost"]["provenance"].startswith("fitted on ")
    text = cli(*known).out
    assert "ttft band" in text and "four of five measurements lay so" in text
    assert "fitted on" in text and "TPOT" in text


def test_an_unseen_model_has_a_wider_band():
    """A model that no fit saw is known less well; the same band would claim otherwise."""
    gpu = get_gpu("h100")
    known = error_band(gpu, "llama-3.1-70b", Constants.for_gpu(gpu))
    new = error_band(gpu, "llama-3.1-8b", Constants.for_gpu(gpu))
    assert known is not None and new is not None
    assert "left out" in new.basis and known.basis != new.basis
    low, high = known.factors["tpot"]
    wide_low, wide_high = new.factors["tpot"]
    assert wide_high / wide_low > high / low


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--gpu", "mi300x"), "no measurement of mi300x"),
        (("--gpu", "rtx-4090", "--model", "llama-3.2-1b"), "only llama-3.1-8b was"),
    ],
)
def test_no_band_where_nobody_measured(cli, options, why):
    """An invented band is worse than none."""
    result = cli(*SIM, *options, "--json").json
    assert result["error_band"]["tpot"] is None and why in result["error_band"]["why_none"]
    assert f"not known: {result['error_band']['why_none']}" in cli(*SIM, *options).out


def test_own_constants_have_no_known_error(cli, tmp_path):
    """Half of the bandwidth, and still the error of ours? No."""
    path = tmp_path / "cost.json"
    path.write_text(
        json.dumps({"model": "llama-3.1-8b", "gpu": "h100", "constants": {"e_mem": 0.5}})
    )
    band = cli(*SIM, "--cost", path, "--json").json["error_band"]
    assert band["tpot"] is None and band["why_none"].startswith("constants of your own")
    path.write_text(json.dumps({"w": 0.01, "f": 1e-5, "k": 0, "s": 0}))
    assert (
        cli(*SIM, "--cost", path, "--json").json["error_band"]["why_none"].startswith("a cost of")
    )


def test_overload_is_noted(cli):
    """Beyond the knee TTFT is mostly queue, and the band does not hold it."""
    calm = cli(*SIM, "--rate", 1, "--json").json
    busy = cli(*SIM, "--rate", 500, "--max-num-seqs", 4, "--json").json
    assert not any("near overload" in note for note in calm["notes"])
    assert any("near overload" in note for note in busy["notes"])


def test_shipped_constants_are_whole():
    """Meaning, range, origin and error of each fit, or the page has a hole where trust belongs."""
    fitted = {name for name in gpus() if fit_for(get_gpu(name)) is not None}
    assert fitted == {"h20", "h100", "h200", "b200", "b300", "gb200", "rtx-4090", "rtx-pro-6000"}
    for name in fitted:
        entry = fit_for(get_gpu(name))
        assert entry is not None
        assert set(entry["values"]) == set(RANGES) and entry["source"] and entry["models"]
        for error in entry["error"].values():
            assert 0 < error["median"] < error["p90"] < 1 and error["low"] < 1 < error["high"]
        for constant in entry["fitted"]:
            low, high = RANGES[constant]
            assert low < entry["values"][constant] < high
    assert FUSED_ALL_REDUCE == 3e-6
