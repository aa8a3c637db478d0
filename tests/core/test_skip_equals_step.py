"""Skipping repeated steps must change nothing but the time it takes.

Failure this exists for: a run that lasts one step too long (a finish, an eviction or an arrival
inside it), which shifts every later event; or a run record from which gaps come out wrong.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from worlds import World, worlds

from minilab.core.plain_scheduler import PlainScheduler
from minilab.core.scheduler import Scheduler
from minilab.facts.runlog import RunLog


def same(a: RunLog, b: RunLog) -> None:
    """Scheduling state equal, times to 1e-9, and every gap of every request."""
    a.check()
    b.check()
    for name, column in a.requests.items():
        other = b.requests[name]
        if column.dtype.kind == "f":
            np.testing.assert_allclose(column, other, rtol=0, atol=1e-9, err_msg=name)
        else:
            assert (column == other).all(), f"{name}: {column} / {other}"
    one, two = a.gaps.to_lists(), b.gaps.to_lists()
    assert (one.offsets == two.offsets).all()
    np.testing.assert_allclose(one.values, two.values, rtol=0, atol=1e-9)
    finished = a.requests["status"] == "finished"
    assert (a.gaps.counts()[finished] == a.requests["output_tokens"][finished] - 1).all()


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_skip_equals_step(world: World) -> None:
    same(world.log(skip=True), world.log(skip=False))


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_fast_equals_plain(world: World) -> None:
    same(world.log(Scheduler), world.log(PlainScheduler))


@settings(max_examples=400, deadline=None)
@given(worlds())
def test_everyone_gets_what_they_asked_for(world: World) -> None:
    """No request lost or served twice; tokens out == tokens asked; blocks all come back."""
    cluster = world.run()
    assert sorted(cluster.states) == [r.id for r in world.requests]
    aborted = {request for request, _ in world.aborts}
    for state in cluster.states.values():
        status = state.status.name
        if status == "FINISHED":
            assert state.num_output_tokens == state.max_tokens
        else:
            assert status == "REJECTED" or (status == "ABORTED" and state.id in aborted), status
    for instance in cluster.instances:
        instance.scheduler.pool.check([])
        assert instance.scheduler.pool.used == 0
        assert not instance.scheduler.num_running and not instance.scheduler.num_waiting
