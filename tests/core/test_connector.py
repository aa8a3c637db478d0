"""Both ends of a connector, driven by hand: which blocks go where, and who lets go of what.

Failures this exists for: a block sent to the wrong place when the receiver has a prefix cached, a
first token computed twice after a transfer broke, and news about a request that was given up.
"""

from __future__ import annotations

import pytest
from driving import check, config, drive, state

from minilab.core.connector import Finished, KVConnector
from minilab.core.request import FINISHED, HELD, RequestState
from minilab.core.scheduler import Scheduler


class Ends:
    """A prefill and a decode scheduler with 4 tokens a block."""

    def __init__(self, cache: bool = False) -> None:
        self.prefill = Scheduler(config(16, enable_prefix_caching=cache))
        self.decode = Scheduler(config(16, enable_prefix_caching=cache))
        self.sends = KVConnector(0, 4, self.prefill.remote)
        self.takes = KVConnector(1, 4, self.decode.remote)

    def compute(self, request: RequestState) -> None:
        """Run the sender's half to its end."""
        request.max_tokens = 1
        self.prefill.add(request)
        drive(self.prefill)
        assert request.status == HELD


TEXT = ((7, 10),)


def halves(text: tuple[tuple[int, int], ...] = TEXT) -> tuple[RequestState, RequestState]:
    return state(0, 10, 5, text, hold_blocks=True), state(0, 10, 5, text, remote_prefill=True)


def test_a_request_that_holds_nothing_has_nothing_to_hand_over() -> None:
    ends = Ends()
    assert ends.sends.request_finished(state(3, 8, 1), [1, 2]) == (False, None)


@pytest.mark.parametrize("first_token", [True, False])
def test_a_hand_over_from_end_to_end(first_token: bool) -> None:
    ends = Ends()
    sender, receiver = halves()
    ends.compute(sender)
    keep, params = ends.sends.request_finished(sender, sender.block_table, first_token)
    assert keep and params is not None and params.num_tokens == 10
    assert list(params.remote_block_ids) == sender.block_table[:3]
    assert ends.takes.get_num_new_matched_tokens(receiver, 0) == (0, False), "not announced yet"
    ends.takes.expect(receiver, params)
    assert ends.takes.get_num_new_matched_tokens(receiver, 4) == (6, True)
    assert ends.takes.reserve(receiver)
    (load,) = ends.takes.build_connector_meta()
    assert ends.takes.build_connector_meta() == [], "each load is handed out once"
    assert list(zip(load.remote_block_ids, load.block_ids, strict=True)) == list(
        zip(sender.block_table[:3], receiver.block_table, strict=True)
    )
    assert load.num_tokens == 10 and load.num_blocks == 3
    ends.takes.finish(Finished(recving=(0,)))
    ends.sends.finish(Finished(sending=(0,)))
    assert sender.status == FINISHED and ends.prefill.pool.used == 0
    plans = drive(ends.decode)
    assert len(plans) == (4 if first_token else 5)
    assert receiver.num_output_tokens == 5 and ends.decode.pool.used == 0


def test_what_the_receiver_has_cached_is_not_sent() -> None:
    """Its first two blocks are there; only what follows goes, to the right places."""
    ends = Ends(cache=True)
    earlier = state(9, 9, 2, ((7, 9),))
    ends.decode.add(earlier)
    drive(ends.decode)
    sender, receiver = halves()
    ends.compute(sender)
    _, params = ends.sends.request_finished(sender, sender.block_table)
    assert params is not None
    ends.takes.expect(receiver, params)
    assert ends.takes.reserve(receiver)
    (load,) = ends.takes.build_connector_meta()
    assert load.num_tokens == 2 and load.num_blocks == 1
    assert load.remote_block_ids[0] == sender.block_table[2]
    assert load.block_ids[0] == receiver.block_table[2]


@pytest.mark.parametrize("first_token", [True, False])
def test_after_a_broken_transfer_the_prompt_is_computed_and_no_token_twice(
    first_token: bool,
) -> None:
    ends = Ends()
    sender, receiver = halves()
    ends.compute(sender)
    _, params = ends.sends.request_finished(sender, sender.block_table, first_token)
    assert params is not None
    ends.takes.expect(receiver, params)
    ends.takes.reserve(receiver)
    ends.takes.build_connector_meta()
    ends.takes.finish(Finished(failed=(0,)))
    ends.sends.finish(Finished(failed=(0,)))
    assert ends.prefill.pool.used == 0 and ends.decode.pool.used == 0
    plans = drive(ends.decode)
    computed = sum(plan.num_prefill_tokens for plan in plans)
    assert computed == (11 if first_token else 10), "the first token is text by now"
    assert receiver.num_output_tokens == 5 and ends.decode.pool.used == 0


def test_who_gave_up_is_forgotten() -> None:
    ends = Ends()
    sender, receiver = halves()
    ends.compute(sender)
    _, params = ends.sends.request_finished(sender, sender.block_table)
    assert params is not None
    ends.takes.expect(receiver, params)
    ends.takes.reserve(receiver)
    ends.takes.forget(receiver.id)
    ends.decode.abort(receiver)
    assert ends.takes.build_connector_meta() == []
    assert ends.takes.get_num_new_matched_tokens(receiver, 0) == (0, False)
    check(ends.decode)
    assert ends.decode.pool.used == 0


def test_a_full_pool_reserves_nothing() -> None:
    ends = Ends()
    sender, receiver = halves()
    ends.compute(sender)
    _, params = ends.sends.request_finished(sender, sender.block_table)
    assert params is not None
    ends.takes.expect(receiver, params)
    kept = ends.decode.pool.take(14)
    assert not ends.takes.reserve(receiver) and ends.takes.build_connector_meta() == []
    ends.decode.pool.release(kept, [])
    assert ends.takes.reserve(receiver)
