"""SpeculativeConfig: what ``--speculative-config`` says, in vLLM's words, made into a proposer.

vLLM's keys (seen in its documentation of November 2026): method, num_speculative_tokens, model,
prompt_lookup_max, prompt_lookup_min, suffix_decoding_max_tree_depth,
suffix_decoding_max_spec_factor, suffix_decoding_min_token_prob,
num_speculative_tokens_per_batch_size. Ours: the method "table", and ``fallback``, a config of the
same kind for requests about which the first proposer has no idea.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minilab.engine.spec.draft_table import DraftTable
from minilab.engine.spec.hybrid import Hybrid
from minilab.engine.spec.proposer import Proposer
from minilab.engine.spec.speculation import Speculation
from minilab.facts.errors import InputError

if TYPE_CHECKING:
    from minilab.engine.families import Model
    from minilab.engine.llm import LLM
    from minilab.engine.model import Decoder

FLAG = "--speculative-config"
MOST = 32
"""Guesses per step at most, as vLLM's MAX_SPEC_LEN."""
COUNT, BY_BATCH = "num_speculative_tokens", "num_speculative_tokens_per_batch_size"


@dataclass(frozen=True)
class SpeculativeConfig:
    """A proposer by name, and how much it may propose.

    Attributes:
        options: the method's own keys, defaults filled in.
        table: guesses per request, by the number of requests that decode.
    """

    method: str
    options: Mapping[str, Any]
    table: DraftTable
    fallback: SpeculativeConfig | None = None

    @classmethod
    def parse(cls, text: str) -> SpeculativeConfig:
        """The config in a JSON text.

        Raises:
            InputError: no JSON object, an unknown method or key, a value of another kind.
        """
        try:
            said = json.loads(text)
        except ValueError as error:
            raise InputError(f"{FLAG}: not JSON ({error}); quote the whole of it") from None
        return cls._of(said, FLAG)

    @classmethod
    def _of(cls, said: Any, where: str, count: int | None = None) -> SpeculativeConfig:
        if not isinstance(said, dict):
            raise InputError(f"{where}: a JSON object is needed, such as " + '{"method": "ngram"}')
        method = said.get("method")
        if not isinstance(method, str) or method not in METHODS:
            raise InputError(f"{where}: method {method!r}; known: {', '.join(METHODS)}")
        own = METHODS[method].options
        known = {"method", "fallback", *own, *(() if count else (COUNT, BY_BATCH))}
        for key in said:
            if key not in known:
                raise InputError(f"{where}: {key!r} means nothing to {method}; known: "
                                 f"{', '.join(sorted(known))}")  # fmt: skip
        options = {key: _value(said, key, default, where) for key, default in own.items()}
        k = count or _value(said, COUNT, int, where)
        if not 1 <= k <= MOST:
            raise InputError(f"{where}: {COUNT} is {k}; it must be from 1 to {MOST}")
        rows = None if count else said.get(BY_BATCH)
        behind = said.get("fallback")
        return cls(
            method,
            options,
            DraftTable.constant(k) if rows is None else _table(rows, k, where),
            None if behind is None else cls._of(behind, f"{where}: fallback", k),
        )

    def proposer(self, llm: LLM) -> Proposer:
        """The proposer for this engine's model.

        Raises:
            InputError: a file that is missing or made for another model, or a value out of range.
        """
        first = METHODS[self.method].make(llm, self.options)
        return first if self.fallback is None else Hybrid(first, self.fallback.proposer(llm))

    def speculation(self, llm: LLM) -> Speculation:
        """What an executor needs; see ``proposer`` for the errors."""
        return Speculation(self.proposer(llm), self.table)


@dataclass(frozen=True)
class _Method:
    """options: default by key, or the type of one that must be given."""

    options: Mapping[str, Any]
    make: Callable[[LLM, Mapping[str, Any]], Proposer]


def _value(said: Mapping[str, Any], key: str, default: Any, where: str) -> Any:
    """The value of ``key``: of the default's type, or of the type that stands in its place."""
    needed = isinstance(default, type)
    kind = default if needed else type(default)
    if key not in said:
        if needed:
            raise InputError(f"{where}: {key} is missing; give it")
        return default
    value = said[key]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        words = {int: "a whole number", float: "a number", str: "a text"}[kind]
        raise InputError(f"{where}: {key} is {value!r}; it must be {words}")
    return value


