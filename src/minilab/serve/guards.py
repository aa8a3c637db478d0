"""Guards: what stands before every handler, of the server and of the proxy alike."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from minilab.serve.api_error import ApiError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logging.getLogger(__name__)


def error_response(error: ApiError) -> web.Response:
    """An error as a response of its own."""
    return web.json_response(error.to_dict(), status=error.status, headers=error.headers)


@web.middleware
async def openai_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error in OpenAI's form; one that nobody foresaw is told to the log, not the client."""
    try:
        return await handler(request)
    except ApiError as error:
        return error_response(error)
    except web.HTTPException as error:
        return error_response(_from_aiohttp(request, error))
    except ConnectionError:
        return web.Response()  # the client is gone: nobody will read it, and nothing is wrong here
    except Exception:
        _log.exception("%s %s", request.method, request.path)
        return error_response(ApiError(500, "a fault of the server's own; its log says more"))


def _from_aiohttp(request: web.Request, error: web.HTTPException) -> ApiError:
    if error.status == 404:
        return ApiError(404, f"there is no {request.path} here; see /v1/models", code="not_found")
    if error.status == 405:
        allowed = error.headers.get("Allow", "")
        told = f"{request.method} {request.path} is not possible; use {allowed}"
        return ApiError(405, told, headers={"Allow": allowed})
    if error.status == 413:
        most = request.client_max_size
        told = f"the body is larger than {most} bytes; send less, or raise --max-body"
        return ApiError(413, told, code="body_too_large")
    return ApiError(error.status, error.reason)


def bearer(request: web.Request) -> str:
    """The API key that a request carries, "" for none."""
    kind, _, key = request.headers.get("Authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else ""


def wants_key(keys: Sequence[str]) -> Middleware:
    """A guard that asks for one of ``keys`` (none: for nothing) under /v1/.

    Every key is compared, each in constant time: how long it takes tells nothing of any key.
    """
    known = [key.encode() for key in keys]

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if known and request.path.startswith("/v1/"):
            given = bearer(request).encode("utf-8", "surrogateescape")
            matches = [hmac.compare_digest(given, key) for key in known]
            if not any(matches):
                raise ApiError(
                    401,
                    "no valid API key; send the header `Authorization: Bearer KEY`",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        return await handler(request)

    return guard
