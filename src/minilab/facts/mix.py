"""Mix: several workloads on one server, told apart by tenant and SLO class."""

from __future__ import annotations

from collections.abc import Mapping

from minilab.facts.errors import InputError
from minilab.facts.workload import Workload


def mix(parts: Mapping[str, Workload]) -> Workload:
    """All requests of ``parts`` in order of arrival; each part's name is its tenant and class.

    Requests get new ids; a session's ``after`` follows them. Texts stay apart: a content id of one
    part means nothing in another.

    Raises:
        InputError: no part, or one with a closed loop (two loops share no clock).
    """
    if not parts:
        raise InputError("mix: no workload given; name at least one")
    rows = []
    for index, (name, work) in enumerate(parts.items()):
        if work.concurrency is not None:
            raise InputError(f"mix: {name} is a closed loop; give open ones, with arrival times")
        for request in work.requests:
            text = request.prompt and tuple((c * len(parts) + index, n) for c, n in request.prompt)
            out = request.output_content
            rows.append(
                request._replace(
                    prompt=text,
                    output_content=None if out is None else out * len(parts) + index,
                    tenant=name,
                    slo_class=name,
                )
            )
    order = sorted(range(len(rows)), key=lambda k: (rows[k].arrival, k))
    new_id = {(rows[k].tenant, rows[k].id): i for i, k in enumerate(order)}
    requests = [
        rows[k]._replace(
            id=i,
            after=None if rows[k].after is None else new_id[rows[k].tenant, rows[k].after or 0],
        )
        for i, k in enumerate(order)
    ]
    kinds = {work.source["kind"] for work in parts.values()}
    kind = next(iter(kinds)) if len(kinds) == 1 else "synthetic"
    source = {"name": " + ".join(parts), "kind": kind, "origin": "mix", "sha256": None}
    return Workload(requests, None, None, source).validate()
