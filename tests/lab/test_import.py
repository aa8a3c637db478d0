"""from minilab import lab: light, and each name is the function, whatever was imported first."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minilab import lab


def fresh(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_the_import_brings_no_heavy_module() -> None:
    heavy = "numpy matplotlib IPython ipywidgets nbformat nbclient torch pandas"
    code = "import sys; from minilab import lab; print(*sys.modules)"
    assert set(heavy.split()).isdisjoint(fresh(code).split())


@pytest.mark.parametrize("first", ["check", "predict", "show", "report", "hints", "check_notebook"])
def test_a_name_is_the_function_also_when_its_module_was_imported_first(first: str) -> None:
    code = f"""if True:
        import minilab.lab.{first}
        from minilab import lab
        import minilab.lab.check, minilab.lab.predict, minilab.lab.show, minilab.lab.report
        print(all(callable(getattr(lab, name)) for name in
              ("check", "predict", "show", "report", "env", "hint", "outcome", "calibration")))
    """
    assert fresh(code) == "True"


def test_everything_promised_is_there_and_a_typo_is_told() -> None:
    assert all(hasattr(lab, name) for name in lab.__all__)
    with pytest.raises(AttributeError, match="environment"):
        lab.chekc  # noqa: B018
