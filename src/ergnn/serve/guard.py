"""Access control and limits on requests, checked before a body is read."""

from __future__ import annotations

import base64
import hmac
import logging
import re
from textwrap import shorten
from time import perf_counter
from typing import Any

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from ergnn.config.limits import MEGABYTE, ServeLimits

LOG = logging.getLogger("ergnn.serve")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]*)?", re.IGNORECASE)
"""Host headers of requests to this machine."""


def one_line(text: object) -> str:
    return shorten(str(text), 500, placeholder="…")


def problem(status: int, text: object, headers: Any = None) -> JSONResponse:
    """The response to a request that is refused."""
    return JSONResponse({"error": one_line(text)}, status, headers)


class Guard:
    """Middleware that checks token, origin, number, size and time of requests; every error is one line of JSON.

    Args:
        app: the application.
        limits: limits on requests.
        token: required in every request except ``GET /health``; without one only loopback names are accepted, so that a
            web page cannot reach the service under a name of its own (DNS rebinding).
        metrics: metrics that count requests.
    """

    def __init__(self, app: Any, limits: ServeLimits, token: str | None, metrics: Any) -> None:
        self.app, self.limits, self.token, self.metrics = app, limits, token, metrics
        self._running = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self.limits.update_megabytes if scope["path"] == "/observe" else self.limits.predict_megabytes
        size, is_read, status = 0, False, 0

        async def counted() -> Any:
            """Count the bytes of a body as they arrive."""
            nonlocal size, is_read
            message = await receive()
            size += len(message.get("body", b""))
            if size > most * MEGABYTE:
                raise _too_large(most)
            is_read = not message.get("more_body", False)
            return message

        async def watched(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        async def refuse(code: int, text: str, headers: Any = None) -> None:
            if not status:  # otherwise a response has begun
                await problem(code, text, headers)(scope, receive, watched)

        start = perf_counter()
        with self.metrics.running.track_inprogress():
            try:
                self._admit(scope, Headers(scope=scope), most)
                self._running += 1
                try:
                    with anyio.fail_after(self.limits.seconds):
                        await self.app(scope, counted, watched)
                finally:
                    self._running -= 1
            except HTTPException as error:
                await refuse(error.status_code, error.detail, error.headers)
            except TimeoutError:
                late = "finish" if is_read else "arrive"
                text = f"the request did not {late} within {self.limits.seconds:g} seconds"
                await refuse(503 if is_read else 408, text)
            except ClientDisconnect:
                status = 499  # nobody reads the response
            except Exception:
                LOG.exception("%s %s", scope["method"], scope["path"])
                await refuse(500, "internal error; see the log of the server")
        path = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
        self.metrics.requests.labels(method, path, status).inc()
        self.metrics.seconds.labels(path).observe(perf_counter() - start)

    def _admit(self, scope: Any, headers: Headers, most: int) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.token is None and not LOCAL.fullmatch(host):
            raise HTTPException(403, "without a token, only requests to localhost are accepted")
        if scope["method"] not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != host:
            raise HTTPException(403, "requests from pages of other sites are refused")
        if self.token is not None and scope["path"] != "/health" and not self._valid(headers.get("authorization", "")):
            allowed = {"www-authenticate": 'Bearer, Basic realm="ergnn: any user, the token as password"'}
            raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN", allowed)
        if self._running >= self.limits.concurrent:
            raise HTTPException(503, f"{self._running} requests are in progress; try again", {"retry-after": "1"})
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > most * MEGABYTE:
            raise _too_large(most)

    def _valid(self, value: str) -> bool:
        """Compare a bearer token, or the password of basic authentication, with the token in constant time."""
        kind, _, given = value.partition(" ")
        if kind.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except ValueError:
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), (self.token or "").encode())


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {most:,} MB", {"connection": "close"})
