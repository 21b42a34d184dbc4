"""The devices of llama.cpp's RPC servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eaglechat.engine.llama import bindings
from eaglechat.engine.llama.backend import backends, device_of
from eaglechat.engine.llama.placement import Device
from eaglechat.links.rpc import RpcServer, ask_all
from eaglechat.wire.errors import RpcError

NOT_BUILT = (
    "engine.rpc_servers needs a llama-cpp-python that was built with RPC: "
    'CMAKE_ARGS="-DGGML_RPC=ON" pip install --force-reinstall --no-cache-dir '
    '--no-binary llama-cpp-python "llama-cpp-python>=0.3.36,<0.4"'
)


def connect(endpoints: Sequence[str]) -> tuple[Device, ...]:
    """The devices of these servers.

    Raises RpcError if a server does not answer or this llama.cpp has no RPC.
    """
    if endpoints and not can_connect():
        raise RpcError(NOT_BUILT)
    for answer in ask_all(endpoints):
        if isinstance(answer, RpcError):
            raise answer
    return tuple(
        device_of(device) for endpoint in endpoints for device in bindings.rpc_devices(endpoint)
    )


def can_connect() -> bool:
    """Whether this llama.cpp was built with RPC."""
    return "RPC" in backends()


def devices_of(server: RpcServer, first: int) -> Iterator[Device]:
    """A server's devices as llama.cpp will name them, the first of them RPC`first`."""
    for index, (free, total) in enumerate(server.memory, first):
        yield Device(
            f"RPC{index}", server.endpoint, free, total,
            is_gpu=True, shares_ram=False, backend="RPC",
        )  # fmt: skip
