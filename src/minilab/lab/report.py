"""Report: what a learner did in a lab, as one file that can be shown to somebody.

Self-contained HTML (pictures inside, no script, no request), written whole or not at all. It shows
what this session holds: predictions with calibration, checks, figures with their alternative
texts, and the environment they were made in.
"""

from __future__ import annotations

import datetime
import html

from minilab.lab.colab import environment_lines
from minilab.lab.exercise import exercises_of, lab_name, lab_of
from minilab.lab.html_page import bullets, document, paragraphs, section, table
from minilab.lab.predict import calibration, error_words
from minilab.lab.prediction_file import Prediction, store
from minilab.lab.progress import PASSED, Picture, session
from minilab.lab.show import img
from minilab.lab.workdir import relative, work_folder, write_whole


def report(lab: str | int, *, conclusion: str = "") -> None:
    """Write ``work/report_NN.html`` for a lab and print where it is.

    conclusion: the learner's own words, shown first. Raises InputError where the file can't be
    written.
    """
    path = work_folder() / f"report_{lab_name(lab)}.html"
    write_whole(path, page(lab, conclusion))
    print(f"Report: {relative(path)}")
    if not conclusion.strip():
        print(
            "It lacks your own words: for which workload does it win, for which does it lose, and "
            'how do you know? Put them into conclusion="..." and run the cell again.'
        )


def page(lab: str | int, conclusion: str = "") -> str:
    """The report as HTML text."""
    name = lab_name(lab)
    today = datetime.date.today().isoformat()
    predictions = [p for p in store().all() if lab_of(p.id) == name]
    body = [
        f"<h1>Lab {name}: what I predicted, ran and found</h1>",
        f"<p>Frontier Serving Lab, {today}</p>",
        section("In my own words", paragraphs(conclusion)),
        section("Predictions", _predictions(predictions)),
        section("Exercises", _exercises(name)),
        section("Figures", _figures(session().pictures)),
        section("Environment", bullets(environment_lines())),
    ]
    return document(f"Report of lab {name}", body)


def _predictions(predictions: list[Prediction]) -> str:
    if not predictions:
        return "<p>None filed.</p>"
    rows = [
        (
            p.id,
            f"{p.value:g} {p.unit}".rstrip(),
            f"{p.low:g} to {p.high:g}",
            f"{p.confidence:.0%}",
            "not run" if p.actual is None else f"{p.actual:.4g} {p.unit}".rstrip(),
            _scored(p),
        )
        for p in predictions
    ]
    head = ("id", "value", "interval", "sure", "outcome", "score")
    told = html.escape(str(calibration()))
    return f"{table(head, rows, 'Predictions')}\n<p>{told} (All labs of this folder.)</p>"


def _scored(prediction: Prediction) -> str:
    changed = f"; changed {len(prediction.changes)} times" if prediction.changes else ""
    if prediction.hit is None:
        return f"open{changed}"
    return f"{'hit' if prediction.hit else 'miss'}; {error_words(prediction)}{changed}"


def _exercises(lab: str) -> str:
    results, hints = session().results, session().hints
    listed = exercises_of(lab)
    if not listed:
        return "<p>This lab has none.</p>"
    rows = []
    for exercise in listed:
        result = results.get(exercise.id)
        verdict, tries = (result.verdict, str(result.tries)) if result else ("not checked", "0")
        part = "core" if exercise.core else "deep"
        rows.append(
            (exercise.id, exercise.title, part, verdict, tries, str(hints.get(exercise.id, 0)))
        )
    core_ids = [exercise.id for exercise in listed if exercise.core]
    passed = sum(i in results and results[i].verdict == PASSED for i in core_ids)
    head = ("id", "exercise", "part", "verdict", "checks", "hints")
    return (
        f"<p>{passed} of {len(core_ids)} core exercises pass.</p>\n{table(head, rows, 'Exercises')}"
    )


def _figures(pictures: list[Picture]) -> str:
    return "\n".join(
        f"<figure>{img(p)}<figcaption>{html.escape(p.alt)}</figcaption></figure>" for p in pictures
    )
