"""Chapter 6's regime maps: the stored file is what the code draws, and says what the page says."""

import json
from pathlib import Path

import pytest

from minilab.facts.errors import InputError
from minilab.facts.slo import goodput
from minilab.lab import moe_maps
from minilab.sim.regime_map import LOSES, NEITHER, WINS, RegimeMap

FILE = Path(__file__).parents[2] / "benchmarks" / "results" / "moe_maps.json"


@pytest.fixture(scope="module")
def stored():
    data = json.loads(FILE.read_text())
    return {name: RegimeMap.from_dict(found) for name, found in data["maps"].items()}


@pytest.mark.parametrize("wire", [moe_maps.WIRES[0], moe_maps.WIRES[-1]])
def test_stored_points_come_out_again(stored, wire):
    """A map drawn before somebody changed the cost would go on being shown."""
    found = stored["parallel"]
    users = found.x_values[0]
    cell = found.cells[found.y_values.index(wire)][0]
    sides = (moe_maps.spread, cell.a), (moe_maps.sliced, cell.b)
    for side, value in sides:
        experiment = side(users, wire).with_(seed=0)
        good = goodput(experiment.run(), moe_maps.LIMITS, gpus=experiment.gpus)
        assert good.goodput_per_gpu == pytest.approx(value.value, rel=1e-6)


def test_expert_parallelism_loses_on_few_users_and_wins_on_many(stored):
    for wire, row in zip(stored["parallel"].y_values, stored["parallel"].verdicts, strict=True):
        assert row[0] == LOSES
        if wire != moe_maps.WIRES[0]:
            assert row[-1] == WINS
    assert WINS not in stored["parallel"].verdicts[0]  # the slow, jammed network: never


def test_fp8_dispatch_matters_where_the_wire_does(stored):
    """More points won on the slow wire than inside one NVLink domain; lost nowhere."""
    wins = [row.count(WINS) for row in stored["dispatch"].verdicts]
    assert wins[0] > wins[-1]
    assert all(LOSES not in row for row in stored["dispatch"].verdicts)


def test_mla_wins_with_a_rank_per_gpu_and_loses_in_slices(stored):
    """Eight KV heads split over 8 GPUs, a latent does not."""
    ranks, slices = (stored[f"latent_{name}"].counts() for name in ("ranks", "slices"))
    assert ranks[WINS] >= 4 and ranks[LOSES] == 0
    assert slices[LOSES] >= 3 and slices[WINS] == 0
    assert slices[NEITHER] > ranks[NEITHER]


def test_wires_are_named_fields():
    assert moe_maps.wired("roce-100, half left") == {"link": "roce-100", "congestion": 0.5}
    assert moe_maps.wired("one NVLink domain") == {"gpus_per_node": 64}
    with pytest.raises(InputError, match="link"):
        moe_maps.spread(8, "pigeon").check()
