"""What can go wrong when a server is asked: each fault as a sentence that says what to do."""

from __future__ import annotations

import math
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import httpx2

from eaglechat.links.http.answers import read_json
from eaglechat.settings.model import SERVER_KEY
from eaglechat.wire.errors import EngineError

CHECK_ADDRESS = (
    "check its address (url), to which /v1 is added unless it names a version, or a call such as "
    "/chat/completions"
)
_MOST_SAID, _MOST_ERRORS = 300, 5
_MESSAGES = ("message", "error", "errors", "detail", "msg", "error_description", "title")
_TOO_LONG = re.compile("context (length|window|size)|exceed_context_size|context_length_exceeded")
_NO_ROOM = re.compile(r"max_(completion_)?tokens\W.{0,40}too large")
# Codes of errors
TOO_LONG = "context"  # a conversation that is longer than the context
REFUSED = "refused"  # a request that the server does not answer
FORBIDDEN = "forbidden"  # a page that the key does not open; others it may
MISSING = "missing"  # a page or a model that the server does not have
NOT_UNDERSTOOD = "protocol"  # an answer that no OpenAI-compatible server would give
CUT = "cut"  # a connection that ended before the reply did
LOADING = "loading"  # a server that is still loading its model
_UNREACHABLE, _BUSY, _AWAY = "unreachable", "busy", "away"
PASSING = (CUT, LOADING, _UNREACHABLE, _BUSY, _AWAY)
"""Those after which asking again may help."""


class ServerError(EngineError):
    """A request to a server failed. `wait_s`: seconds that the server asks to wait. `said`: what
    the server says of a request that it refuses."""

    code = "server"

    def __init__(
        self, message: str, *, code: str = "server", wait_s: float | None = None, said: str = ""
    ) -> None:
        super().__init__(message)
        self.code, self.wait_s, self.said = code, wait_s, said


def environment_fault(error: Exception) -> ServerError:
    """The certificates or the proxy that the environment names cannot be used."""
    if isinstance(error, OSError):
        why = error.strerror or error
        message = f"the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be read: {why}"
    elif isinstance(error, ImportError):
        message = (
            "the environment names a SOCKS proxy (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY), which "
            "needs a package: install socksio beside eaglechat, or unset the variable"
        )
    else:
        message = f"the proxy that the environment names cannot be used: {error}"
    return ServerError(message, code="settings")


def transport_fault(
    error: Exception, where: str, proxy: str, connect_s: float, silence_s: float
) -> ServerError:
    """The connection to a server, or to the proxy before it, failed with this error."""
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        is_of_tls = any(isinstance(cause, ssl.SSLError) for cause in _causes(error))
        if proxy and not is_of_tls:
            why = (
                f"{where} cannot be reached: the proxy that the environment names, {proxy}, does "
                "not answer; check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, or put the server's "
                "host in NO_PROXY"
            )
        else:
            why = _why_no_connection(error, where, connect_s)
        return ServerError(why, code=_UNREACHABLE)
    if isinstance(error, httpx2.TimeoutException):
        return ServerError(f"{where} has sent nothing for {silence_s:g} s", code="silent")
    if isinstance(error, httpx2.ProxyError):
        why = f"the proxy refuses to connect to {where}: {error}"
        return ServerError(why, code=_UNREACHABLE)
    if isinstance(error, httpx2.TransportError):
        return ServerError(f"the connection to {where} broke", code=CUT)
    return not_understood(where, str(error))


def _why_no_connection(error: Exception, where: str, connect_s: float) -> str:
    if isinstance(error, httpx2.ConnectTimeout):
        return f"{where} did not answer within {connect_s:g} s"
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the certificate of {where} is not trusted ({cause.verify_message}): name the "
                "file of the CA that signed it in ca_file"
            )
        if isinstance(cause, ssl.SSLError):
            return f"{where} does not speak TLS ({cause.reason}): is it http://?"
        if isinstance(cause, socket.gaierror):
            return f"the host of {where} is not known"
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing answers at {where}: is the server running there?"
    return f"{where} cannot be reached: {error}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes; a host with several addresses has one cause for each."""
    while error is not None:
        yield error
        for one in getattr(error, "exceptions", ()):
            yield from _causes(one)
        error = error.__cause__ or error.__context__


