"""Description: an experiment as a value: to JSON and back, its name by hash, and its neighbours."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name
from minilab.sim.workload_spec import WorkloadSpec

D = TypeVar("D", bound="Description")


@dataclass(frozen=True, slots=True)
class Description:
    """Fields that are JSON values, and the workload, whose fields count as its own.

    Attributes:
        workload: which requests (see ``WorkloadSpec``).
    """

    workload: WorkloadSpec = field(default_factory=WorkloadSpec)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``from_dict`` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[D], data: dict[str, Any]) -> D:
        """The experiment that ``to_dict`` described.

        Raises:
            InputError: a field that does not exist.
        """
        _check(data, [f.name for f in fields(cls)])
        values = dict(data)
        if isinstance(values.get("workload"), dict):
            values["workload"] = WorkloadSpec.from_dict(values["workload"])
        return cls(**values)

    @property
    def key(self) -> str:
        """sha256 (hex) of the description."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def with_(self: D, **changes: Any) -> D:
        """A copy with other fields; ``rate``, ``seed``, ... of the workload may be named too.

        Raises:
            InputError: a name that neither has.
        """
        own = {f.name for f in fields(self)}
        _check(changes, sorted(own | {f.name for f in fields(WorkloadSpec)}))
        outer = {k: v for k, v in changes.items() if k in own}
        within = {k: v for k, v in changes.items() if k not in own}
        workload = outer.pop("workload", self.workload)
        return replace(self, workload=replace(workload, **within), **outer)


def _check(given: dict[str, Any], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"experiment: {unknown_name('field', name, known)}")
