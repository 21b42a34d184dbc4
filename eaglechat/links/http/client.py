"""Requests to one server, over HTTP: its addresses, key, headers, certificates and patience.

Everything here runs in one event loop, so that a cancelled task closes its connection at once,
whatever it waits for. httpx2 is the client that huggingface_hub brings; it is read when a server is
first asked.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import msgspec

from eaglechat.links.http.address import parse_address
from eaglechat.links.http.faults import ServerError, not_understood, of_status, of_transport
from eaglechat.settings.servers import ServerSettings

_KEY_COMMAND_S = 30.0
_FAULTS = (httpx2.RequestError, httpx2.InvalidURL, httpx2.SSEError)
DONE = "[DONE]"

Answer = TypeVar("Answer")


class ServerClient:
    """Asks one server. Errors are ServerErrors, in words."""

    def __init__(self, server: ServerSettings) -> None:
        """Raises AddressError."""
        self.server = server
        self.address = parse_address(server.url)
        self.where = self.address.root
        self._key = ""
        self._http: httpx2.AsyncClient | None = None

    async def open(self) -> None:
        """Find the key and the certificates. Raises ServerError."""
        self._key = await find_key(self.server)
        headers = {"User-Agent": "eaglechat", **self.server.headers}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            self._http = httpx2.AsyncClient(
                headers=headers,
                verify=_certificates(self.server.ca_file),
                timeout=httpx2.Timeout(self.server.timeout, connect=self.server.connect_timeout),
                # Not followed: neither the chat nor a key goes where nobody said it should.
                follow_redirects=False,
                trust_env=not self.address.is_loopback,
            )
        except ValueError as error:
            raise ServerError(
                f"the headers of {self.server.name} cannot be sent: {error}"
            ) from None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def get(self, url: str, kind: type[Answer], *, model: str = "") -> Answer:
        """What is at an address. Raises ServerError."""
        return await self._ask("GET", url, kind, model)

    async def text(self, url: str) -> str:
        """The text that is at an address. Raises ServerError."""
        with self._explained():
            response = await self._client.request("GET", url)
        self._check(response, "")
        return response.text

    async def post(self, url: str, body: Mapping[str, Any], kind: type[Answer]) -> Answer:
        """The answer to a request. Raises ServerError."""
        return await self._ask("POST", url, kind, str(body.get("model", "")), body)

    async def _ask(
        self, method: str, url: str, kind: type[Answer], model: str, body: Any = None
    ) -> Answer:
        with self._explained():
            response = await self._client.request(method, url, json=body)
        self._check(response, model)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise not_understood(self.where, str(error)) from None

    @asynccontextmanager
    async def stream(self, url: str, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[str]]:
        """The events that answer a request, as JSON, up to its end. Raises ServerError."""
        with self._explained():
            async with self._client.stream(
                "POST", url, json=body, headers={"Accept": "text/event-stream"}
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                self._check(response, str(body.get("model", "")))
                yield self._events(response)

    async def _events(self, response: httpx2.Response) -> AsyncIterator[str]:
        is_whole = False
        with self._explained():
            async for event in httpx2.EventSource(response):
                if event.data == DONE:
                    is_whole = True
                elif event.data:
                    yield event.data
        if not is_whole:
            raise ServerError(f"{self.where} ended in mid-reply", code="cut", is_passing=True)

    def _explained(self) -> _Explained:
        return _Explained(self)

    def _check(self, response: httpx2.Response, model: str) -> None:
        if response.status_code != 200:
            error = of_status(response, self.where, has_key=bool(self._key), model=model)
            raise self.without_key(error)

    def without_key(self, error: ServerError) -> ServerError:
        """The error; its key is not in its text, though servers quote it."""
        if self._key and self._key in str(error):
            error.args = (str(error).replace(self._key, "…"),)
        return error

    @property
    def _client(self) -> httpx2.AsyncClient:
        assert self._http is not None
        return self._http


class _Explained:
    """Turns errors of the connection into ServerErrors."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, _FAULTS):
            client = self._client
            times = client.server.connect_timeout, client.server.timeout
            raise client.without_key(of_transport(error, client.where, *times)) from None


def _certificates(ca_file: str) -> ssl.SSLContext | bool:
    """Raises ServerError."""
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=Path(ca_file).expanduser())
    except (OSError, ssl.SSLError) as error:
        raise ServerError(f"ca_file {ca_file} cannot be read: {error}", code="settings") from None


async def find_key(server: ServerSettings) -> str:
    """The key of a server, or nothing where it has none. Raises ServerError."""
    if server.key_env:
        key = os.environ.get(server.key_env, "").strip()
        if not key:
            raise ServerError(
                f"the key of {server.name} is to be in {server.key_env}, which is not set",
                code="key",
            )
        return key
    if not server.key_command:
        return ""
    return await asyncio.to_thread(_printed_key, server)


def _printed_key(server: ServerSettings) -> str:
    try:
        done = subprocess.run(
            server.key_command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_KEY_COMMAND_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # What it printed may be a key.
        why = (
            f"exit status {error.returncode}"
            if isinstance(error, subprocess.CalledProcessError)
            else type(error).__name__
        )
        raise ServerError(
            f"the key_command of {server.name}, {server.key_command[0]}, failed ({why})", code="key"
        ) from None
    return done.stdout.decode("utf-8", "replace").strip()
