"""4-bit and 8-bit weights: grids, AWQ and GPTQ against their definitions, and the file layouts."""

from __future__ import annotations

import json

import pytest
import torch

from minilab.engine.load import load_llm
from minilab.engine.quant import awq, gptq
from minilab.engine.quant.calibrate import input_scales, matrix_inputs
from minilab.engine.quant.checkpoint import FILE, load_quantised, save_fp8, save_int4
from minilab.engine.quant.fp8_weights import dynamic, round_weight, static
from minilab.engine.quant.grid import already_on_grid, round_to_nearest
from minilab.engine.quant.passes import Pass, matrices
from minilab.engine.quant.sanity import in_place
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights
from minilab.facts.errors import InputError

HF = {
    "model_type": "llama", "vocab_size": 259, "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "rms_norm_eps": 1e-6, "rope_theta": 10_000.0, "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
}  # fmt: skip


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_weights(TINY, 5)


@pytest.fixture(scope="module")
def inputs(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    text = torch.randint(0, 250, (200,), generator=torch.Generator().manual_seed(2)).tolist()
    return matrix_inputs(TINY, weights, text)


def test_round_to_nearest_is_within_half_a_step() -> None:
    """Ragged groups too: 100 inputs are three groups of 32 and one of 4."""
    weight = drawn(16, 100)
    grid = round_to_nearest(weight, 32)
    assert grid.scales.shape == (16, 4) and int(grid.q.min()) >= 0 and int(grid.q.max()) <= 15
    step = grid.scales.repeat_interleave(32, 1)[:, :100]
    # The ends of a group may be off by one more half: the zero point is a whole number.
    assert bool(((weight - grid.weight()).abs() <= step * 1.01).all())
    assert float((weight - grid.weight()).abs().mean()) < float(step.mean()) / 3
    eight = round_to_nearest(weight, 32, bits=8)
    assert float((weight - eight.weight()).abs().max()) < float(step.max()) / 10
    with pytest.raises(InputError, match="group_size 0"):
        round_to_nearest(weight, 0)


def test_weights_that_lie_on_the_grid_already_are_flagged() -> None:
    """A Q4 file dequantised has 16 values in each 32: rounding to that grid proves nothing."""
    weight = drawn(8, 128)
    made = round_to_nearest(weight, 32).weight()
    assert already_on_grid(made, 32)
    assert torch.allclose(round_to_nearest(made, 32).weight(), made, atol=1e-3)
    assert not already_on_grid(made, 128)
    assert not already_on_grid(weight, 32)


def test_awq_scales_what_matters() -> None:
    """One input channel a hundred times larger than the rest: its weights get finer steps."""
    weight, x = drawn(32, 64), drawn(300, 64, seed=1)
    x[:, 7] *= 100
    best = awq.choose_scales([weight], x, 64)
    assert best.alpha > 0 and best.error < 0.5 * best.plain_error
    assert int(best.scales.argmax()) == 7
    even = awq.choose_scales([weight], drawn(300, 64, seed=2), 64)
    assert even.error <= even.plain_error


def test_awq_folds_the_scales_without_changing_the_model(
    weights: dict[str, torch.Tensor], inputs: dict[str, torch.Tensor]
) -> None:
    folded, grids = awq.quantise(TINY, weights, inputs, 32)
    text = list(range(40, 90))
    before, after = (Pass(TINY, w).logits(text) for w in (weights, folded))
    assert torch.allclose(before, after, atol=2e-3)
    assert set(grids) == set(matrices(TINY))
    assert not torch.equal(
        folded["model.layers.0.input_layernorm.weight"],
        weights["model.layers.0.input_layernorm.weight"],
    )


def test_gptq_moves_the_rest_by_the_definition() -> None:
    """Against the plain algorithm: after each column the remaining ones solve least squares anew.

    Optimal Brain Quantisation in fixed order: rest += -err / inv[i, i] * inv[i, later], with inv
    the inverse of H over the columns not yet rounded. Cholesky is only a faster way to that.
    """
    weight, x = drawn(4, 12), drawn(100, 12, seed=1) @ drawn(12, 12, seed=2)
    grid = gptq.quantise(weight, x, 12, damp=0.01)
    gram = x.double().T @ x.double()
    gram += torch.eye(12) * (0.01 * gram.diagonal().mean() + 1e-8)
    rest = weight.double().clone()
    scale, zero = grid.scales.double()[:, 0], grid.zeros.double()[:, 0]
    for at in range(12):
        q = ((rest[:, at] / scale).round() + zero).clamp(0, 15)
        assert torch.equal(q.int(), grid.q[:, at])
        err = rest[:, at] - (q - zero) * scale
        inverse = torch.linalg.inv(gram[at:, at:])
        rest[:, at:] -= err[:, None] * inverse[0] / inverse[0, 0]


def test_gptq_beats_rounding_where_inputs_are_correlated() -> None:
    weight, x = drawn(32, 64), drawn(400, 8, seed=1) @ drawn(8, 64, seed=2)
    x += 0.1 * drawn(400, 64, seed=3)

    def error(found: torch.Tensor) -> float:
        return float((x @ (found - weight).T).square().sum())

    plain, moved = round_to_nearest(weight, 32).weight(), gptq.quantise(weight, x, 32).weight()
    assert error(moved) < 0.5 * error(plain)
    with pytest.raises(InputError, match=r"inputs are \[400, 63\], the weight has 64"):
        gptq.quantise(weight, x[:, :63], 32)
    dead = x.clone()
    dead[:, 5] = 0
    assert bool(gptq.quantise(weight, dead, 32).weight().isfinite().all())


def test_fp8_weights_and_activations(
    weights: dict[str, torch.Tensor], inputs: dict[str, torch.Tensor]
) -> None:
    """A static scale saturates what the calibration text did not show; a dynamic one cannot."""
    weight = weights["model.layers.0.mlp.up_proj.weight"]
    assert float(((round_weight(weight) - weight) / weight).abs().median()) < 0.04
    name = "model.layers.0.mlp.up_proj"
    x = inputs[name]
    fixed = static(input_scales(inputs))
    for hook in (dynamic, fixed):
        assert float((hook(name, x) - x).norm() / x.norm()) < 0.05
    far = 50 * x
    assert float((dynamic(name, far) - far).norm() / far.norm()) < 0.05
    assert float((fixed(name, far) - far).norm() / far.norm()) > 0.2


@pytest.mark.parametrize("layout", ["awq", "gptq"])
@pytest.mark.parametrize("least_zero", [0, 1])
def test_int4_files_load_back_bit_exact(
    layout: str,
    least_zero: int,
    weights: dict[str, torch.Tensor],
    tmp_path,  # type: ignore[no-untyped-def]
) -> None:
    """Zero points of 0 cannot be stored less one: that file must say so, or all shift by 16."""
    grids = {n: round_to_nearest(weights[n + ".weight"], 32) for n in matrices(TINY)}
    if least_zero:
        grids = {n: type(g)(g.q, g.scales, g.zeros.clamp(min=1), 32) for n, g in grids.items()}
    else:
        some = next(iter(grids))
        g = grids[some]
        zeros = g.zeros.clone()
        zeros[0, 0] = 0
        grids[some] = type(g)(g.q, g.scales, zeros, 32)
    save_int4(tmp_path, HF, weights, grids, layout)
    config, loaded, _ = load_quantised(tmp_path)
    assert config.num_layers == 2
    for name, grid in grids.items():
        assert torch.equal(loaded[name + ".weight"], grid.weight()), name
    kept = "model.embed_tokens.weight"
    assert torch.equal(loaded[kept], weights[kept].half().float())
    logits = Pass(config, loaded).logits(list(range(30)))
    wanted = Pass(TINY, {**loaded, **in_place(loaded, grids)}).logits(list(range(30)))
    assert torch.equal(logits, wanted)


def test_the_engine_loads_them(weights, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """By the same call as any other folder: a user does not say which format a checkpoint has."""
    grids = {n: round_to_nearest(weights[n + ".weight"], 32) for n in matrices(TINY)}
    save_int4(tmp_path, HF, weights, grids, "gptq")
    llm = load_llm(tmp_path)
    rules = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    ids = llm.generate([list(range(40, 60))], rules)[0].token_ids
    loaded = load_quantised(tmp_path)[1]
    logits = Pass(TINY, loaded).logits(list(range(40, 60)) + ids)
    assert logits[19:-1].argmax(1).tolist() == ids


def test_act_order_is_followed(weights: dict[str, torch.Tensor], tmp_path) -> None:  # type: ignore[no-untyped-def]
    """g_idx in another order than the inputs', as GPTQ with desc_act writes it."""
    from safetensors.torch import load_file, save_file

    grids = {n: round_to_nearest(weights[n + ".weight"], 32) for n in matrices(TINY)}
    save_int4(tmp_path, HF, weights, grids, "gptq")
    tensors = load_file(tmp_path / FILE)
    name = "model.layers.0.mlp.up_proj"
    tensors[name + ".g_idx"] = tensors[name + ".g_idx"].flip(0)
    save_file(tensors, tmp_path / FILE)
    loaded = load_quantised(tmp_path)[1][name + ".weight"]
    grid = grids[name]
    where = torch.arange(64).flip(0) // 32
    expected = (grid.q - grid.zeros[:, where]) * grid.scales[:, where]
    assert torch.equal(loaded, expected)
    tensors[name + ".g_idx"] += 5
    save_file(tensors, tmp_path / FILE)
    with pytest.raises(InputError, match=r"g_idx names groups outside 0..1"):
        load_quantised(tmp_path)


def test_fp8_files(
    weights: dict[str, torch.Tensor],
    inputs: dict[str, torch.Tensor],
    tmp_path,  # type: ignore[no-untyped-def]
) -> None:
    names, found = matrices(TINY), input_scales(inputs)
    save_fp8(tmp_path, HF, weights, names, found)
    _, loaded, scales = load_quantised(tmp_path)
    for name in names:
        assert torch.equal(loaded[name + ".weight"], round_weight(weights[name + ".weight"]))
        assert scales[name] == pytest.approx(found[name], rel=1e-6)


def spoilt(folder, change):  # type: ignore[no-untyped-def]
    """The checkpoint in ``folder`` with its tensors or its config changed."""
    from safetensors.torch import load_file, save_file

    tensors, config = load_file(folder / FILE), json.loads((folder / "config.json").read_text())
    change(tensors, config["quantization_config"])
    save_file(tensors, folder / FILE)
    (folder / "config.json").write_text(json.dumps(config))


UP = "model.layers.1.mlp.up_proj"


def no_scales(tensors, quant):  # type: ignore[no-untyped-def]
    del tensors[UP + ".scales"]


def other_group(tensors, quant):  # type: ignore[no-untyped-def]
    quant["group_size"] = 64


def float_words(tensors, quant):  # type: ignore[no-untyped-def]
    tensors[UP + ".qweight"] = tensors[UP + ".qweight"].float()


def eight_bits(tensors, quant):  # type: ignore[no-untyped-def]
    quant["bits"] = 8


def other_method(tensors, quant):  # type: ignore[no-untyped-def]
    quant["quant_method"] = "bitsandbytes"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (no_scales, rf"no tensor {UP}.scales; quant_method is awq"),
        (other_group, r"96 inputs and 3 groups, group_size says 64; mend group_size"),
        (float_words, rf"{UP}.qweight is torch.float32; it must be torch.int32"),
        (eight_bits, r"8 bits, version gemm; built here: 4 bits"),
        (other_method, r"quant_method 'bitsandbytes'; known here: awq, gptq, fp8"),
    ],
    ids=["scale", "group", "dtype", "bits", "method"],
)
def test_a_spoilt_checkpoint_says_what_is_wrong(
    change, says, weights: dict[str, torch.Tensor], tmp_path
) -> None:  # type: ignore[no-untyped-def]
    grids = {n: round_to_nearest(weights[n + ".weight"], 32) for n in matrices(TINY)}
    save_int4(tmp_path, HF, weights, grids)
    spoilt(tmp_path, change)
    with pytest.raises(InputError, match=says):
        load_quantised(tmp_path)


