"""llama.cpp as a whole: its version, its log, its devices here and on RPC servers, and stopping."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from eaglechat.engine.llama import bindings
from eaglechat.engine.llama.bindings import WRAPPER_VERSION, api, device_properties, libggml
from eaglechat.engine.llama.placement import Device
from eaglechat.rpc import ask_all
from eaglechat.wire.errors import RpcError
from eaglechat.wire.worker import whether_cancelled

LOG_INFO, LOG_ERRORS = 2, 4
_LOAD_ERROR = b"error loading model: "
_log_callback: Any = None
_log_muted = False
_load_error = ""


def start_backend(log_level: int) -> None:
    """Initialise llama.cpp. Its log, from `log_level` on, goes to standard error."""
    global _log_callback  # noqa: PLW0603 - llama.cpp keeps the pointer for the process' life
    last_level = LOG_INFO

    def write(level: int, text: bytes, _data: Any) -> None:
        nonlocal last_level
        global _load_error  # noqa: PLW0603 - the log is one for the process
        # Level 5 continues the line before it.
        last_level = last_level if level == 5 else level
        if _LOAD_ERROR in text:
            _load_error = text.partition(_LOAD_ERROR)[2].decode("utf-8", errors="replace").strip()
        if last_level >= log_level and not _log_muted:
            sys.stderr.write(text.decode("utf-8", errors="replace"))
            sys.stderr.flush()

    _log_callback = api.llama_log_callback(write)
    api.llama_log_set(_log_callback, None)
    api.llama_backend_init()


def why_not_loaded() -> str:
    """Why llama.cpp could not load the last model, in its log's words and ours."""
    name = _load_error.partition("unknown model architecture: ")[2]
    if name:
        return (
            f"this llama.cpp does not know the architecture {name}: the model is newer, or of "
            "another program such as Ollama; update llama-cpp-python, or choose another file"
        )
    return _load_error or "its log says why"


@contextmanager
def cancellable(context: int) -> Iterator[None]:
    """Decodes of a context end early, with status 2, once the request is cancelled. llama.cpp asks
    after each operation of the graph, on the CPU only."""
    global _log_muted  # noqa: PLW0603 - the log is one for the process
    is_cancelled = whether_cancelled()

    def ask(_data: Any) -> bool:
        global _log_muted  # noqa: PLW0603
        # llama.cpp logs the stop as an error, which it is not.
        _log_muted = is_cancelled()
        return _log_muted

    callback = api.ggml_abort_callback(ask)
    api.llama_set_abort_callback(context, callback, None)
    try:
        yield
    finally:
        api.llama_set_abort_callback(context, api.ggml_abort_callback(0), None)
        _log_muted = False


def versions() -> tuple[str, str]:
    """The versions of llama-cpp-python and of its llama.cpp, the latter with its commit."""
    native = f"{api.llama_version().decode()} ({libggml.commit().decode()})"
    return WRAPPER_VERSION, native


def system_info() -> str:
    """What llama.cpp says of the instructions it was compiled for."""
    return str(api.llama_print_system_info().decode())


def backends() -> tuple[str, ...]:
    """The backends of this build, such as CUDA and CPU, also those without a device."""
    return tuple(
        libggml.backend_name(libggml.backend(index)).decode() for index in range(libggml.backends())
    )


def devices() -> tuple[Device, ...]:
    return tuple(_device(libggml.device(index)) for index in range(libggml.devices()))


def built_with(cmake_args: str) -> str:
    """The shell command that compiles llama.cpp again with these arguments of CMake."""
    return (
        f'CMAKE_ARGS="{cmake_args}" {sys.executable} -m pip install --force-reinstall --no-deps '
        f"--no-cache-dir --no-binary llama-cpp-python llama-cpp-python=={WRAPPER_VERSION}"
    )


def no_rpc() -> str:
    return (
        "engine.rpc_servers needs a llama-cpp-python that was built with RPC: "
        f"{built_with('-DGGML_RPC=ON')}"
    )


def has_rpc() -> bool:
    return "RPC" in backends()


def rpc_devices(endpoints: Sequence[str]) -> tuple[Device, ...]:
    """The devices of these RPC servers.

    Raises RpcError if a server does not answer or this llama.cpp has no RPC.
    """
    if endpoints and not has_rpc():
        raise RpcError(no_rpc())
    for answer in ask_all(endpoints):
        if isinstance(answer, RpcError):
            raise answer
    return tuple(
        _device(device) for endpoint in endpoints for device in bindings.rpc_devices(endpoint)
    )


def _device(device: int) -> Device:
    found = device_properties(device)
    backend, name = libggml.device_backend(device), found.name.decode()
    return Device(
        name=name,
        description=found.description.decode(),
        memory_free=found.memory_free,
        memory_total=found.memory_total,
        is_gpu=found.type in (1, 2),
        # Metal calls its devices MTL0 and so on, and does not say that they share the RAM.
        shares_ram=found.type == 2 or name.startswith(("MTL", "Metal")),
        backend=libggml.backend_name(backend).decode(),
        hardware_id=(found.device_id or b"").decode(),
        splits_rows=bool(libggml.backend_function(backend, b"ggml_backend_split_buffer_type")),
        handle=device,
    )
