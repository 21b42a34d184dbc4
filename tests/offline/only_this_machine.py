"""Python processes that import this ask nobody but this machine: an audit hook looks at each
connection before it is made. It imports nothing, so that what a command imports can be tested."""

from __future__ import annotations

import sys

LOOPBACK = ("127.", "localhost", "::1", "0.0.0.0", "::ffff:127.")
refused: list[str] = []
"""What was asked for elsewhere: none of a test's business."""


def _is_here(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    return not name or (isinstance(name, str) and name.startswith(LOOPBACK))


def _look_at(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
        if isinstance(host, bytes):
            host = host.decode()
        if isinstance(host, str) and host.endswith(".invalid"):
            # As a resolver answers that invents no hosts: RFC 6761 reserves the name.
            import socket

            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    elif event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        if not isinstance(address, tuple):  # a socket of this machine's files
            return
        host = address[0]
    else:
        return
    if not _is_here(host):
        refused.append(str(host))
        raise RuntimeError(f"a test asks {host}, which is not this machine")


sys.addaudithook(_look_at)
