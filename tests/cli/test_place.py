"""``minilab place``: a table and an object of the same search, and wrong options in one line."""

from __future__ import annotations

PLACE = (
    *("place", "--trace", "synthetic", "--limit", 40, "--prompt-tokens", 1000, "--gpus", 2),
    *("--tps", 1, "--slo", "ttft=0.5,itl=0.05", "--tolerance", 0.3, "--no-progress"),
)


def test_table_and_object_tell_the_same(cli):
    rows = cli(*PLACE, "--json").json["rows"]
    lines = cli(*PLACE).out.splitlines()[1:]
    assert [line.split("  ")[0] for line in lines] == [row["placement"] for row in rows]
    assert {row["placement"] for row in rows} == {"1 x tp1", "1 x tp1 + 1 x tp1"}
    assert rows[0]["rate_per_gpu"] >= rows[1]["rate_per_gpu"] > 0


def test_wrong_options_are_refused(refused, tmp_path):
    assert "--rate is what the search varies" in refused(*PLACE, "--rate", 3)
    assert "name one" in refused(*PLACE, "--out", tmp_path / "x.csv")
    assert "required: --slo" in refused("place", "--trace", "synthetic")
