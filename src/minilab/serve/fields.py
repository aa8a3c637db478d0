"""Fields: a request's JSON body, read field by field, each refusal naming field and limit.

null means "not given", as OpenAI's clients send it. A name that nobody knows is passed over, as
vLLM does; a known one that would change the text and is not built is refused (``request_form``).
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from minilab.serve.api_error import bad_request

_SHOWN = 60


class Fields:
    """The top-level fields of one body.

    Raises:
        ApiError: (from each method) 400, a value of another type or outside its range.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def parse(cls, body: bytes) -> Fields:
        """From the bytes of a body: one JSON object in UTF-8."""
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise bad_request(
                f"the body is not UTF-8 (byte {error.start} is 0x{body[error.start]:02x}); "
                "send JSON in UTF-8"
            ) from None
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise bad_request(f"the body is not JSON: {reason}; send one JSON object") from None
        if not isinstance(value, dict):
            raise bad_request(f"the body is a JSON {_kind(value)}; send one JSON object")
        return cls(value)

    def given(self, name: str) -> Any:
        """The value, None where it is missing or null."""
        return self.values.get(name)

    def whole(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """A whole number in low..high."""
        value = self.given(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # some clients send 16.0
        if type(value) is not int or not low <= value <= high:
            self.refuse(name, f"give a whole number in {low}..{high}")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number in low..high."""
        value = self.given(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not low <= value <= high:
            limit = f"in {low:g}..{high:g}" if high < math.inf else f"of at least {low:g}"
            self.refuse(name, f"give a number {limit}")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or False; False where it is missing."""
        value = self.given(name)
        if value is None:
            return False
        if type(value) is not bool:
            self.refuse(name, "give true or false")
        return bool(value)

    def text(self, name: str) -> str | None:
        """A text that can be written as UTF-8."""
        value = self.given(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self.refuse(name, "give a text")
        return check_text(value, name)

    def refuse(self, name: str, way_out: str) -> NoReturn:
        """Raise: the value, and what would do."""
        raise bad_request(f"{name} is {shown(self.values.get(name))}; {way_out}", name)


def check_text(text: str, param: str) -> str:
    """``text``; refused if it has half of a surrogate pair, which JSON can say and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise bad_request(
            f"{param} has half of a surrogate pair at character {error.start}; "
            "send both halves or neither",
            param,
        ) from None
    return text


def shown(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _kind(value: Any) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
