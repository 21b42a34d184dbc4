"""HTTP requests to one server: its address, key, headers, certificates and timeouts.

Each request runs in the client's event loop, so that a cancelled task closes its connection at
once, whatever it waits for. httpx2 is the HTTP library of huggingface_hub; this module is imported
when a server is first asked.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2

from eaglechat.links.http import faults
from eaglechat.links.http.address import parse_address
from eaglechat.links.http.answers import Event, events_in, read_json
from eaglechat.links.http.faults import ServerError
from eaglechat.paths import expanded
from eaglechat.settings.model import ServerSettings

PAGE_S = 30.0
"""The longest timeout for the pages on which a server describes itself; a reply may have more."""
_SHORTEST_KEY = 6
"""Characters from which the value of a header is taken for a key, and kept out of messages."""
KEY_COMMAND_S = 30.0
_printed_keys: dict[tuple[str, ...], str] = {}
"""By key_command, the key that it printed: the command may ask for a password or a touch."""
_FAULTS = (httpx2.RequestError, httpx2.InvalidURL)


class ServerClient:
    """Asks one server. Whatever goes wrong becomes a ServerError."""

    def __init__(self, server: ServerSettings) -> None:
        """Raises AddressError."""
        self.server = server
        self.address = parse_address(server.url)
        self.where = self.address.root
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(DaemonExecutor())
        self._key = ""
        self._opened: httpx2.AsyncClient | None = None

    @property
    def _client(self) -> httpx2.AsyncClient:
        """Raises ServerError if the certificates or a proxy of the environment cannot be used."""
        if self._opened is not None:
            return self._opened
        server = self.server
        certificates: ssl.SSLContext | bool = True
        if server.ca_file:
            try:
                certificates = ssl.create_default_context(cafile=expanded(server.ca_file))
            except (OSError, ssl.SSLError) as error:
                message = f"ca_file {server.ca_file} cannot be read: {error}"
                raise ServerError(message, code="settings") from None
        try:
            self._opened = httpx2.AsyncClient(
                headers={"User-Agent": "eaglechat", **server.headers},
                verify=certificates,
                timeout=httpx2.Timeout(server.timeout, connect=server.connect_timeout),
                # The chat and the key go to no address that the user has not named.
                follow_redirects=False,
                trust_env=not self.address.is_here,
            )
        except (ImportError, OSError, ValueError) as error:
            raise faults.environment_fault(error) from None
        return self._opened

    def close(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        if self._opened is not None:
            self.loop.run_until_complete(self._opened.aclose())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def ask(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON at an address, or that answers a request with this body. Raises ServerError."""
        server = self.server
        silence_s = min(PAGE_S, server.timeout) if body is None else server.timeout
        with self._explained(silence_s):
            response = await self._client.request(
                "GET" if body is None else "POST",
                url,
                json=body,
                headers=await self._key_header(),
                timeout=httpx2.Timeout(silence_s, connect=server.connect_timeout),
            )
        self._check(response, body)
        try:
            return read_json(response.content)
        except ValueError as error:
            raise self.odd(str(error)) from None

    @asynccontextmanager
    async def stream(
        self, url: str, body: Mapping[str, Any]
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events that answer a request, up to the one that ends them. Raises ServerError."""
        headers = {"Accept": "text/event-stream", **await self._key_header()}
        with self._explained(self.server.timeout):
            async with self._client.stream("POST", url, json=body, headers=headers) as response:
                if not response.is_success:
                    await response.aread()
                self._check(response, body)
                yield self._events(response)

    async def _events(self, response: httpx2.Response) -> AsyncIterator[Event]:
        n_events, event = 0, None
        with self._explained(self.server.timeout):
            try:
                async for event in events_in(response.aiter_bytes()):
                    if event.is_end:
                        # A server may be slow to close the response after it.
                        return
                    n_events += 1
                    yield event
            except ValueError as error:
                raise self.odd(str(error)) from None
        if event is not None and event.is_bare and n_events == 1:
            if faults.message_in(event.data):
                raise self.failed(event.data)
            raise self.odd("it is no reply")
        raise ServerError(f"{self.where} broke off during the reply", code=faults.CUT)

    def odd(self, why: str) -> ServerError:
        """The error for an answer that no OpenAI-compatible server would give."""
        return self.without_key(faults.not_understood(self.where, why))

    def failed(self, said: str) -> ServerError:
        """The error for a failure that the server tells in an answer with status 200."""
        said = faults.message_in(said) or faults.shortened(said) or "no reason given"
        return self.without_key(ServerError(f"{self.where} failed: {said}"))

    async def _key_header(self) -> dict[str, str]:
        self._key = await _find_key(self.server)
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    @contextmanager
    def _explained(self, silence_s: float) -> Iterator[None]:
        """Turns the HTTP library's errors into ServerErrors."""
        try:
            yield
        except _FAULTS as error:
            times = self.server.connect_timeout, silence_s
            proxy = self.address.proxy
            raise self.without_key(
                faults.transport_fault(error, self.where, proxy, *times)
            ) from None

    def _check(self, response: httpx2.Response, body: Mapping[str, Any] | None) -> None:
        if response.is_success:
            return
        model = str((body or {}).get("model", ""))
        has_key = "Authorization" in response.request.headers
        error = faults.status_fault(response, self.where, has_key=has_key, model=model)
        if error.code in ("key", faults.FORBIDDEN):
            # A key_command prints another one next time.
            _printed_keys.pop(self.server.key_command, None)
        raise self.without_key(error)

    def without_key(self, error: ServerError) -> ServerError:
        """The error without the keys that were sent: servers quote them."""
        text = str(error)
        given = [value.split()[-1] for value in self.server.headers.values() if value.strip()]
        for secret in (self._key, *(value for value in given if len(value) >= _SHORTEST_KEY)):
            text = text.replace(secret, "…") if secret else text
            # Its first characters may be the last ones of a message that was shortened.
            for end in range(len(secret) - 1, 3, -1):
                text = text.replace(f"{secret[:end]}…", "…")
        error.args = (text,)
        return error


async def _find_key(server: ServerSettings) -> str:
    """The key of a server; empty if its settings name none. Raises ServerError."""
    if server.key_env:
        source, key = server.key_env, os.environ.get(server.key_env, "").strip()
        if not key:
            raise ServerError(
                f"the key of {server.name} is read from {server.key_env}, which is not set",
                code="key",
            )
    elif server.key_command:
        source, key = "key_command", _printed_keys.get(server.key_command, "")
        key = key or await _printed_by_command(server)
    else:
        return ""
    if not (key.isascii() and key.isprintable()):
        raise ServerError(
            f"the key of {server.name} ({source}) holds characters that no key has", code="key"
        )
    if server.key_command:
        _printed_keys[server.key_command] = key
    return key


async def _printed_by_command(server: ServerSettings) -> str:
    """The first line that key_command prints, as `pass show` does. The command is killed when the
    task is cancelled. An error never quotes what it printed, which may be a key."""
    why, process = "printed nothing", None
    try:
        process = subprocess.Popen(
            server.key_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        # A thread reads its output and waits for its end.
        printed, _ = await asyncio.to_thread(process.communicate, timeout=KEY_COMMAND_S)
        lines = printed.decode("utf-8", "replace").strip().splitlines()
        if lines and not process.returncode:
            return lines[0].strip()
        if process.returncode:
            why = f"failed (exit status {process.returncode})"
    except subprocess.TimeoutExpired:
        why = f"took longer than {KEY_COMMAND_S:g} s"
    except (OSError, ValueError) as error:
        why = f"cannot be started ({type(error).__name__})"
    finally:
        if process is not None:
            process.kill()
    raise ServerError(
        f"the key_command of {server.name}, {server.key_command[0]}, {why}", code="key"
    )


class DaemonExecutor(ThreadPoolExecutor):
    """Runs each call in a daemon thread of its own: asyncio looks up host names in its executor,
    and the program's exit would wait for a name server that does not answer."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        # A future that runs cannot be cancelled: set_result would raise in a cancelled one.
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="lookup", daemon=True).start()
        return future
