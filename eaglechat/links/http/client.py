"""Requests to one server, over HTTP: its addresses, key, headers, certificates and patience.

Everything here runs in one event loop, so that a cancelled task closes its connection at once,
whatever it waits for. httpx2 is the client that huggingface_hub brings; it is read when a server is
first asked.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
import msgspec

from eaglechat.links.http.address import parse_address
from eaglechat.links.http.faults import (
    CUT,
    ServerError,
    message_in,
    not_understood,
    of_environment,
    of_status,
    of_transport,
)
from eaglechat.links.http.keys import find_key, forget_key
from eaglechat.paths import expanded
from eaglechat.settings.servers import ServerSettings

_PAGE_S = 30.0
"""What a server says of itself comes within this, whatever the patience with its replies."""
_SHORTEST_KEY = 6
"""A header's value may be one."""
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

    async def __aenter__(self) -> ServerClient:
        """Raises ServerError where the certificates or the proxies cannot be used."""
        server = self.server
        certificates = _certificates(server.ca_file)
        try:
            self._http = httpx2.AsyncClient(
                headers={"User-Agent": "eaglechat", **server.headers},
                verify=certificates,
                timeout=httpx2.Timeout(server.timeout, connect=server.connect_timeout),
                # Not followed: neither the chat nor a key goes where nobody said it should.
                follow_redirects=False,
                trust_env=not self.address.is_here,
            )
        except (ImportError, OSError, ValueError) as error:
            raise of_environment(error) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, url: str, kind: type[Answer]) -> Answer:
        """What is at an address, which says it soon. Raises ServerError."""
        soon = min(_PAGE_S, self.server.timeout)
        return self._read(await self._ask("GET", url, silence_s=soon), kind)

    async def text(self, url: str) -> str:
        """The text that is at an address. Raises ServerError."""
        return (await self._ask("GET", url)).text

    async def post(self, url: str, body: Mapping[str, Any], kind: type[Answer]) -> Answer:
        """The answer to a request. Raises ServerError."""
        return self._read(await self._ask("POST", url, body), kind)

    async def _ask(
        self, method: str, url: str, body: Any = None, silence_s: float | None = None
    ) -> httpx2.Response:
        silence_s = silence_s or self.server.timeout
        with self._explained(silence_s):
            response = await self._client.request(
                method,
                url,
                json=body,
                headers=await self._key_header(),
                timeout=httpx2.Timeout(silence_s, connect=self.server.connect_timeout),
            )
        self._check(response, body)
        return response

    def _read(self, response: httpx2.Response, kind: type[Answer]) -> Answer:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise not_understood(self.where, str(error)) from None

    @asynccontextmanager
    async def stream(
        self, url: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[AsyncIterator[str]]:
        """The events that answer a request, as JSON, up to its end; those of an address without
        one. Raises ServerError."""
        headers = {"Accept": "text/event-stream", **await self._key_header()}
        with self._explained(self.server.timeout):
            async with self._client.stream(
                "GET" if body is None else "POST", url, json=body, headers=headers
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                self._check(response, body)
                await self._check_error(response)
                # Events are UTF-8, whatever a proxy says of them.
                response.encoding = "utf-8"
                yield self._events(response)

    async def _events(self, response: httpx2.Response) -> AsyncIterator[str]:
        with self._explained(self.server.timeout):
            async for event in httpx2.EventSource(response):
                if event.data == DONE:
                    # Not waited for: a server may be slow to end the answer behind it.
                    return
                if event.data:
                    yield event.data
        raise ServerError(f"{self.where} broke off during the reply", code=CUT, is_passing=True)

    async def _key_header(self) -> dict[str, str]:
        self._key = await find_key(self.server)
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    @contextmanager
    def _explained(self, silence_s: float) -> Iterator[None]:
        """Turns errors of the connection into ServerErrors."""
        try:
            yield
        except _FAULTS as error:
            times = self.server.connect_timeout, silence_s
            proxy = self.address.proxy
            raise self.without_key(of_transport(error, self.where, proxy, *times)) from None

    def _check(self, response: httpx2.Response, body: Mapping[str, Any] | None) -> None:
        if response.status_code == 200:
            return
        model = str((body or {}).get("model", ""))
        has_key = "Authorization" in response.request.headers
        error = of_status(response, self.where, has_key=has_key, model=model)
        if error.code == "key":
            forget_key(self.server)
        raise self.without_key(error)

    async def _check_error(self, response: httpx2.Response) -> None:
        """Some servers send an error with status 200."""
        is_json = "json" in response.headers.get("Content-Type", "")
        if is_json and (said := message_in(await response.aread())):
            raise self.without_key(ServerError(f"{self.where} failed: {said}"))

    def without_key(self, error: ServerError) -> ServerError:
        """The error; what it was asked with is not in its text, though servers quote it."""
        text = str(error)
        given = [value.split()[-1] for value in self.server.headers.values() if value.strip()]
        for secret in (self._key, *(value for value in given if len(value) >= _SHORTEST_KEY)):
            text = text.replace(secret, "…") if secret else text
        error.args = (text,)
        return error

    @property
    def _client(self) -> httpx2.AsyncClient:
        assert self._http is not None
        return self._http


def _certificates(ca_file: str) -> ssl.SSLContext | bool:
    """Raises ServerError."""
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=expanded(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ServerError(f"ca_file {ca_file} cannot be read: {error}", code="settings") from None
