"""Settings: the workload, the hardware and the limits, as ``parameters.json`` describes them."""

import math
from typing import Any

BLOCK = 16

QUANTILES = [-1.2816, -0.5244, 0.0, 0.5244, 1.2816]
"""Standard normal deviates at 10, 30, 50, 70 and 90 %: five equally likely prompt lengths."""


class Settings:
    """One point of the parameter space. Values by name; what is not given has its default."""

    def __init__(self, parameters: list[Any], given: dict[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        for parameter in parameters:
            name = parameter["name"]
            self._set(name, given.get(name, parameter["default"]))

    def _set(self, name: str, value: Any) -> None:
        # Attributes of its own: under MicroPython a __getattr__ costs ten times a plain look-up.
        self.values[name] = value
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def with_value(self, name: str, value: float) -> "Settings":
        """A copy with another value."""
        copy = Settings([], {})
        for known in self.values:
            copy._set(known, self.values[known])
        copy._set(name, value)
        return copy

    def shared_tokens(self) -> float:
        """Tokens of a prompt that another one of its group has too, in whole blocks; the last
        token of a prompt is always computed."""
        shared = min(self.prefix_share * self.prompt, self.prompt - 1)
        return float(math.floor(shared / BLOCK) * BLOCK)

    def prompt_lengths(self) -> list[Any]:
        """Five equally likely prompt lengths (tokens), lognormal with coefficient ``cv``."""
        if self.cv <= 0:
            return [float(self.prompt)]
        sigma2 = math.log(1.0 + self.cv * self.cv)
        sigma = math.sqrt(sigma2)
        lengths = [math.exp(sigma * z - sigma2 / 2.0) for z in QUANTILES]
        mean = sum(lengths) / len(lengths)
        return [max(1.0, self.prompt * length / mean) for length in lengths]