def no_fp8_scale(tensors, quant):  # type: ignore[no-untyped-def]
    del tensors[UP + ".weight_scale"]


def half_codes(tensors, quant):  # type: ignore[no-untyped-def]
    tensors[UP + ".weight"] = tensors[UP + ".weight"].float().half()


def said_static(tensors, quant):  # type: ignore[no-untyped-def]
    quant["activation_scheme"] = "static"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (no_fp8_scale, rf"no tensor {UP}.weight_scale"),
        (half_codes, rf"{UP}.weight is torch.float16; it must be float8_e4m3fn"),
        (said_static, r"input_scale; static activations need one"),
    ],
    ids=["scale", "dtype", "static"],
)
def test_a_spoilt_fp8_checkpoint(change, says, weights: dict[str, torch.Tensor], tmp_path) -> None:  # type: ignore[no-untyped-def]
    save_fp8(tmp_path, HF, weights, matrices(TINY))
    spoilt(tmp_path, change)
    with pytest.raises(InputError, match=says):
        load_quantised(tmp_path)


def test_what_the_layouts_cannot_hold(weights: dict[str, torch.Tensor], tmp_path) -> None:  # type: ignore[no-untyped-def]
    """SmolLM2's 576 inputs in groups of 128 leave half a group: engines refuse such files."""
    name = matrices(TINY)[0]
    ragged = {name: round_to_nearest(weights[name + ".weight"], 48)}
    with pytest.raises(InputError, match=r"groups that divide the inputs"):
        save_int4(tmp_path, HF, weights, ragged)
    assert not (tmp_path / FILE).exists()
    with pytest.raises(InputError, match="give awq or gptq"):
        save_int4(tmp_path, HF, weights, ragged, "fp8")
    with pytest.raises(InputError, match=r"no \.safetensors file"):
        (tmp_path / "config.json").write_text(
            json.dumps(HF | {"quantization_config": {"quant_method": "awq"}})
        )
        load_quantised(tmp_path)
