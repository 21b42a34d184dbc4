"""The keys of servers: from the environment, or printed by a command."""

from __future__ import annotations

import asyncio
import os
import subprocess

from eaglechat.links.http.faults import ServerError
from eaglechat.settings.servers import ServerSettings

_KEY_COMMAND_S = 30.0
_printed: dict[tuple[str, ...], str] = {}
"""By the command that printed it: it may want a password, or a finger on a token."""


async def find_key(server: ServerSettings) -> str:
    """The key of a server, or nothing where it has none. Raises ServerError."""
    if server.key_env:
        source, key = server.key_env, os.environ.get(server.key_env, "").strip()
        if not key:
            raise ServerError(
                f"the key of {server.name} is read from {server.key_env}, which is not set",
                code="key",
            )
    elif server.key_command:
        source, known = "key_command", _printed.get(server.key_command)
        key = known if known is not None else await _run(server)
    else:
        return ""
    if not (key.isascii() and key.isprintable()):
        raise ServerError(
            f"the key of {server.name} ({source}) holds characters that no key has", code="key"
        )
    if server.key_command:
        _printed[server.key_command] = key
    return key


def forget_key(server: ServerSettings) -> None:
    """It was refused: have the command print it again."""
    _printed.pop(server.key_command, None)


async def _run(server: ServerSettings) -> str:
    """The first line that the command prints, as of `pass show`. It ends with whoever waits."""
    try:
        process = subprocess.Popen(
            server.key_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, ValueError) as error:
        raise _failed(server, f"cannot be started ({type(error).__name__})") from None
    try:
        # The thread that reads it waits for its end, too.
        printed, _ = await asyncio.to_thread(process.communicate, timeout=_KEY_COMMAND_S)
    except subprocess.TimeoutExpired:
        raise _failed(server, f"took longer than {_KEY_COMMAND_S:g} s") from None
    finally:
        process.kill()
    if process.returncode:
        raise _failed(server, f"failed (exit status {process.returncode})")
    # What it printed may be a key: an error never quotes it.
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        raise _failed(server, "printed nothing")
    return lines[0].strip()


def _failed(server: ServerSettings, how: str) -> ServerError:
    return ServerError(
        f"the key_command of {server.name}, {server.key_command[0]}, {how}", code="key"
    )
