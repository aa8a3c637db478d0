"""Two pools lose nothing, whatever is done to them.

Failures this exists for: a block that neither side gives back (a transfer that broke, a client that
left while bytes moved), a token counted on both sides or on none, a request that nobody wakes, and
a time that depends on whether repeated steps are skipped.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from pd_worlds import PdWorld, log_of, pd_worlds

from minilab.facts.runlog import STAGES, RunLog


def same(a: RunLog, b: RunLog) -> None:
    """Scheduling state equal, times to 1e-9, and every gap of every request."""
    for name, column in a.requests.items():
        other = b.requests[name]
        if column.dtype.kind == "f":
            np.testing.assert_allclose(column, other, rtol=0, atol=1e-9, err_msg=name)
        else:
            assert (column == other).all(), f"{name}: {column} / {other}"
    one, two = a.gaps.to_lists(), b.gaps.to_lists()
    assert (one.offsets == two.offsets).all()
    np.testing.assert_allclose(one.values, two.values, rtol=0, atol=1e-9)


@settings(max_examples=120, deadline=None)
@given(pd_worlds())
def test_skipping_steps_changes_nothing(world: PdWorld) -> None:
    same(world.log(skip=True), world.log(skip=False))


@settings(max_examples=120, deadline=None)
@given(pd_worlds())
def test_tokens_and_blocks_are_conserved_across_the_pools(world: PdWorld) -> None:
    cluster = world.run()
    sent = {r.id for r in world.requests}
    assert sorted(cluster.states) == sorted(sent)
    may_abort = {request for request, _ in world.aborts}
    for state in cluster.states.values():
        status = state.status.name
        if status == "FINISHED":
            assert state.num_output_tokens == state.request.output_tokens
        elif status == "ABORTED":
            assert state.id in may_abort
        elif status == "FAILED":
            assert world.options.on_failure == "fail" and cluster.delivery.failed
        else:
            assert status == "REJECTED", f"{state.id} got stuck: {status}"
    for instance in cluster.instances:
        scheduler = instance.scheduler
        scheduler.pool.check([])
        assert scheduler.pool.used == 0
        assert not scheduler.num_running and not scheduler.num_waiting
        remote = scheduler.remote
        assert not remote.receiving and not remote.ready and not remote.sending
    for view in cluster._decode_views:
        assert view.inbound == 0


@settings(max_examples=120, deadline=None)
@given(pd_worlds())
def test_every_second_is_charged_to_one_stage(world: PdWorld) -> None:
    log = log_of(world.run()).check()
    columns = log.requests
    done = log.finished
    spans = np.array([columns[name] for name in STAGES])
    assert not (spans < -1e-9).any()
    e2e = columns["finish"] - columns["arrival"]
    np.testing.assert_allclose(np.nansum(spans, axis=0)[done], e2e[done], rtol=0, atol=1e-9)
    gaps = log.gaps.counts()
    assert (gaps[done] == columns["output_tokens"][done] - 1).all()
    # The gaps of a request lie one after the other from its first token to its end.
    lists = log.gaps.to_lists()
    sums = np.add.reduceat(np.append(lists.values, 0.0), lists.offsets[:-1])
    sums[lists.offsets[1:] == lists.offsets[:-1]] = 0.0
    decode = columns["finish"] - columns["first_token"]
    np.testing.assert_allclose(sums[done], decode[done], rtol=0, atol=1e-9)
