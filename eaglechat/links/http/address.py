"""The addresses of a server's pages, from the address that the user writes."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from eaglechat.wire.errors import EngineError

_API = "/v1"
_VERSION = re.compile(r"/v[0-9]+[.\w]*$")
_CALLS = ("/chat/completions", "/completions", "/models")


class AddressError(EngineError):
    code = "server_address"


@dataclass(frozen=True)
class Address:
    """`root` is the base URL of a server's own pages, `api` that of its OpenAI-compatible ones."""

    root: str
    api: str
    host: str
    query: str = ""
    """What follows each call of the API, such as Azure's ?api-version=…"""

    def call(self, name: str) -> str:
        return f"{self.api}/{name}{self.query}"

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine, which is reached without a proxy."""
        if self.host == "localhost":
            return True
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return ip.is_loopback or ip.is_unspecified

    @property
    def proxy(self) -> str:
        """The proxy that the environment names for it, without its password; empty without one."""
        if self.is_here or proxy_bypass(self.host):
            return ""
        proxies = getproxies()
        proxy = proxies.get(urlsplit(self.root).scheme) or proxies.get("all", "")
        return proxy.rpartition("@")[2].rpartition("://")[2].rstrip("/")


def same_server(one: str, other: str) -> bool:
    """Whether two addresses mean the same server, however they are written."""
    try:
        return parse_address(one).root == parse_address(other).root
    except AddressError:
        return one == other


def parse_address(text: str) -> Address:
    """Reads an address that may lack http:// or /v1, or end in one of the API's calls. Raises
    AddressError."""
    given = text.strip()
    url = given if "://" in given else f"http://{given}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressError(f"“{given}” is not the address of a server: {error}") from error
    schemes = ("http", "https")
    name = parts.hostname if given.isprintable() and " " not in given else None
    if parts.scheme not in schemes or not name or name in schemes:
        raise AddressError(f"“{given}” is not the address of a server: write http://host:port")
    if "@" in parts.netloc:
        raise AddressError(
            "the address of a server holds no password: name the variable of its key in key_env"
        )
    host = f"[{name}]" if ":" in name else name
    origin = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    path = parts.path.rstrip("/")
    base = path
    for call in _CALLS:
        base = base.removesuffix(call)
    query = f"?{parts.query}" if parts.query else ""
    root = base.removesuffix(_API)
    # A base is used as it is if it names a version, as other services' do, or “openai”, as
    # Gemini's, or if a call was written behind it.
    is_whole = base != root or base != path or "openai" in base or _VERSION.search(base)
    return Address(origin + root, origin + base + ("" if is_whole else _API), name, query)
