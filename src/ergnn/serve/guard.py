"""Access control and limits on requests, checked before a body is read."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ergnn.data.tables.limits import MEGABYTE
from ergnn.serve.limits import ServeLimits

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOG = logging.getLogger("ergnn.serve")


def is_loopback(host: str) -> bool:
    return host in LOOPBACK


def _hostname(host: str) -> str:
    """The host name in a Host header, without port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


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
        state = {"status": 0, "read": False}
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        most = self.limits.update_megabytes if scope["path"] == "/observe" else self.limits.predict_megabytes
        with self.metrics.request(scope, state):
            try:
                self._admit(scope, headers, most)
                self._running += 1
                try:
                    with anyio.fail_after(self.limits.seconds):
                        await self.app(scope, _counted(receive, most, state), _watched(send, state))
                finally:
                    self._running -= 1
            except HTTPException as error:
                await _refuse(send, state, error.status_code, error.detail, error.headers)
            except TimeoutError:
                late = "finish" if state["read"] else "arrive"
                status = 503 if state["read"] else 408
                await _refuse(send, state, status, f"the request did not {late} within {self.limits.seconds:g} seconds")
            except ClientDisconnect:
                state["status"] = 499  # nobody reads the response
            except Exception:
                LOG.exception("%s %s", scope["method"], scope["path"])
                await _refuse(send, state, 500, "internal error; see the log of the server")

    def _admit(self, scope: Any, headers: dict[str, str], most: int) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.token is None and not is_loopback(_hostname(host)):
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


def _counted(receive: Any, most: int, state: dict[str, Any]) -> Any:
    """Count the bytes of a body as they arrive."""
    size = 0

    async def counted() -> Any:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most * MEGABYTE:
            raise _too_large(most)
        state["read"] = not message.get("more_body", False)
        return message

    return counted


def _watched(send: Any, state: dict[str, Any]) -> Any:
    async def watched(message: Any) -> None:
        if message["type"] == "http.response.start":
            state["status"] = message["status"]
        await send(message)

    return watched


async def _refuse(send: Any, state: dict[str, Any], status: int, text: str, headers: Any = None) -> None:
    """Respond with one line of JSON, unless a response has begun."""
    if state["status"]:
        return
    state["status"] = status
    body = json.dumps({"error": one_line(text)}).encode()
    more = [(key.encode(), value.encode()) for key, value in (headers or {}).items()]
    start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def one_line(text: object, most: int = 500) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
