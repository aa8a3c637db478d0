"""The on-call drill in a notebook: choose a call, a suspect and an action, and see it simulated."""

from __future__ import annotations

import html
import importlib
from typing import Any

from minilab.judge.drill.cases import CASES
from minilab.judge.drill.words import SUSPECTS, action_said, suspect_said
from minilab.lab.drill_page import answer_html, dashboard_html, limits_html, pages_html, played


def question(key: str) -> str:
    """What the caller says and what the servers export, as HTML, without the answer."""
    one = played(key)
    call = f"<p>{html.escape(one.case.call)}</p>"
    return call + limits_html(one) + dashboard_html(one) + pages_html(one)


def verdict(key: str, suspect: str, action: str) -> str:
    """What was wrong and what the action would have done, as HTML."""
    one = played(key)
    said = html.escape(suspect_said(one, suspect)), html.escape(action_said(one, action))
    return (
        f"<p><b>Suspect.</b> {said[0]}</p><p><b>Action.</b> {said[1]}</p><details><summary>Every "
        f"action, simulated</summary>{answer_html(one)}</details>"
    )


def drill_widget() -> Any:
    """Choices over ``question`` and ``verdict`` (needs ipywidgets and a running kernel)."""
    w: Any = importlib.import_module("ipywidgets")
    calls = [(f"Call {at}: {one.key}", one.key) for at, one in enumerate(CASES, 1)]
    wide = w.Layout(width="auto")
    call = w.Dropdown(options=calls, description="drill")
    shown, said = w.HTML(), w.HTML()
    suspects = [(words, key) for key, words in SUSPECTS.items()]
    suspect = w.RadioButtons(options=suspects, value=None, description="suspect", layout=wide)
    action = w.RadioButtons(options=[], description="action", layout=wide)
    button = w.Button(description="Do it")

    def ask(_: object = None) -> None:
        actions = played(call.value).case.actions
        shown.value, said.value = question(call.value), ""
        action.options = [(one.label, one.key) for one in actions]
        action.value = suspect.value = None

    def tell(_: object) -> None:
        if suspect.value is None or action.value is None:
            said.value = "<p>Choose a suspect and an action first.</p>"
        else:
            said.value = verdict(call.value, suspect.value, action.value)

    call.observe(ask, names="value")
    button.on_click(tell)
    ask()
    return w.VBox([call, shown, suspect, action, button, said])
