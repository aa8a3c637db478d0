"""minilab grade: right marks whatever a submission does, nothing hangs, edited checks are seen.

Submissions are made from lab 00: its exercise cells, solved or not, and its check cells.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from minilab.cli.main import main
from minilab.facts.errors import InputError
from minilab.lab.grade import Limits, grade_folder
from minilab.lab.grade.marks import Mark, read
from minilab.lab.grade.submission import beside, guess_lab, touches

ROOT = Path(__file__).parents[2]
LABS = ROOT / "labs"
IDS = ("0.1", "0.2", "0.3", "0.4")
LIMITS = Limits(cell_seconds=10.0, seconds=120.0, memory=3 << 30)
Change = Callable[[list[nbformat.NotebookNode]], None]


def cells_of(folder: str) -> dict[str, nbformat.NotebookNode]:
    notebook = nbformat.read(ROOT / folder / "00_from_engine.ipynb", as_version=4)
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


SOLVED, HOLES = cells_of("solutions"), cells_of("labs")
CHECKS = {
    re.findall(r'lab\.check\("(.+?)"', cell.source)[0]: key
    for key, cell in HOLES.items()
    if "lab.check(" in cell.source
}
ANSWERS = dict(
    zip(IDS, [k for k, c in HOLES.items() if "NotImplementedError(" in c.source], strict=True)
)


def at(cells: list[nbformat.NotebookNode], key: str) -> nbformat.NotebookNode:
    return next(cell for cell in cells if cell.id == key)


def submission(path: Path, solved: tuple[str, ...] = IDS, change: Change | None = None) -> None:
    cells = []
    for number in IDS:
        answer = (SOLVED if number in solved else HOLES)[ANSWERS[number]]
        cells += [nbformat.from_dict(dict(c)) for c in (answer, HOLES[CHECKS[number]])]
    if change is not None:
        change(cells)
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)


def graded(folder: Path, limits: Limits = LIMITS, **more: object) -> dict[str, list[Mark]]:
    found = grade_folder(
        folder, folder.parent / "marks.csv", LABS, limits=limits, progress=False,
        tell=lambda _: None, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    by_student: dict[str, list[Mark]] = {}
    for mark in found:
        by_student.setdefault(mark.student, []).append(mark)
    return by_student


def marks_of(found: list[Mark]) -> list[int]:
    return [next(m.mark for m in found if m.exercise == number) for number in IDS]


def insert(source: str, before: str) -> Change:
    def change(cells: list[nbformat.NotebookNode]) -> None:
        where = cells.index(at(cells, before))
        cells.insert(where, new_code_cell(source))

    return change


def edit_check(cells: list[nbformat.NotebookNode]) -> None:
    at(cells, CHECKS["0.2"]).source = 'print("Exercise 0.2: passed")'


def test_marks_edited_checks_and_going_on(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "class"
    submission(folder / "ada" / "00_from_engine.ipynb")
    submission(folder / "bob" / "00_from_engine.ipynb", ("0.1", "0.3"))
    submission(folder / "cyd_00.ipynb", ("0.1",), edit_check)
    found = graded(folder)
    assert {name: marks_of(some) for name, some in found.items()} == {
        "ada": [1, 1, 1, 1],
        "bob": [1, 0, 1, 0],
        "cyd": [1, 0, 0, 0],
    }
    assert {m.exercise: m.note for m in found["cyd"] if m.note} == {"0.2": "check edited"}
    assert {m.verdict for m in found["bob"] if not m.mark} == {"not done yet"}
    out = tmp_path / "marks.csv"
    assert sorted(map(repr, read(out))) == sorted(repr(m) for some in found.values() for m in some)
    # A second call runs only what changed, and one that was changed is graded anew.
    ada = out.read_text()
    submission(folder / "bob" / "00_from_engine.ipynb", ("0.1", "0.2", "0.3"))
    told: list[str] = []
    again = grade_folder(folder, out, LABS, limits=LIMITS, progress=False, tell=told.append)
    assert [line.partition(":")[0] for line in told] == ["bob/00_from_engine.ipynb"]
    assert sum(m.mark for m in again if m.student == "bob") == 3
    assert [x for x in ada.splitlines() if x.startswith("ada")] == [
        x for x in out.read_text().splitlines() if x.startswith("ada")
    ]
    code = main(["grade", str(folder), "-o", str(out), "--labs", str(LABS), "--no-progress"])
    assert code == 0 and "3 notebooks, 8 of 12 exercises pass; 1 to look at" in (
        capsys.readouterr().out
    )


HOSTILE: dict[str, tuple[Change, list[int], str]] = {
    "solved": (lambda cells: None, [1, 1, 1, 1], ""),
    "loop": (insert("while True:\n    pass", CHECKS["0.2"]), [1, 1, 1, 1], ""),
    "slow": (
        lambda cells: at(cells, ANSWERS["0.2"]).update(
            source="def new_blocks(requests, block_size):\n    while True:\n        pass"
        ),
        [1, 0, 1, 1],
        "",
    ),
    "hog": (
        insert("kept = []\nwhile True:\n    kept.append(bytearray(10**8))", CHECKS["0.3"]),
        [1, 1, 1, 1],
        "",
    ),
    "syntax": (
        lambda cells: at(cells, ANSWERS["0.2"]).update(source="def new_blocks(requests:"),
        [1, 0, 1, 1],
        "",
    ),
    "edited": (
        lambda cells: at(cells, CHECKS["0.4"]).update(source='lab.check("0.4", slot)'),
        [1, 1, 1, 1],
        "check edited",
    ),
    "gone": (lambda cells: cells.remove(at(cells, CHECKS["0.1"])), [1, 1, 1, 1], "check missing"),
    "forged": (
        lambda cells: at(cells, ANSWERS["0.1"]).update(
            source="from minilab import lab\nfrom minilab.lab.progress import session\n"
            "session().record('0.1', '', 'passed', '')\n"
            "lab.check = lambda *_: session().record('0.1', '', 'passed', '')"
        ),
        [0, 1, 1, 1],
        "cell 0 imports minilab.lab.progress.session; cell 0 sets lab.check",
    ),
    "leaves": (insert("import os\nos._exit(0)", ANSWERS["0.3"]), [1, 1, 0, 0], ""),
    "forks": (
        insert(
            "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', "
            "'import time; time.sleep(987)'])",
            ANSWERS["0.2"],
        ),
        [1, 1, 1, 1],
        "",
    ),
}


@pytest.mark.slow
def test_ten_submissions_that_do_their_worst(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    for name, (change, _, _) in HOSTILE.items():
        submission(folder / name / "00_from_engine.ipynb", change=change)
    begin = time.monotonic()
    found = graded(folder)
    spent = time.monotonic() - begin
    for name, (_, wanted, note) in HOSTILE.items():
        assert marks_of(found[name]) == wanted, (name, found[name])
        notes = {m.note for m in found[name] if m.note}
        assert notes == ({note} if note else set()), (name, notes)
    assert spent < 120 * len(HOSTILE)
    said = {(m.student, m.exercise): m.said for some in found.values() for m in some}
    assert "SyntaxError" in said["syntax", "0.2"] and "NameError" in said["syntax", "0.2"]
    assert "left its process early" in said["leaves", "0.3"]
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "time.sleep(987)" not in running.stdout, "what a submission started is still there"


@pytest.mark.slow
def test_a_loop_that_swallows_every_interruption_ends_with_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    source = "while True:\n    try:\n        while True:\n            pass\n"
    source += "    except BaseException:\n        pass"
    submission(folder / "stubborn_00.ipynb", change=insert(source, ANSWERS["0.3"]))
    begin = time.monotonic()
    found = graded(folder, Limits(cell_seconds=2.0, seconds=45.0, memory=3 << 30))
    assert time.monotonic() - begin < 90
    assert marks_of(found["stubborn"]) == [1, 1, 0, 0]
    assert "stopped at the limit of 45 s in cell 4" in {m.said for m in found["stubborn"]}


def test_what_is_no_notebook_is_a_row_not_a_crash(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "eve_00_x.ipynb").write_text("this is no notebook")
    nbformat.write(new_notebook(cells=[new_code_cell("1 + 1")]), folder / "fay.ipynb")
    found = graded(folder)
    assert {m.verdict for some in found.values() for m in some} == {"no notebook"}
    assert "no valid notebook" in found["eve"][0].said
    assert "of which lab?" in found["fay"][0].said
    (told,) = [m for m in graded(folder, lab="00", again=True)["eve"] if m.exercise == "0.1"]
    assert told.mark == 0 and told.lab == "00"


def test_bad_calls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        graded(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no notebook in it"):
        graded(tmp_path / "empty")
    submission(tmp_path / "class" / "a_00.ipynb")
    (tmp_path / "marks.csv").write_text("name,mark\nada,one\n")
    with pytest.raises(InputError, match="no table of marks"):
        graded(tmp_path / "class")
    assert (tmp_path / "marks.csv").read_text() == "name,mark\nada,one\n"


def test_the_lab_is_told_by_the_checks_before_the_name() -> None:
    assert guess_lab(Path("x_02_a.ipynb"), ['lab.check("3a.1", f)']) == "03a"
    assert guess_lab(Path("ada_03b_tiers.ipynb"), []) == "03b"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("lab.predict('0.a', 1, 0, 2)", []),
        ("import minilab.lab.exercises.lab00", ["imports minilab.lab.exercises.lab00"]),
        ("from minilab.lab.exercise import find", ["imports minilab.lab.exercise.find"]),
        ("lab.check = print", ["sets lab.check"]),
        ("def broken(:", []),
    ],
)
def test_what_touches_the_checker_is_told(source: str, found: list[str]) -> None:
    assert touches(source) == found


def test_an_unchanged_lab_has_no_edited_check() -> None:
    """Every lab against itself: a check cell that is not found again would alarm for everybody."""
    for path in sorted(LABS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        found = beside(notebook, notebook, path.name.partition("_")[0])
        assert not found.checks and not found.remarks, path.name
        assert any(cell.checks for cell in found.cells), path.name


def test_a_formula_in_a_name_stays_text(tmp_path: Path) -> None:
    from minilab.lab.grade import marks

    row = Mark("=1+1.ipynb", "=1+1", "00", "0.1", "core", 0, "not yet", "-x", "", "ab")
    marks.write(tmp_path / "m.csv", [row])
    assert (tmp_path / "m.csv").read_text().splitlines()[1].startswith("'=1+1.ipynb,'=1+1,")


def test_the_worker_needs_nothing_that_the_grader_has_imported() -> None:
    """It starts as a module of its own; a heavy import there is paid once for each submission."""
    code = "import sys, minilab.lab.grade.worker; print('matplotlib' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert told.stdout.strip() == "False"