def not_understood(where: str, why: str = "") -> ServerError:
    """An answer that no OpenAI-compatible server would give."""
    detail = f" ({shortened(why)})" if why else ""
    return ServerError(f"the answer of {where} is not understood{detail}", code=NOT_UNDERSTOOD)


def status_fault(
    response: httpx2.Response, where: str, *, has_key: bool, model: str
) -> ServerError:
    """A server answered with a status other than 200; the body has been read."""
    status, text, said = response.status_code, response.text, message_in(response.content)
    because = f": {said}" if said else ""
    if 300 <= status < 400:
        to = response.headers.get("Location", "somewhere else")
        return ServerError(
            f"{where} redirects to {to}, which got neither the chat nor a key; if that is your "
            "server, use its address as url",
            code="redirect",
        )
    if status in (401, 403):
        wanted = (
            f"asks for a key: put it in {SERVER_KEY}; if the server has an entry in config.toml, "
            "in the variable that its key_env names"
        )
        why = "does not accept the key" if has_key else wanted
        code = "key" if status == 401 else FORBIDDEN
        return ServerError(f"{where} {why} (HTTP {status})", code=code)
    if status == 404:
        has = f"has no model named “{model}”" if model else "has no such page"
        check = "" if model else f"; {CHECK_ADDRESS}"
        return ServerError(f"{where} {has} (HTTP 404{because}){check}", code=MISSING)
    wait_s = retry_after_s(response.headers)
    if status == 429:
        asks = f"asks to wait {wait_s:,.0f} s" if wait_s else "has had too many requests"
        return ServerError(f"{where} {asks} (HTTP 429{because})", code=_BUSY, wait_s=wait_s)
    if status >= 500:
        code = _AWAY if status in (502, 503, 504) else ServerError.code
        if status == 503 and "Loading model" in said:
            code = LOADING
        return ServerError(f"{where} failed (HTTP {status}){because}", code=code, wait_s=wait_s)
    what, code, advice = "this request", REFUSED, ""
    if status in (400, 422) and _NO_ROOM.search(text):
        what, code = "to write as much as max_tokens", TOO_LONG
        advice = "; lower that, or start the server with more context"
    elif status in (400, 413, 422) and _TOO_LONG.search(text):
        what, code = "a prompt longer than its context", TOO_LONG
        advice = "; shorten it, or start the server with more context"
    return ServerError(
        f"{where} refuses {what} (HTTP {status}){because}{advice}",
        code=code,
        said=(said or text) if status in (400, 422) else "",
    )


def message_in(body: str | bytes) -> str:
    """The message in the body of an error, shortened; empty if it has none."""
    try:
        return shortened(_said(read_json(body)))
    except (ValueError, RecursionError):
        return ""


def _said(value: Any) -> str:
    """The message of an error in the shapes of OpenAI, older vLLM, FastAPI and others, with the
    name of the field that it is about."""
    if isinstance(value, list):
        return "; ".join(filter(None, map(_said, value[:_MOST_ERRORS])))
    if not isinstance(value, dict):
        return value if isinstance(value, str) else ""
    said = next(filter(None, (_said(value.get(name)) for name in _MESSAGES)), "")
    field = value.get("loc") or value.get("param")
    if isinstance(field, list):
        field = ".".join(map(str, field))
    return f"{field}: {said}" if isinstance(field, str) and field not in said else said


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait; None if it names none. A date is not read: then the
    usual waits apply."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if 0 < seconds < math.inf else None


def shortened(text: str) -> str:
    """What a server says, on one line that is not too long."""
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"
