"""The settings of an external server: how it is reached."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
from msgspec import Meta

SERVER_KEY = "EAGLECHAT_SERVER_KEY"
"""The environment variable that holds the API key of a server without an entry."""

Seconds = Annotated[float, Meta(gt=0.0, le=86_400.0)]
Text = Annotated[str, Meta(min_length=1)]
HeaderName = Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Meta(pattern=r"^[ -~]*$")]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry `[[server]]` of config.toml."""

    name: Text
    url: Text
    model: str = ""
    plain_model: str = ""
    key_env: str = ""
    key_command: tuple[str, ...] = ()
    headers: dict[HeaderName, HeaderValue] = {}
    ca_file: str = ""
    connect_timeout: Seconds = 10.0
    timeout: Seconds = 300.0


def key_variable() -> str:
    """The name of the environment variable with the API key of a server without an entry; empty if
    the variable is not set."""
    return SERVER_KEY if os.environ.get(SERVER_KEY) else ""


def read_servers(raw: Any) -> tuple[tuple[ServerSettings, ...], list[str]]:
    """The valid entries, and for each other entry why it is left out."""
    if not isinstance(raw, list):
        return (), ["must be a list of tables: write [[server]], and its keys on the lines below"]
    servers: dict[str, ServerSettings] = {}
    wrong: list[str] = []
    for number, entry in enumerate(raw, 1):
        try:
            server = msgspec.convert(entry, ServerSettings)
        except msgspec.ValidationError as error:
            wrong.append(f"number {number} is left out: {error}")
            continue
        if server.name in servers:
            wrong.append(f"number {number} is left out: there is another “{server.name}”")
        else:
            servers[server.name] = server
    return tuple(servers.values()), wrong
