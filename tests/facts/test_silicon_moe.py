"""Exchange and MLA decode against kernels that AIConfigurator timed: nothing is fitted on them.

Only the starts of normal kernels were taken from this data; bandwidths and E_MLA were not.
"""

import pytest

from minilab.facts.all_to_all import AllToAll, Fabric
from minilab.facts.hardware import get_gpu
from minilab.facts.mla_cost import mla_time
from minilab.facts.models import get_model

pandas = pytest.importorskip("pandas", reason="needs pandas")
pytest.importorskip("pyarrow", reason="needs pyarrow")
V3 = get_model("deepseek-v3")


@pytest.fixture
def timed(data_folder):
    folder = data_folder("aiconfigurator-silicon")

    def read(gpu, table):
        return pandas.read_parquet(folder / f"{gpu}_sxm__vllm0.24__{table}_perf.parquet")

    return read


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_mla_decode_by_heads(timed, gpu):
    """Seconds per context token: 16 and 64 heads read, 128 compute; each within 15 %."""
    rows = timed(gpu, "mla_generation_module")
    rows = rows[(rows.gemm_type == "bfloat16") & (rows.kv_cache_dtype == "bfloat16")]
    rows = rows[(rows.batch_size == 128) & rows.step.isin([16_384, 131_072])]
    milliseconds = rows.pivot_table(index="step", columns="num_heads", values="latency")
    slopes = (milliseconds.loc[131_072] - milliseconds.loc[16_384]) / (131_072 - 16_384) / 128e3
    for heads in (16, 64, 128):
        time = mla_time(V3, get_gpu(gpu), tp=128 // heads, e_mem=0.96)
        ours = max(time.read, time.compute) / V3.layers
        assert ours == pytest.approx(slopes[heads], rel=0.15)
        assert (time.compute > time.read) == (heads == 128)
    if gpu == "h200":  # reads faster, so that compute shows: half as long again with 128 heads
        assert slopes[128] > 1.4 * slopes[16]


def ratios(timed, gpu, backend, kernels, dtype, least_tokens=1):
    """Computed over timed, of dispatch and of combine, EP8 in one node, top-8."""
    rows = timed(gpu, "moe_a2a")
    rows = rows[(rows.topk == 8) & (rows.comm_backend == backend)]
    found = {"dispatch": [], "combine": []}
    for row in rows[rows.num_tokens >= least_tokens].itertuples():
        wires = AllToAll(8, row.hidden_size, 8, Fabric.of(get_gpu(gpu)), dtype, kernels)
        seconds = wires.parts(row.num_tokens)[row.phase == "combine"]
        found[row.phase].append(1e6 * seconds / row.latency)
    return {phase: sorted(values)[len(values) // 2] for phase, values in found.items()}


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_low_latency_kernels_in_one_node(timed, gpu):
    """In the median within a third at 64 tokens or more; their start is later than DeepEP's."""
    middle = ratios(timed, gpu, "deepep_ll", "low-latency", "bf16", least_tokens=64)
    assert all(0.67 < ratio < 1.33 for ratio in middle.values())


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_normal_kernels_in_one_node(timed, gpu):
    """In the median within a third, from 16 to 65,536 tokens."""
    middle = ratios(timed, gpu, "deepep_ht", "normal", "fp8")
    assert all(0.67 < ratio < 1.33 for ratio in middle.values())
