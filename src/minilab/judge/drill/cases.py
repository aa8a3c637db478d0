"""CASES: the drills. Each is a healthy system, one thing that went wrong, and what may be done.

Llama-3.1-8B on H100s throughout, so that only the trouble differs. The numbers were chosen by
simulating: the healthy system keeps its limits, the sick one does not, and no outcome is written
down here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minilab.judge.drill.case import Action, Case
from minilab.judge.drill.system import System, Traffic
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

LIMITS = {"ttft": 1.0, "itl": 0.05}
LEAVE = Action("leave", "Leave it alone and keep watching")


def _act(key: str, label: str, **changes: Any) -> Action:
    return Action(key, label, changes)


def _case(
    key: str,
    call: str,
    healthy: System,
    sickness: Mapping[str, Any],
    *actions: Action,
    slo: Mapping[str, float] | None = None,
) -> Case:
    return Case(key, call, healthy, sickness, LIMITS | dict(slo or {}), (*actions, LEAVE))


ONE = Experiment()
FP8_KV = _act("fp8-kv", "Store the KV in FP8", kv_dtype="fp8")
REPLICA = _act("replica", "Add a replica", instances=2)
SPLIT = _act("split", "Split prefill and decode, one GPU each", prefill_instances=1)
FEWER = _act("fewer", "Lower max_num_seqs to 32", max_num_seqs=32)
FP8_WEIGHTS = _act("fp8-weights", "Load FP8 weights", weight_dtype="fp8")


def _one(**traffic: Any) -> System:
    return System(ONE, Traffic(**traffic))


def _many(instances: int, router: str, **traffic: Any) -> System:
    return System(ONE.with_(instances=instances, router=router), Traffic(**traffic))


CASES = (
    _case(
        "monday",
        "Monday, nine o'clock. The first tokens come late, and it gets worse by the minute. "
        "Nobody deployed anything.",
        _one(rate=8.0, count=900),
        {"rate": 48.0},
        REPLICA,
        _act("four", "Run four replicas", instances=4),
        FEWER,
        FP8_KV,
    ),
    _case(
        "template",
        "After a rollout of new start scripts, users wait half a minute for a first token. The "
        "GPU is warm, but not hot.",
        _one(rate=8.0),
        {"max_num_seqs": 8},
        _act("more", "Raise max_num_seqs to 256", max_num_seqs=256),
        REPLICA,
        FP8_KV,
        SPLIT,
    ),
    _case(
        "neighbour",
        "Somebody put a second process on this GPU last night. Since then answers stop in the "
        "middle and go on later.",
        _one(rate=10.0, output_tokens=400),
        {"kv_blocks": 3000},
        _act("fp8-kv", "Store the KV in FP8: twice the blocks", kv_dtype="fp8", kv_blocks=6000),
        FEWER,
        REPLICA,
        SPLIT,
    ),
    _case(
        "throughput",
        "A colleague raised the token budget of a step because it gave more tokens per second in "
        "his benchmark. Streams stutter now.",
        _one(rate=3.0, prompt_tokens=6000, output_tokens=300).with_(max_num_batched_tokens=1024),
        {"max_num_batched_tokens": 16384},
        _act("chunk", "Lower max_num_batched_tokens to 1,024", max_num_batched_tokens=1024),
        SPLIT,
        REPLICA,
        FP8_WEIGHTS,
    ),
    _case(
        "documents",
        "The product now lets users paste whole reports. First tokens are late; once an answer "
        "runs, it runs well.",
        _one(rate=1.0, count=150, prompt_tokens=3000).with_(max_num_batched_tokens=2048),
        {"prompt_tokens": 18000},
        _act("tp", "Serve on two GPUs with tensor parallelism", tp=2),
        REPLICA,
        SPLIT,
        _act("budget", "Raise max_num_batched_tokens to 16,384", max_num_batched_tokens=16384),
        FP8_WEIGHTS,
    ),
    _case(
        "flag",
        "An assistant with a system prompt of 6,000 tokens. Since the upgrade the same traffic "
        "needs more GPUs than before.",
        _one(rate=10.0, prompt_tokens=500, groups=2, shared_tokens=6000),
        {"prefix_cache": False},
        _act("cache", "Switch the prefix cache on", prefix_cache=True),
        REPLICA,
        SPLIT,
        _act("chunk", "Lower max_num_batched_tokens to 1,024", max_num_batched_tokens=1024),
    ),
    _case(
        "library",
        "Four replicas answer questions about sixty long documents. The load balancer was "
        "replaced by a simple one. Since then streams are rough, a little and all day.",
        _many(4, "cache-aware", rate=13.0, prompt_tokens=200, groups=60, shared_tokens=12000).with_(
            max_num_batched_tokens=2048
        ),
        {"router": "round-robin"},
        _act("prefix", "Route by prefix and load (cache-aware)", router="cache-aware"),
        _act("eight", "Run eight replicas", instances=8),
        _act("least", "Route to the least loaded replica", router="least-load"),
        FP8_KV,
    ),
    _case(
        "hot",
        "Four replicas, many tenants, one of them suddenly popular. Some users are served at "
        "once, others wait for ever.",
        _many(
            4,
            "cache-aware",
            rate=40.0,
            count=500,
            prompt_tokens=500,
            groups=40,
            shared_tokens=2000,
            skew=3.0,
        ),
        {"router": "longest-prefix"},
        _act("bounded", "Follow the prefix only while loads are even", router="cache-aware"),
        _act("least", "Route to the least loaded replica", router="least-load"),
        _act("eight", "Run eight replicas", instances=8),
        _act("off", "Switch the prefix cache off", prefix_cache=False),
    ),
    _case(
        "pools",
        "Prefill and decode are apart, on four GPUs. Streams are perfect. First tokens are late.",
        System(
            PdExperiment.split(ONE.with_(prefix_cache=False), 2, 2),
            Traffic(rate=14.0, prompt_tokens=5000, output_tokens=150),
        ),
        {"prefill_instances": 1, "instances": 3},
        _act("ratio", "Turn one decode GPU into a prefill GPU", prefill_instances=2, instances=2),
        _act("decode", "Add a decode GPU", instances=4),
        _act("join", "Give up the split", prefill_instances=0),
        _act("fp8-kv", "Store the KV in FP8", kv_dtype="fp8"),
    ),
    _case(
        "wire",
        "The decode pool moved to another rack. After the first token each answer pauses.",
        System(
            PdExperiment.split(ONE.with_(prefix_cache=False), 1, 1),
            Traffic(rate=2.0, prompt_tokens=4000, output_tokens=60),
        ),
        {"link": "ethernet-10"},
        _act("join", "Give up the split: two whole servers", prefill_instances=0),
        _act("gather", "Gather the blocks before sending", gather=True),
        _act("fp8-kv", "Store the KV in FP8: half the bytes", kv_dtype="fp8"),
        _act("decode", "Add a decode GPU", instances=2),
        slo={"itl": 0.2},
    ),
    _case(
        "drafts",
        "Speculation made the demo twice as fast. In production, at noon, everything is slower "
        "than without it.",
        _one(rate=36.0, count=500, prompt_tokens=200, output_tokens=300).with_(acceptance_rate=0.4),
        {"num_speculative_tokens": 5},
        _act("off", "Switch speculation off", num_speculative_tokens=0),
        _act("more", "Raise the drafts to 8", num_speculative_tokens=8),
        _act("one", "Lower the drafts to 1", num_speculative_tokens=1),
        FP8_KV,
        slo={"itl": 0.022},
    ),
    _case(
        "bytes",
        "A premium tier promises a token every 8 ms. The new checkpoint is the same model, and "
        "it never keeps the promise.",
        _one(rate=2.0, prompt_tokens=500, output_tokens=300).with_(weight_dtype="fp8"),
        {"weight_dtype": "bf16"},
        _act("fp8-weights", "Load the FP8 checkpoint again", weight_dtype="fp8"),
        _act("tp", "Serve on two GPUs with tensor parallelism", tp=2),
        REPLICA,
        FP8_KV,
        slo={"itl": 0.008},
    ),
    _case(
        "nothing",
        "A dashboard shows GPU utilisation at 98 %. A manager asks what you are going to do.",
        _one(rate=9.0),
        {},
        REPLICA,
        SPLIT,
        FP8_KV,
        FEWER,
    ),
)


def case(key: str) -> Case:
    """The drill with this name.

    Raises:
        KeyError: none has it.
    """
    return {one.key: one for one in CASES}[key]
