"""SplitEngine: two processes of the engine behind one ``generate``, and the proxy between them.

The proxy gives a prompt to the prefill process, gets back where its KV lies, and gives that with
the first token to the decode process, which fetches it. It computes nothing and needs no torch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from socket import socketpair
from typing import TYPE_CHECKING, Any

from minilab.engine.pd.awake import AwakeClock
from minilab.engine.pd.channel import Message, wait
from minilab.engine.pd.child import Child
from minilab.engine.pd.output import SplitOutput
from minilab.engine.pd.settings import PdSettings
from minilab.facts.errors import InputError

if TYPE_CHECKING:
    from minilab.engine.sampling import SamplingParams

START_SECONDS = 120.0
"""For both processes to load; a process imports torch first."""


@dataclass
class _Asked:
    """A request that is not done: what the decode process must be told of it, and what it had."""

    message: dict[str, Any]
    handed_over: bool = False
    num_preemptions: int = 0


class SplitEngine:
    """A prefill and a decode process; a context manager, which ends them.

    Attributes:
        children: the two processes by role.
        outputs: of requests that have ended and that nobody has taken, by id.

    Raises:
        InputError: the model, the device or the transport cannot be had.
    """

    def __init__(self, settings: PdSettings | None = None) -> None:
        self.settings = settings or PdSettings()
        self.outputs: dict[int, SplitOutput] = {}
        self._asked: dict[int, _Asked] = {}
        self._clock = AwakeClock()
        self._next_id = 0
        self._lost: dict[str, str] = {}
        self._status: dict[str, Message] = {}
        self._ready: dict[str, Message] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="minilab-pd-")
        ends = dict(zip(("prefill", "decode"), socketpair(), strict=True))
        store = f"{self._folder.name}/store"
        self.children = {role: Child(role, self.settings, store, end) for role, end in ends.items()}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SplitEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End both processes."""
        for child in self.children.values():
            child.channel.close()
        for child in self.children.values():
            child.end()
        self._folder.cleanup()

    # -- requests ---------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
    ) -> list[SplitOutput]:
        """Continue every prompt (token ids). ``params`` are for all, or one for each.

        A process that ends or falls silent gives its requests an output with an ``error``.

        Raises:
            InputError: a request that could never be served; then nothing is queued.
        """
        rules = list(params) if isinstance(params, Sequence) else [params] * len(prompts)
        for prompt, rule in zip(prompts, rules, strict=True):
            self.check(prompt, rule)
        ids = [self.submit(prompt, rule) for prompt, rule in zip(prompts, rules, strict=True)]
        try:
            while any(request_id in self._asked for request_id in ids):
                self.turn()
        except BaseException:
            for request_id in ids:
                self.abort(request_id)
            raise
        return [self.outputs.pop(request_id) for request_id in ids]

    def check(self, prompt: Sequence[int], params: SamplingParams) -> None:
        """Raise the InputError of ``generate`` if such a request could never be served."""
        vocabulary = self._ready["prefill"]["vocab_size"]
        if not prompt or not all(0 <= token < vocabulary for token in prompt):
            raise InputError(f"give prompts of at least one token id in 0..{vocabulary - 1}")
        for role, tokens in (("prefill", 1), ("decode", params.max_tokens)):
            limit = self._ready[role]["max_model_len"]
            if len(prompt) + tokens > limit:
                raise InputError(
                    f"{len(prompt)} prompt and {tokens} output tokens, but the {role} process "
                    f"holds {limit}; shorten the prompt, lower max_tokens or give it more blocks"
                )

    def submit(
        self, prompt: Sequence[int], params: SamplingParams, cache_salt: str | None = None
    ) -> int:
        """Queue one prompt; returns its id, under which ``outputs`` will have what it came to.

        Raises:
            InputError: see ``check``.
        """
        self.check(prompt, params)
        request_id = self._next_id
        self._next_id += 1
        message = {"id": request_id, "tokens": list(prompt), "params": asdict(params)}
        self._asked[request_id] = _Asked({**message, "salt": cache_salt})
        if self._lost:
            self._fail(request_id, next(iter(self._lost.values())))
        else:
            self.children["prefill"].channel.send("prefill", **self._asked[request_id].message)
        return request_id

    def abort(self, request_id: int) -> None:
        """Forget a request wherever it stands."""
        self.outputs.pop(request_id, None)
        if self._asked.pop(request_id, None) is not None:
            for child in self.children.values():
                child.channel.send("abort", id=request_id)

    def turn(self, timeout: float = 0.1) -> None:
        """Hear what the processes have to say, waiting for at most ``timeout`` seconds."""
        wait([child.channel for child in self.children.values()], timeout)
        now = self._clock.now()
        for role, child in self.children.items():
            for message in child.receive(now):
                self._news(role, message)
            if child.channel.open and now - child.heard > self.settings.timeout:
                child.process.kill()  # hangs: its end is seen below, in the next turn
            elif not child.channel.open and role not in self._lost:
                self._lose(role, child.how_it_ended())

    def status(self) -> dict[str, Message]:
        """Of each process that lives: free, used and all blocks, steps, preemptions, what it moved.

        Each checks its pool first: free + used is all of it, and every block is accounted for.
        """
        self._status.clear()
        alive = [role for role in self.children if role not in self._lost]
        for role in alive:
            self.children[role].channel.send("status")
        while any(role not in self._status and role not in self._lost for role in alive):
            self.turn()
        return {role: self._status[role] for role in alive if role in self._status}

    # -- news -------------------------------------------------------------------------------------

    def _start(self) -> None:
        until = self._clock.now() + START_SECONDS
        while len(self._ready) < len(self.children):
            for child in self.children.values():
                child.heard = self._clock.now()  # loading takes what it takes
            self.turn()
            for why in self._lost.values():
                raise InputError(why)
            if self._clock.now() > until:
                raise InputError(f"the processes are not ready after {START_SECONDS:.0f} s")

    def _news(self, role: str, message: Message) -> None:
        op = message.pop("op")
        if op == "ready":
            self._ready[role] = message
        elif op == "refused":
            self._lost[role] = message["error"]
        elif op == "status":
            self._status[role] = message
        elif message["id"] not in self._asked:
            if op == "prefilled":  # given up meanwhile
                self.children["prefill"].channel.send("abort", id=message["id"])
        elif op == "prefilled":
            self._hand_over(message)
        elif op == "finished":
            self._finish(message)
        else:
            self._fail(message["id"], message["error"])

    def _hand_over(self, message: Message) -> None:
        asked = self._asked[message["id"]]
        asked.handed_over = True
        asked.num_preemptions += message["num_preemptions"]
        self.children["decode"].channel.send(
            "decode",
            **asked.message,
            first_token=message["first_token"],
            kv_transfer_params=message["kv_transfer_params"],
        )

    def _finish(self, message: Message) -> None:
        asked = self._asked.pop(message["id"])
        self.outputs[message["id"]] = SplitOutput(
            message["token_ids"],
            message["text"],
            message["finish_reason"],
            message["stop_reason"],
            handed_over=asked.handed_over,
            num_preemptions=asked.num_preemptions + message["num_preemptions"],
        )

    def _fail(self, request_id: int, reason: str) -> None:
        asked = self._asked.pop(request_id)
        nothing = SplitOutput([], "", "error", error=reason)
        self.outputs[request_id] = replace(nothing, handed_over=asked.handed_over)

    def _lose(self, role: str, reason: str) -> None:
        """A process is gone: its requests fail. The decode process's loss is everybody's."""
        self._lost[role] = reason
        for request_id, asked in [*self._asked.items()]:
            if role == "decode" or not asked.handed_over:
                self._fail(request_id, reason)
