"""Ask the live models of a page in a browser, and compare their answers with the package's."""

from __future__ import annotations

from typing import Any

PREFIX = "/name/"
SECONDS = 60_000

ASK = """async ([root, kind, asked]) => {
  const worker = new Worker(root + '_static/live/worker.mjs', {type: 'module'});
  const answer = ([method, given]) => new Promise((resolve) => {
    worker.onmessage = ({data}) => resolve(data);
    worker.postMessage({id: 1, kind, method, given});
  });
  const found = [];
  for (const one of asked) found.push(await answer(one));
  worker.terminate();
  return found;
}"""


def ask(tab: Any, root: str, kind: str, asked: list[Any]) -> list[Any]:
    """What the worker answers to (method, given) pairs."""
    found: list[Any] = tab.evaluate(ASK, [root, kind, asked])
    return found


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Places where two JSON values differ by more than 1e-12 of their size."""
    if isinstance(ours, dict):
        return [
            one for key in ours for one in differences(ours[key], theirs.get(key), f"{where}.{key}")
        ]
    if isinstance(ours, list):
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} against {len(theirs)}"]
        return [d for at, (a, b) in enumerate(zip(ours, theirs, strict=True))
                for d in differences(a, b, f"{where}[{at}]")]  # fmt: skip
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        near = abs(ours - theirs) <= 1e-12 * max(abs(ours), abs(theirs), 1e-300)
        return [] if near else [f"{where}: {ours!r} against {theirs!r}"]
    return [] if ours == theirs else [f"{where}: {ours!r} against {theirs!r}"]
