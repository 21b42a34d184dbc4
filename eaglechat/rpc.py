"""llama.cpp's RPC servers: processes on other machines that lend their devices.

This module asks a server what it is, without llama.cpp, which would end the process on a failure.
A server serves anybody who can reach it, one client at a time.
"""

from __future__ import annotations

import io
import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from eaglechat.wire.errors import RpcError

ANSWERS_WITHIN_S = 3.0

_KNOWN_PROTOCOL = 7
"""The major version of the protocol in which this module can ask for the devices' memory."""
_HELLO, _DEVICE_COUNT, _DEVICE_MEMORY = 14, 15, 11
_HELLO_BODY = bytes(24)
_LONGEST_ANSWER = 1024


@dataclass(frozen=True)
class RpcServer:
    """A server that answered, `latency_ms` after it was asked.

    `memory` has a pair for each device, bytes free and bytes in all; it is empty if the server
    speaks another version of the protocol.
    """

    endpoint: str
    protocol: str
    latency_ms: float
    memory: tuple[tuple[int, int], ...]

    @property
    def free(self) -> int:
        return sum(free for free, _ in self.memory)


def ask(endpoint: str, patience_s: float = ANSWERS_WITHIN_S) -> RpcServer:
    """Ask one server. Raises RpcError."""
    host, _, port = endpoint.rpartition(":")
    try:
        # llama.cpp itself connects over IPv4 only.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(patience_s)
            connection.connect((host, int(port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("rwb") as server:
                return _ask(endpoint, server)
    except TimeoutError:
        raise RpcError(
            f"the RPC server {endpoint} does not answer within {patience_s:g} seconds; it serves "
            "one client at a time, and another one may have it"
        ) from None
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise RpcError(f"the RPC server {endpoint} cannot be reached: {reason}") from error
    except (ValueError, struct.error):
        raise RpcError(
            f"what listens at {endpoint} (engine.rpc_servers) does not speak llama.cpp's RPC"
        ) from None


def ask_all(endpoints: Sequence[str]) -> list[RpcServer | RpcError]:
    """Ask servers, all at once; an RpcError in the result says why that one cannot be used."""

    def asked(endpoint: str) -> RpcServer | RpcError:
        try:
            return ask(endpoint)
        except RpcError as error:
            return error

    with ThreadPoolExecutor(max(len(endpoints), 1)) as pool:
        return list(pool.map(asked, endpoints))


def _ask(endpoint: str, server: io.BufferedRWPair) -> RpcServer:
    """Raises ValueError and struct.error for what no such server answers."""
    began = time.perf_counter()
    version = _answer(server, _HELLO, _HELLO_BODY)
    latency_ms = (time.perf_counter() - began) * 1000.0
    if len(version) < 3:
        raise ValueError
    memory: tuple[tuple[int, int], ...] = ()
    if version[0] == _KNOWN_PROTOCOL:
        (count,) = struct.unpack("<I", _answer(server, _DEVICE_COUNT))
        memory = tuple(
            struct.unpack("<QQ", _answer(server, _DEVICE_MEMORY, struct.pack("<I", number)))
            for number in range(count)
        )
    return RpcServer(endpoint, ".".join(map(str, version[:3])), latency_ms, memory)


def _answer(server: io.BufferedRWPair, command: int, body: bytes = b"") -> bytes:
    server.write(struct.pack("<BQ", command, len(body)) + body)
    server.flush()
    (length,) = struct.unpack("<Q", server.read(8))
    if length > _LONGEST_ANSWER:
        raise ValueError
    return server.read(length)
