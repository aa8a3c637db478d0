"""The workflow that publishes the site: judged from its text, since only its host can run it.

What it runs is what readers run; that the site works under a sub-path and from any port is tested
on the built site itself (tests/site).
"""

from __future__ import annotations

import re
import shlex

import pytest
import yaml

import crawl

WORKFLOW = ".github/workflows/pages.yml"


@pytest.fixture
def text(root):
    """The workflow as it stands."""
    return (root / WORKFLOW).read_text(encoding="utf-8")


@pytest.fixture
def workflow(text):
    """The workflow as data (YAML takes the key `on` for the word true)."""
    loaded = yaml.safe_load(text)
    loaded["on"] = loaded.pop(True, loaded.get("on"))
    return loaded


def steps(workflow, job: str) -> list[dict[str, object]]:
    """The steps of a job."""
    return workflow["jobs"][job]["steps"]


def commands(workflow) -> list[str]:
    """Every line that a step runs."""
    runs = [
        step["run"] for job in workflow["jobs"] for step in steps(workflow, job) if "run" in step
    ]
    return [line.strip() for run in runs for line in run.splitlines()]


def test_main_and_version_tags_publish_and_nothing_else(workflow):
    """A pull request that publishes puts a stranger's text on the course's address."""
    assert workflow["on"] == {
        "push": {"branches": ["main"], "tags": ["v*"]},
        "workflow_dispatch": None,
    }


def test_actions_are_pinned_and_of_one_maker(workflow):
    """`@main` of an action is other code next month; a third party's could read the token."""
    used = [
        step["uses"] for job in workflow["jobs"] for step in steps(workflow, job) if "uses" in step
    ]
    assert len(used) == 5
    assert not [name for name in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", name)]


def test_no_secret_and_no_more_rights_than_needed(workflow, text):
    """The build runs pip's packages: it may read the repository and nothing more."""
    assert "secrets" not in text
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in workflow["jobs"]["build"]
    assert workflow["jobs"]["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert not [step for step in steps(workflow, "deploy") if "run" in step]


def test_only_a_whole_and_checked_site_is_published(workflow):
    """The order matters: build, look at it under its own path, then hand over that very folder."""
    kinds = [step.get("run") or step["uses"] for step in steps(workflow, "build")]
    wanted = ("make book", "tools/crawl.py", "actions/upload-pages-artifact")
    places = [next(i for i, kind in enumerate(kinds) if part in str(kind)) for part in wanted]
    assert places == sorted(places)
    for index in places:
        assert "continue-on-error" not in steps(workflow, "build")[index]
    assert steps(workflow, "build")[places[-1]]["with"] == {"path": "_build/html"}
    assert workflow["jobs"]["deploy"]["needs"] == "build"


def test_what_it_runs_exists(workflow, root):
    """A renamed tool or target would be noticed on the day of a release."""
    makefile = (root / "Makefile").read_text()
    for line in commands(workflow):
        words = shlex.split(line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        elif words[0].endswith("minilab"):
            assert words[1:3] == ["trace", "fetch"], line
        else:
            assert (root / words[1]).exists(), line


def test_the_traces_it_fetches_are_those_of_the_pages(workflow, root):
    """A page whose trace is not fetched shows the stand-in to all readers of the published site."""
    fetched = {line.split()[-1] for line in commands(workflow) if " trace fetch " in line}
    book = "".join(path.read_text() for path in sorted((root / "book").glob("*.md")))
    used = set(re.findall(r'(?:\bload\(|trace=)"([a-z0-9-]+)"', book)) - {"synthetic"}
    assert fetched == used


def test_the_check_takes_the_words_it_is_given(workflow, tmp_path, capsys):
    """The crawl's own command line, on a small site whose link is dead under a sub-path only."""
    (line,) = [line for line in commands(workflow) if "crawl.py" in line]
    words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "name", line))[2:]
    (tmp_path / "index.html").write_text('<a href="/name/index.html">here</a>')
    assert crawl.main([str(tmp_path), *words]) == 0
    (tmp_path / "index.html").write_text('<a href="/index.html">the host, not the site</a>')
    assert crawl.main([str(tmp_path), *words]) == 1
    assert "dead-link" in capsys.readouterr().out
