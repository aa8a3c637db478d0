"""Both engines of a split, turned by hand: what goes wrong must free every block and tell somebody.

Failures this exists for: blocks that stay held because nobody asked, KV written into blocks that
are somebody else's by then, an answer that differs after a broken transfer, a request nobody ends.
"""

from __future__ import annotations

import socket
import time

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from pd_pair import Pair, plain  # noqa: E402

from minilab.core.config import SchedulerConfig  # noqa: E402
from minilab.engine.pd.awake import AwakeClock  # noqa: E402
from minilab.engine.pd.channel import Channel  # noqa: E402
from minilab.engine.pd.packing import Gathered, Pieces  # noqa: E402
from minilab.engine.pd.process import device_of  # noqa: E402
from minilab.engine.pd.settings import PdSettings  # noqa: E402
from minilab.engine.sampling import SamplingParams  # noqa: E402
from minilab.facts.errors import InputError  # noqa: E402

PROMPT = [7, 3, 200, 45, 12, 99, 150, 31, 8, 77, 64]
OTHER = [5, 90, 14, 211, 33, 6, 120, 58, 2, 171, 40, 19, 88]


@pytest.mark.parametrize("first_token", ["prefill", "decode"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_hand_over_says_what_one_engine_says(first_token: str, temperature: float) -> None:
    params = SamplingParams(temperature=temperature, max_tokens=8, seed=4, ignore_eos=True)
    pair = Pair(first_token=first_token)
    pair.gate.put("go")
    pair.ask(0, PROMPT, params)
    pair.hand_over(0, PROMPT, params)
    assert pair.until("decode", "finished")["token_ids"] == plain(PROMPT, params)
    assert pair.used() == (0, 0)
    assert not pair.decode.llm.executor.texts and not pair.prefill.llm.executor.texts


def test_blocks_are_held_until_they_are_sent_and_no_longer() -> None:
    pair = Pair()
    pair.ask(0, PROMPT)
    pair.hand_over(0, PROMPT)
    pair.turn(50)
    assert pair.used() == (3, 3), "held at one end, reserved at the other, the wire waits"
    assert not pair.prefill.leases, "what is being sent cannot expire"
    pair.gate.put("go")
    pair.wait_moved()
    assert pair.used()[0] == 0
    assert pair.until("decode", "finished")["token_ids"] == plain(PROMPT)


def test_what_the_decode_side_has_cached_is_not_sent() -> None:
    pair = Pair()
    for number, prompt in enumerate([PROMPT, [*PROMPT[:9], 1, 2, 3]]):
        pair.gate.put("go")
        pair.ask(number, prompt)
        pair.hand_over(number, prompt)
        assert pair.until("decode", "finished")["token_ids"] == plain(prompt)
    assert pair.decode.transport.moved.blocks == 3 + 1, "two of three blocks were there"


def test_blocks_that_nobody_asks_for_are_given_back() -> None:
    pair = Pair(timeout=0.3)
    pair.ask(0, PROMPT)
    pair.until("prefill", "prefilled")
    assert pair.used()[0] == 3
    failed = pair.until("prefill", "failed")
    assert failed["id"] == 0 and pair.used()[0] == 0


def test_a_decode_side_that_waits_for_blocks_keeps_the_lease_alive() -> None:
    """Its pool is full for longer than the timeout: the prefill side must not give up."""
    pair = Pair(timeout=0.3)
    pair.fill_decode_pool(leave=1)
    pair.ask(0, PROMPT)
    pair.hand_over(0, PROMPT)
    until = time.monotonic() + 0.8
    while time.monotonic() < until:
        pair.turn()
    assert 0 in pair.prefill.leases
    pair.empty_it()
    pair.gate.put("go")
    assert pair.until("decode", "finished")["token_ids"] == plain(PROMPT)


def test_blocks_asked_for_after_their_lease_are_refused() -> None:
    """They may be somebody else's by now: sending them would put a foreign text into the answer."""
    pair = Pair(timeout=0.2)
    pair.ask(0, PROMPT)
    pair.hand_over(0, PROMPT)
    pair.until("prefill", "failed", ["prefill"])
    pair.prefill.settings = pair.settings
    failed = pair.until("decode", "failed")
    assert failed["id"] == 0 and "did not arrive" in failed["error"]
    assert pair.used() == (0, 0)
    pair.gate.put("go")
    pair.ask(1, OTHER)
    pair.hand_over(1, OTHER)
    assert pair.until("decode", "finished")["token_ids"] == plain(OTHER), "the wire is in step"


@pytest.mark.parametrize("first_token", ["prefill", "decode"])
def test_after_a_cut_the_prompt_is_computed_again(first_token: str) -> None:
    pair = Pair(on_failure="recompute", first_token=first_token)
    pair.gate.put("cut")
    pair.ask(0, PROMPT)
    pair.hand_over(0, PROMPT)
    assert pair.until("decode", "finished")["token_ids"] == plain(PROMPT)
    assert pair.used() == (0, 0)
    pair.ask(1, OTHER)
    pair.hand_over(1, OTHER)
    assert pair.until("decode", "finished")["token_ids"] == plain(OTHER), "broken stays broken"


def test_after_a_cut_requests_fail_if_that_is_asked() -> None:
    pair = Pair(on_failure="fail")
    pair.gate.put("cut")
    pair.ask(0, PROMPT)
    pair.hand_over(0, PROMPT)
    assert pair.until("decode", "failed")["id"] == 0
    pair.wait_moved()
    assert pair.used() == (0, 0) and not pair.decode.states


def test_who_is_given_up_during_the_transfer_keeps_its_blocks_until_it_ends() -> None:
    """The wire still writes to them."""
    pair = Pair()
    pair.ask(0, PROMPT)
    pair.hand_over(0, PROMPT)
    pair.turn(20)
    for channel in pair.proxy.values():
        channel.send("abort", id=0)
    pair.turn(20)
    assert pair.used() == (3, 3)
    pair.gate.put("go")
    pair.wait_moved()
    pair.turn()
    assert pair.used() == (0, 0)
    assert not pair.decode.states and not pair.heard["decode"]


@pytest.mark.parametrize("when", ["computing", "held", "asking", "decoding"])
def test_a_request_may_be_given_up_anywhere(when: str) -> None:
    slow = SchedulerConfig(64, 4, max_num_batched_tokens=8, max_num_seqs=8)
    pair = Pair(slow)
    pair.ask(0, PROMPT)
    if when == "asking":
        pair.fill_decode_pool()
    if when == "computing":
        pair.turn(1, ["prefill"])
    elif when == "held":
        pair.until("prefill", "prefilled")
    else:
        pair.gate.put("go")
        pair.hand_over(0, PROMPT)
        pair.turn(3)
    if when == "decoding":
        pair.wait_moved()
    assert pair.used() != (0, 0)
    for channel in pair.proxy.values():
        channel.send("abort", id=0)
    pair.turn(3)
    pair.empty_it()
    pair.turn(3)
    assert pair.used() == (0, 0)
    assert not pair.prefill.states and not pair.decode.states and not pair.prefill.leases


def test_without_a_decode_side_the_prefill_side_lets_go_of_everything() -> None:
    pair = Pair()
    for number in range(3):
        pair.ask(number, [*PROMPT, number])
    pair.until("prefill", "prefilled")
    pair.ask(3, OTHER)
    pair.decode.peer.close()
    pair.turn(5, ["prefill"])
    assert pair.used()[0] == 0 and not pair.prefill.states
    failed = {m["id"] for m in pair.heard["prefill"] if m["op"] == "failed"}
    assert failed == {0, 1, 2, 3}
    pair.ask(4, OTHER)
    assert pair.until("prefill", "failed", ["prefill"])["error"] == "the decode process is gone"


def test_an_answer_of_one_token_is_not_handed_over() -> None:
    pair = Pair()
    one = SamplingParams(temperature=0.0, max_tokens=1)
    pair.ask(0, PROMPT, one)
    assert pair.until("prefill", "finished")["token_ids"] == plain(PROMPT, one)
    stops = SamplingParams(temperature=0.0, stop_token_ids=plain(PROMPT, one))
    pair.ask(1, PROMPT, stops)
    finished = pair.until("prefill", "finished")
    assert finished["finish_reason"] == "stop" and pair.used() == (0, 0)


@pytest.mark.parametrize("kind", [Gathered, Pieces])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("planes", [2, 1], ids=["keys and values", "latents"])
def test_packing_moves_the_blocks_asked_and_no_others(
    kind: type, dtype: torch.dtype, planes: int
) -> None:
    dice = torch.Generator().manual_seed(1)
    rest = (4, 2, 8) if planes == 2 else (4, 24)
    source = torch.randint(0, 200, (3, planes, 9, *rest), generator=dice).to(dtype)
    target = torch.randint(0, 200, (3, planes, 7, *rest), generator=dice).to(dtype)
    wanted = target.clone()
    wanted[:, :, [6, 0, 3]] = source[:, :, [2, 8, 5]]
    parts = kind(source, torch.device("cpu")).pack([2, 8, 5])
    into = kind(target, torch.device("cpu"))
    space = into.space([6, 0, 3])
    assert len(parts) == len(space) == (1 if kind is Gathered else 3 * planes * 3)
    for piece, room in zip(parts, space, strict=True):
        assert piece.is_contiguous() and room.is_contiguous() and piece.shape == room.shape
        room.copy_(piece)
    into.unpack(space, [6, 0, 3])
    assert torch.equal(target, wanted)


def test_a_channel_never_waits_for_a_reader() -> None:
    """A process that hangs reads nothing; what is meant for it must not stop the others."""
    here, there = Channel.pair()
    for number in range(2000):
        here.send("note", number=number, text="x" * 1000)
    assert here.unsent
    far, got = Channel(there), []
    while len(got) < 2000:
        got += far.receive()
        here.flush()
    assert [message["number"] for message in got] == list(range(2000))
    far.send("bye")
    far.close()
    assert here.receive() == [{"op": "bye"}] and not here.open
    here.send("into the void")
    assert not here.unsent


def test_a_stopped_process_does_not_blame_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten minutes in which nobody looked, one second has passed."""
    ticks = iter([0.0, 0.5, 600.0, 600.25])
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    clock = AwakeClock()
    assert [clock.now() for _ in range(3)] == [0.5, 1.5, 1.75]


def test_settings_are_the_same_at_both_ends_and_refuse_what_cannot_be() -> None:
    small = SchedulerConfig(8, 4)
    settings = PdSettings(prefill=small, decode=SchedulerConfig(9, 4), gather=False, timeout=2.5)
    assert PdSettings.from_json(settings.to_json()) == settings
    with pytest.raises(InputError, match=r"block_size is 4 .* and 16"):
        PdSettings(prefill=small)
    with pytest.raises(InputError, match="unknown transport 'glo'; did you mean gloo"):
        PdSettings(transport="glo")
    with pytest.raises(InputError, match="timeout is 0"):
        PdSettings(timeout=0)


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="needs a machine with fewer GPUs")
def test_nccl_asks_for_two_cards() -> None:
    with pytest.raises(InputError, match="needs two GPUs, for NCCL refuses two ranks on one"):
        device_of(PdSettings(transport="nccl"), 0)


def test_sockets_are_not_left_open() -> None:
    here, there = Channel.pair()
    here.close()
    assert isinstance(there, socket.socket) and there.recv(1) == b""
    there.close()
