"""The addresses of a server, from the one that people write."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from eaglechat.wire.errors import EngineError

_API = "/v1"
_CALLS = ("/chat/completions", "/completions", "/models")


class AddressError(EngineError):
    """Not the address of a server."""

    code = "server_address"


@dataclass(frozen=True)
class Address:
    """`root` is where a server's own pages are, `api` where its OpenAI-compatible ones."""

    root: str
    api: str
    host: str

    @property
    def is_here(self) -> bool:
        """On this machine, where no proxy stands between."""
        if self.host == "localhost":
            return True
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return ip.is_loopback or ip.is_unspecified

    @property
    def proxy(self) -> str:
        """The proxy that the environment puts before it, without a password; or nothing."""
        if self.is_here or proxy_bypass(self.host):
            return ""
        proxies = getproxies()
        proxy = proxies.get(urlsplit(self.root).scheme) or proxies.get("all", "")
        return proxy.rpartition("@")[2].rpartition("://")[2].rstrip("/")


def same_server(one: str, other: str) -> bool:
    """Whether two addresses, however they are written, are one."""
    try:
        return parse_address(one) == parse_address(other)
    except AddressError:
        return one == other


def parse_address(text: str) -> Address:
    """The address that is meant: without http:// or /v1, or with the end of one of its pages.

    Raises AddressError.
    """
    given = text.strip()
    url = given if "://" in given else f"http://{given}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"“{given}” is not the address of a server: {error}") from error
    schemes = ("http", "https")
    if parts.scheme not in schemes or not parts.hostname or parts.hostname in schemes:
        raise AddressError(f"“{given}” is not the address of a server: write http://host:port")
    if "@" in parts.netloc:
        raise AddressError(
            "the address of a server holds no password: name the variable of its key in key_env"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    path = parts.path.rstrip("/")
    for call in _CALLS:
        path = path.removesuffix(call)
    root = path.removesuffix(_API)
    # A path that ends otherwise is another maker's: what it is stays as it is written.
    api = path if path != root or "openai" in path else root + _API
    return Address(origin + root, origin + api, parts.hostname)
