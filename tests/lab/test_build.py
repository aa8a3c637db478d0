"""solutions -> labs: the lab is the solution with holes, the same bytes each time, or an error."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from minilab.facts.errors import InputError
from minilab.lab.build import build, differences, main
from minilab.lab.notebook_text import without_conclusion

ROOT = Path(__file__).parents[2]

FUNCTION = '''\
def attainment(ttft, slo):
    """Share of good requests."""
    # BEGIN SOLUTION 90.1
    good = [value <= slo for value in ttft]
    return sum(good) / len(good)
    # END SOLUTION
'''
HOLE = '''\
def attainment(ttft, slo):
    """Share of good requests."""
    ...
    raise NotImplementedError("Exercise 90.1")
'''


def code(source: str, cell_id: str, **metadata: Any) -> Any:
    cell = new_code_cell(source, id=cell_id, metadata=metadata)
    cell.outputs = [new_output("stream", name="stdout", text="an output\n")]
    cell.execution_count = 7
    return cell


def solution() -> Any:
    return new_notebook(
        metadata={"kernelspec": {"name": "mine", "display_name": "My env"}, "language_info":
                  {"name": "python", "version": "3.99"}, "widgets": {"state": 1}},
        cells=[
            new_markdown_cell("# Lab 90", id="title"),
            code("import math", "imports", ExecuteTime={"at": "noon"}),
            code(FUNCTION, "function"),
            code('# NBVAL_CHECK_OUTPUT\nlab.check("90.1", attainment)', "check-1"),
            new_markdown_cell("## Exercise 90.2: the tail", id="heading"),
            code("# BEGIN SOLUTION\np99 = max\n# END SOLUTION\nlab.check('90.2', p99)", "tail"),
            new_markdown_cell("Why: the answer.", id="why", metadata={"tags": ["solution-only"]}),
            code("if True:\n\t# BEGIN SOLUTION\n\tx = 1\n\t# END SOLUTION", "deep",
                 tags=["exercise-90.D1", "gpu"]),
        ],
    )  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "solutions" / "evidence").mkdir(parents=True)
    (tmp_path / "repo.toml").write_text('repo = "ada/serving"\ntag = "v0.6.0"\n')
    nbformat.write(solution(), tmp_path / "solutions" / "90_demo.ipynb")
    nbformat.write(new_notebook(), tmp_path / "solutions" / "evidence" / "90_paper.ipynb")
    return tmp_path


def lab_of(root: Path) -> Any:
    return nbformat.read(root / "labs" / "90_demo.ipynb", as_version=4)


def sources(notebook: Any) -> dict[str, str]:
    return {cell.id: cell.source for cell in notebook.cells}


# --- what becomes of a solution ------------------------------------------------------------------


def test_regions_become_holes_named_by_marker_heading_or_tag(root: Path) -> None:
    build(root)
    found = sources(lab_of(root))
    assert found["function"] == HOLE
    assert found["tail"] == (
        "...\nraise NotImplementedError(\"Exercise 90.2\")\nlab.check('90.2', p99)"
    )
    assert found["deep"] == 'if True:\n\t...\n\traise NotImplementedError("Exercise 90.D1")'


def test_outputs_counts_and_private_metadata_are_gone_ids_stay(root: Path) -> None:
    build(root)
    lab = lab_of(root)
    nbformat.validate(lab)
    assert list(sources(lab)) == [
        "title", "colab-setup", "imports", "function", "check-1", "heading", "tail", "deep",
    ]  # fmt: skip
    for cell in lab.cells:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
        assert set(cell.metadata) <= {"tags"}
    assert lab.cells[-1].metadata.tags == ["exercise-90.D1", "gpu"]
    assert lab.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def test_the_lab_without_its_holes_is_a_subset_of_the_solution(root: Path) -> None:
    build(root)
    solved = sources(nbformat.read(root / "solutions" / "90_demo.ipynb", as_version=4))
    for cell_id, source in sources(lab_of(root)).items():
        kept = [line for line in source.split("\n") if not is_hole(line)]
        assert is_subsequence(kept, solved[cell_id].split("\n")), cell_id
        if cell_id not in ("check-1", "tail", "title", "heading"):
            ast.parse(source)  # a hole leaves valid Python behind


def is_hole(line: str) -> bool:
    return line.strip() == "..." or line.strip().startswith("raise NotImplementedError(")


def is_subsequence(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(line in rest for line in part)


def test_nothing_of_a_solution_is_left_in_the_lab(root: Path) -> None:
    build(root)
    text = (root / "labs" / "90_demo.ipynb").read_text()
    for secret in ("sum(good)", "p99 = max", "x = 1", "the answer", "BEGIN SOLUTION", "an output"):
        assert secret not in text, secret


def test_evidence_makes_no_lab(root: Path) -> None:
    build(root)
    assert [p.name for p in (root / "labs").iterdir()] == ["90_demo.ipynb"]


def test_both_notebooks_have_the_same_first_cell_and_the_solution_keeps_its_outputs(
    root: Path,
) -> None:
    build(root)
    solved = nbformat.read(root / "solutions" / "90_demo.ipynb", as_version=4)
    first = sources(solved)["colab-setup"]
    assert first == sources(lab_of(root))["colab-setup"]
    assert 'REPO, TAG = "ada/serving", "v0.6.0"' in first
    assert [c.id for c in solved.cells][:3] == ["title", "colab-setup", "imports"]
    outputs = Counter(len(cell.get("outputs", [])) for cell in solved.cells)
    assert outputs[1] == 5 and solved.metadata.kernelspec.name == "mine"


# --- the same each time --------------------------------------------------------------------------


def test_building_twice_writes_nothing_new(root: Path) -> None:
    assert len(build(root)) == 2
    before = {path: path.read_bytes() for path in root.rglob("*.ipynb")}
    assert build(root) == []
    assert {path: path.read_bytes() for path in root.rglob("*.ipynb")} == before


def test_the_bytes_do_not_depend_on_the_process(root: Path) -> None:
    build(root)
    before = (root / "labs" / "90_demo.ipynb").read_bytes()
    (root / "labs" / "90_demo.ipynb").unlink()
    command = [sys.executable, "-m", "minilab.lab.build", "--root", str(root)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "labs/90_demo.ipynb: written\n" and found.stderr == ""
    assert (root / "labs" / "90_demo.ipynb").read_bytes() == before


def edit(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_check_writes_nothing_and_says_what_differs(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check", "--root", str(root)]) == 1
    assert "labs/90_demo.ipynb: missing" in capsys.readouterr().out
    assert not (root / "labs").exists()
    assert main(["--root", str(root)]) == 0
    assert main(["--check", "--root", str(root)]) == 0

    def by_hand(content: dict[str, Any]) -> None:
        content["cells"][2]["source"] = "import cmath"
        del content["cells"][3]
        content["cells"].append({**content["cells"][0], "id": "mine"})

    edit(root / "labs" / "90_demo.ipynb", by_hand)
    (root / "labs" / "91_old.ipynb").write_text("{}")
    capsys.readouterr()
    assert main(["--check", "--root", str(root)]) == 1
    out = capsys.readouterr().out
    assert "1 cells changed (imports); 1 cells missing (function)" in out
    assert "1 cells not in the solution (mine)" in out
    assert "labs/91_old.ipynb: has no solution" in out and "make labs" in out


def test_another_stamp_is_a_difference_in_both_notebooks(root: Path) -> None:
    build(root)
    (root / "repo.toml").write_text('repo = "ada/serving"\ntag = "v0.7.0"\n')
    assert [line.split(":")[0] for line in differences(root)] == [
        "labs/90_demo.ipynb", "solutions/90_demo.ipynb",
    ]  # fmt: skip
    build(root)
    assert differences(root) == []


def test_other_bytes_of_the_same_cells_are_a_difference(root: Path) -> None:
    build(root)
    edit(root / "labs" / "90_demo.ipynb", lambda content: None)
    assert differences(root) == ["labs/90_demo.ipynb: the same cells in another order or form"]


# --- what can't be built --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no valid notebook"),
        ('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}', "no cell ids"),
        (
            '{"cells": [{"id": "a"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
            "no valid",
        ),
    ],
)
def test_a_broken_or_old_notebook_is_one_line(text: str, says: str, root: Path) -> None:
    (root / "solutions" / "90_demo.ipynb").write_text(text)
    with pytest.raises(InputError, match=says) as error:
        build(root)
    assert "\n" not in str(error.value)


def test_no_solutions_and_no_nbformat_are_told(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(tmp_path / "elsewhere")]) == 2
    assert "--root" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "nbformat", None)
    assert main(["--root", str(root)]) == 2
    error = capsys.readouterr().err
    assert "nbformat is not installed" in error and error.count("\n") == 1


def test_a_reports_conclusion_is_left_to_the_learner() -> None:
    source = (
        'title = "é · 90"\nlab.report("90", conclusion="It wins é "\n    "and loses.", more=1)\n'
        'other(conclusion=title)\nprint("kept")'
    )
    assert without_conclusion(source) == (
        'title = "é · 90"\nlab.report("90", conclusion="", more=1)\n'
        'other(conclusion="")\nprint("kept")'
    )
    assert without_conclusion("%magic\nx = 1") == "%magic\nx = 1"


@pytest.mark.parametrize("lab", sorted((ROOT / "labs").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_lab_gives_its_conclusion_away(lab: Path) -> None:
    cells = nbformat.read(lab, as_version=4).cells
    (report,) = [cell.source for cell in cells if "lab.report(" in cell.source]
    assert 'conclusion="",' in report
