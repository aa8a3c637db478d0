"""ApiError: an error as OpenAI's clients expect it: an HTTP status and one JSON object.

The official client picks its exception by the status alone (400 BadRequestError, 401
AuthenticationError, 404 NotFoundError, 429 RateLimitError, 5xx InternalServerError).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = {429: "rate_limit_error", 401: "authentication_error"}


class ApiError(Exception):
    """What a client is told instead of a result.

    Attributes:
        status: of the HTTP response, if none has been sent yet.
        message: one sentence: what was given, the limit, the way out.
        code: a word that programs can compare, or None.
        param: the field of the request that is wrong, or None.
        headers: further headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """OpenAI's ``type``: whose fault it is."""
        fallback = "server_error" if self.status >= 500 else "invalid_request_error"
        return _TYPES.get(self.status, fallback)

    def to_dict(self) -> dict[str, Any]:
        """The body of the response, and of the event that ends a broken stream."""
        told = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": told}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The client can mend it: 400."""
    return ApiError(400, message, param=param, code=code)


def overloaded(message: str, seconds: int) -> ApiError:
    """The queue is full: 429, and when to come back."""
    return ApiError(429, message, code="queue_full", headers={"Retry-After": str(max(1, seconds))})


def shutting_down() -> ApiError:
    """The server takes no new requests and ends what lasts too long: 503."""
    return ApiError(
        503,
        "the server is shutting down; send the request to another replica, or later",
        code="shutting_down",
        headers={"Retry-After": "1"},
    )
