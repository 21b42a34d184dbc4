"""What a client of llama.cpp's RPC may meet at an address: servers, and what is none."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

GIB = 2**30


@contextmanager
def serving(
    memory: Sequence[tuple[int, int]] = ((3 * GIB, 4 * GIB),),
    *,
    major: int = 7,
    instead: bytes | None = None,
    silent: bool = False,
) -> Iterator[str]:
    """The endpoint of a server whose devices have this memory, free and in all.

    `instead` is all that it says and then closes; a `silent` one has another client.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        work = _accept_none if silent else _accept
        thread = threading.Thread(
            target=work, args=(listener, list(memory), major, instead), daemon=True
        )
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(5.0)


def nobody() -> str:
    """An endpoint where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def _accept_none(*_: object) -> None:
    pass


def _accept(
    listener: socket.socket, memory: list[tuple[int, int]], major: int, instead: bytes | None
) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError, struct.error):
                if instead is None:
                    _serve(client, memory, major)
                else:
                    client.recv(64)
                    client.sendall(instead)


def _serve(client: socket.socket, memory: list[tuple[int, int]], major: int) -> None:
    while True:
        command, size = struct.unpack("<BQ", client.recv(9, socket.MSG_WAITALL))
        body = client.recv(size, socket.MSG_WAITALL) if size else b""
        if command == 14:
            answer = bytes((major, 0, 0)) + bytes(25)
        elif command == 15:
            answer = struct.pack("<I", len(memory))
        else:
            answer = struct.pack("<QQ", *memory[struct.unpack("<I", body)[0]])
        client.sendall(struct.pack("<Q", len(answer)) + answer)