def _table(rows: Any, k: int, where: str) -> DraftTable:
    whole = isinstance(rows, list) and all(
        isinstance(row, list) and all(type(each) is int for each in row) for row in rows
    )
    if not whole:
        raise InputError(f"{where}: {BY_BATCH} is a list of [from, to, k], all whole numbers")
    table = DraftTable(rows)
    if table.most > k:
        raise InputError(f"{where}: {BY_BATCH} has {table.most} guesses, {COUNT} allows {k}")
    return table


def _ngram(llm: LLM, said: Mapping[str, Any]) -> Proposer:
    from minilab.engine.spec.ngram import NGram

    return NGram(said["prompt_lookup_max"], said["prompt_lookup_min"])


def _suffix(llm: LLM, said: Mapping[str, Any]) -> Proposer:
    from minilab.engine.spec.suffix import Suffix

    name = "suffix_decoding_"
    return Suffix(
        said[f"{name}max_tree_depth"], said[f"{name}max_spec_factor"], said[f"{name}min_token_prob"]
    )


def _draft_model(llm: LLM, said: Mapping[str, Any]) -> Proposer:
    from minilab.core.config import SchedulerConfig
    from minilab.engine.load import load_llm
    from minilab.engine.spec.draft_model import DraftModel

    target, limits = llm.executor.model, llm.scheduler.config
    dtype = str(target.dtype).removeprefix("torch.")
    pool = SchedulerConfig(limits.num_blocks, limits.block_size)
    model = load_llm(said["model"], pool, dtype, str(target.device)).executor.model
    if model.config.vocab_size != target.config.vocab_size:
        raise InputError(
            f"{FLAG}: model {said['model']} has {model.config.vocab_size} tokens, the target "
            f"{target.config.vocab_size}; a draft model needs the target's vocabulary"
        )
    return DraftModel(_decoder(model))


def _decoder(model: Model) -> Decoder:
    """``model``, if it is one that these proposers can run or read.

    Raises:
        InputError: it is of another family.
    """
    from minilab.engine.model import Decoder

    if not isinstance(model, Decoder):
        raise InputError(
            f"{FLAG}: this method needs a Llama-like model, and this one is a "
            f"{type(model).__name__}; use ngram or suffix"
        )
    return model


def _eagle(llm: LLM, said: Mapping[str, Any]) -> Proposer:
    from minilab.engine.spec.eagle import Eagle

    return Eagle.load(_decoder(llm.executor.model), said["model"])


def _medusa(llm: LLM, said: Mapping[str, Any]) -> Proposer:
    from minilab.engine.spec.medusa import Medusa

    return Medusa.load(_decoder(llm.executor.model), said["model"])


def _mtp(llm: LLM, said: Mapping[str, Any]) -> Proposer:
    from minilab.engine.deepseek.model import DeepseekDecoder
    from minilab.engine.spec.mtp import Mtp

    model = llm.executor.model
    if not isinstance(model, DeepseekDecoder):
        raise InputError(f"{FLAG}: mtp needs a model with an MTP module, such as tiny-deepseek")
    return Mtp(model)


def _static_table(llm: LLM, said: Mapping[str, Any]) -> Proposer:
    from minilab.engine.spec.table import Table

    return Table.load(said["model"])


METHODS: Mapping[str, _Method] = {
    "ngram": _Method({"prompt_lookup_max": 4, "prompt_lookup_min": 2}, _ngram),
    "suffix": _Method(
        {
            "suffix_decoding_max_tree_depth": 16,
            "suffix_decoding_max_spec_factor": 2.0,
            "suffix_decoding_min_token_prob": 0.1,
        },
        _suffix,
    ),
    "draft_model": _Method({"model": str}, _draft_model),
    "eagle": _Method({"model": str}, _eagle),
    "medusa": _Method({"model": str}, _medusa),
    "table": _Method({"model": str}, _static_table),
    "mtp": _Method({}, _mtp),
}
