"""llama.cpp through llama-cpp-python: the one module that touches ctypes.

The functions of llama.cpp's `llama-ext.h` are C++, so they are bound by their mangled names (of the
Itanium and the MSVC ABI). Functions that return within microseconds keep the GIL (PYFUNCTYPE),
because releasing it takes longer than they do; those of them that read a result may be called only
after `synchronize`. Pointers are integers, all other values plain Python.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from eaglechat.wire.errors import NativeLibraryError
from eaglechat.wire.protocol import LoadOptions

REQUIREMENT = "llama-cpp-python >= 0.3.36, < 0.4"

Floats = npt.NDArray[np.float32]

# libgomp's threads spin for milliseconds before they sleep. When other processes need the cores,
# they spin for a thread that does not run. Plain tok/s of the built-in pair, two threads on two
# cores, alone / beside one / two busy processes: 166 / 57 / 20 by default, 160 / 69 / 70 with 300.
os.environ.setdefault("GOMP_SPINCOUNT", "300")

# When a batch is as wide as the one before it, llama.cpp records its CUDA graph, and throws it away
# at the next other width. The second of two plain rounds, by which plain decoding is measured while
# drafting goes on, would be one that records. Milliseconds on an H200, a target as large as 8B in
# Q4_0, with graphs and without: that second round 7.9 and 3.1, a round of a plain reply 2.9 and
# 3.1, of one with length 1 5.5 and 4.4, with length 3 6.6 and 6.1, with length 5 8.6 and 7.8.
os.environ.setdefault("GGML_CUDA_DISABLE_GRAPHS", "1")

_PARTS = {
    "libcudart": "CUDA's runtime (install the CUDA version this wheel was built for)",
    "libcublas": "CUDA's cuBLAS (install the CUDA version this wheel was built for)",
    "libcuda.so": "NVIDIA's driver",
    "libvulkan": "the Vulkan loader (Debian: apt install libvulkan1)",
    "libamdhip": "AMD's ROCm runtime",
    "libgomp": "GCC's OpenMP (Debian: apt install libgomp1)",
    "GLIBC_": "a newer C library (this wheel was built for a newer system)",
    "GLIBCXX_": "a newer C++ library (this wheel was built for a newer system)",
    "ld-linux": "the C library glibc (this wheel is not for musl)",
}
"""What the loader's message contains -> what is missing."""


def _cannot_be_loaded(error: Exception) -> str:
    """A sentence that says what is missing, and what to do."""
    said = str(error)
    missing = next((what for name, what in _PARTS.items() if name in said), None)
    if isinstance(error, ModuleNotFoundError):
        return f"llama-cpp-python is not installed ({said}): pip install '{REQUIREMENT}'"
    if missing is None:
        return f"llama-cpp-python cannot be imported ({said}); install {REQUIREMENT}"
    return (
        f"llama-cpp-python cannot be loaded: {missing} is missing. The loader says: {said}. "
        "Install that, or a llama-cpp-python built for this machine: pip install --force-reinstall "
        "--no-deps --no-binary llama-cpp-python llama-cpp-python"
    )


try:
    import llama_cpp
    from llama_cpp import _ctypes_extensions, _ggml
    from llama_cpp import llama_cpp as api
except (ImportError, OSError, RuntimeError, AttributeError) as error:
    raise NativeLibraryError(_cannot_be_loaded(error)) from error

WRAPPER_VERSION: str = llama_cpp.__version__
"""The version of llama-cpp-python."""

_I32, _U32, _BOOL, _PTR = ctypes.c_int32, ctypes.c_uint32, ctypes.c_bool, ctypes.c_void_p
_SIZE, _TEXT, _IDS = ctypes.c_size_t, ctypes.c_char_p, ctypes.POINTER(_I32)


class _Embedding(ctypes.Structure):
    """struct llama_embd, with the address as a plain integer."""

    _fields_ = [("data", _PTR), ("n_rows", ctypes.c_size_t), ("n_embd", ctypes.c_size_t)]


class _DeviceProperties(ctypes.Structure):
    """struct ggml_backend_dev_props."""

    _fields_ = [
        ("name", _TEXT),
        ("description", _TEXT),
        ("memory_free", _SIZE),
        ("memory_total", _SIZE),
        ("type", ctypes.c_int),
        ("device_id", _TEXT),
        ("caps", _BOOL * 5),
    ]


_LIBRARIES = (
    api._lib,
    _ggml.libggml,
    # On Windows each DLL has only its own functions; elsewhere ggml has ggml-base's too.
    _ctypes_extensions.load_shared_library("ggml-base", _ggml.libggml_base_path),
)
_missing: list[str] = []


def _bound(names: Sequence[str], result: Any, *arguments: Any, is_quick: bool) -> Any:
    """The function that has one of these names, from the first library that has it."""
    prototype = ctypes.PYFUNCTYPE if is_quick else ctypes.CFUNCTYPE
    found = [(name, lib) for lib in _LIBRARIES for name in names if hasattr(lib, name)]
    if found:
        return prototype(result, *arguments)(found[0])
    _missing.append(names[-1])
    return None


def _quick(name: str, result: Any, *arguments: Any) -> Any:
    """A function that returns within microseconds, and keeps the GIL."""
    return _bound([name], result, *arguments, is_quick=True)


def _slow(name: str, result: Any, *arguments: Any) -> Any:
    return _bound([name], result, *arguments, is_quick=False)


_MANGLED = {
    "context": ("P13llama_context", "PEAUllama_context@@"),
    "model": ("PK11llama_model", "PEBUllama_model@@"),
    _U32: ("j", "I"), _I32: ("i", "H"), _BOOL: ("b", "_N"),
}  # fmt: skip
"""Types of arguments as the Itanium and the MSVC ABI mangle them."""


def _cpp(name: str, msvc: str, result: Any, of: str, *more: Any, is_quick: bool = True) -> Any:
    """A function of llama-ext.h, whose first argument is a context or a model; `msvc` is its result
    as MSVC mangles it."""
    itanium, arguments = map("".join, zip(*(_MANGLED[one] for one in (of, *more)), strict=True))
    # MSVC writes the number of a longer type instead of repeating it.
    arguments = arguments.replace("_N_N", "_N1")
    names = (f"_Z{len(name)}{name}{itanium}", f"?{name}@@YA{msvc}{arguments}@Z", name)
    return _bound(names, result, _PTR, *more, is_quick=is_quick)


libllama = SimpleNamespace(
    batch_init=_quick("llama_batch_ext_init", _PTR, _PTR),
    batch_free=_quick("llama_batch_ext_free", None, _PTR),
    batch_clear=_quick("llama_batch_ext_clear", None, _PTR),
    batch_add_token=_quick("llama_batch_ext_add_token", _I32, _PTR, _I32, _I32),
    batch_add_seq=_quick("llama_batch_ext_add_seq", _BOOL, _PTR, _I32, _I32),
    batch_add_embd=_quick("llama_batch_ext_add_embd", _I32, _PTR, _I32, _Embedding),
    batch_set_embd=_quick("llama_batch_ext_set_embd_token", _BOOL, _PTR, _I32, _Embedding),
    batch_set_pos=_quick("llama_batch_ext_set_pos", _BOOL, _PTR, _I32, _PTR),
    batch_set_output=_quick("llama_batch_ext_set_output_logits", _BOOL, _PTR, _I32, _BOOL),
    logits_ith=_quick("llama_get_logits_ith", _PTR, _PTR, _I32),
    embeddings=_slow("llama_get_embeddings", _PTR, _PTR),
    seq_rm=_quick("llama_memory_seq_rm", _BOOL, _PTR, _I32, _I32, _I32),
    seq_cp=_quick("llama_memory_seq_cp", None, _PTR, _I32, _I32, _I32, _I32),
    seq_add=_quick("llama_memory_seq_add", None, _PTR, _I32, _I32, _I32, _I32),
    seq_pos_max=_quick("llama_memory_seq_pos_max", _I32, _PTR, _I32),
    state_get=_slow("llama_state_seq_get_data_ext", _SIZE, _PTR, _PTR, _SIZE, _I32, _U32),
    state_set=_slow("llama_state_seq_set_data_ext", _SIZE, _PTR, _TEXT, _SIZE, _I32, _U32),
    set_layer_inputs=_cpp("llama_set_embeddings_layer_inp", "X", None, "context", _U32, _BOOL),
    layer_inputs=_cpp("llama_get_embeddings_layer_inp", "PEAM", _PTR, "context", _U32),
    set_nextn=_cpp("llama_set_embeddings_nextn", "X", None, "context", _BOOL, _BOOL),
    nextn=_cpp("llama_get_embeddings_nextn", "PEAM", _PTR, "context", is_quick=False),
    nextn_ith=_cpp("llama_get_embeddings_nextn_ith", "PEAM", _PTR, "context", _I32),
    set_nextn_head=_cpp("llama_set_nextn_layer_offset", "X", None, "context", _I32),
    target_layers=_cpp("llama_model_target_layer_ids", "PEBH", _IDS, "model"),
    target_layers_n=_cpp("llama_model_target_layer_ids_n", "I", _U32, "model"),
    selector_top_k=_cpp("llama_model_dflash_selector_top_k", "H", _I32, "model"),
    model_devices_n=_cpp("llama_model_n_devices", "H", _I32, "model"),
    model_device=_cpp("llama_model_get_device", "PEAUggml_backend_device@@", _PTR, "model", _I32),
)

libggml = SimpleNamespace(
    commit=_slow("ggml_commit", _TEXT),
    backends=_slow("ggml_backend_reg_count", _SIZE),
    backend=_slow("ggml_backend_reg_get", _PTR, _SIZE),
    backend_name=_slow("ggml_backend_reg_name", _TEXT, _PTR),
    backend_function=_slow("ggml_backend_reg_get_proc_address", _PTR, _PTR, _TEXT),
    backend_devices=_slow("ggml_backend_reg_dev_count", _SIZE, _PTR),
    backend_device=_slow("ggml_backend_reg_dev_get", _PTR, _PTR, _SIZE),
    devices=_slow("ggml_backend_dev_count", _SIZE),
    device=_slow("ggml_backend_dev_get", _PTR, _SIZE),
    device_name=_slow("ggml_backend_dev_name", _TEXT, _PTR),
    device_backend=_slow("ggml_backend_dev_backend_reg", _PTR, _PTR),
    device_properties=_slow("ggml_backend_dev_get_props", None, _PTR, _PTR),
    tensor_name=_quick("ggml_get_name", _TEXT, _PTR),
    tensor_data=_quick("ggml_get_data", _PTR, _PTR),
    tensor_size=_quick("ggml_nelements", ctypes.c_int64, _PTR),
)
if _missing:
    raise NativeLibraryError(
        f"llama-cpp-python {WRAPPER_VERSION} lacks {', '.join(_missing)}; install {REQUIREMENT}"
    )


_SIZES = [0, *(2**power for power in range(5, 25))]
# The defaults of llama.cpp, which tell where in a struct it writes; lists where they may change.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama_context": {
        "n_ctx": _SIZES, "n_batch": _SIZES[1:], "n_ubatch": _SIZES[1:], "n_seq_max": 1,
        "n_rs_seq": 0, "n_outputs_max": 0, "n_outputs_max_per_seq": 1, "n_threads": range(1, 4096),
        "n_threads_batch": range(1, 4096), "ctx_type": 0, "rope_scaling_type": -1,
        "pooling_type": -1, "attention_type": -1, "flash_attn_type": [-1, 0],
        "rope_freq_base": 0.0, "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0,
        "yarn_attn_factor": [-1.0, 1.0], "yarn_beta_fast": [-1.0, 32.0],
        "yarn_beta_slow": [-1.0, 1.0], "yarn_orig_ctx": 0, "defrag_thold": [-1.0, 0.1],
        "cb_eval": None, "cb_eval_user_data": None, "type_k": 1, "type_v": 1,
        "abort_callback": None, "abort_callback_data": None, "embeddings": False,
        "offload_kqv": True, "no_perf": True, "op_offload": True, "swa_full": True,
        "kv_unified": False, "samplers": None, "n_samplers": 0, "ctx_other": None,
    },
    "llama_model": {
        "devices": None, "tensor_buft_overrides": None, "n_gpu_layers": [-1, 999],
        "split_mode": 1, "main_gpu": 0, "tensor_split": None, "progress_callback": None,
        "progress_callback_user_data": None, "kv_overrides": None, "vocab_only": False,
        "check_tensors": False, "use_extra_bufts": True, "no_host": False, "no_alloc": False,
        "load_mtp": False,
    },
    "llama_model_quantize": {
        "nthread": 0, "ftype": range(1, 100), "allow_requantize": False,
        "quantize_output_tensor": True, "only_copy": False, "pure": False, "keep_split": False,
        "dry_run": False, "imatrix": None, "kv_overrides": None, "tt_overrides": None,
        "prune_layers": None, "max_buf_size": range(1 << 20, 1 << 50),
    },
}  # fmt: skip


def check_structs() -> None:
    """Raises NativeLibraryError if a struct of llama-cpp-python is not the one of its llama.cpp: a
    newer library with a new field writes all behind it elsewhere."""
    for struct, defaults in _DEFAULTS.items():
        found = getattr(api, f"{struct}_default_params")()
        for field, default in defaults.items():
            value = getattr(found, field)
            if default is None:
                # A pointer, or a function, that is null is false.
                fits = not value
            else:
                fits = value in default if isinstance(default, list | range) else value == default
            if not fits:
                raise NativeLibraryError(
                    f"llama-cpp-python {WRAPPER_VERSION} and its llama.cpp do not fit: "
                    f"{struct}_params.{field} is {value!r} by default, so every setting could be "
                    f"taken for another; install {REQUIREMENT}"
                )


check_structs()

__all__ = ["WRAPPER_VERSION", "Floats", "api", "check_structs", "libggml", "libllama"]


SPLIT_MODES = {"none": 0, "layer": 1, "row": 2}
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}


def load_model(
    path: str,
    options: LoadOptions,
    leave_out: Sequence[str],
    progress: Callable[[float], bool] | None,
    *,
    devices: Sequence[int],
    with_heads: bool,
    fields: Mapping[str, int],
) -> int | None:
    """Load a GGUF on these devices, or those that llama.cpp finds. `progress` gets 0..1 and stops
    the load by returning False. `with_heads` loads its MTP heads too. `fields` are used instead of
    those of the same keys in the file."""
    params = api.llama_model_default_params()
    if fields:
        # A field without a key ends the list.
        overrides = (api.llama_model_kv_override * (len(fields) + 1))()
        for override, (key, value) in zip(overrides, fields.items(), strict=False):
            override.tag = api.LLAMA_KV_OVERRIDE_TYPE_INT
            override.key, override.value.val_i64 = key.encode(), value
        params.kv_overrides = overrides
    params.load_mtp = with_heads
    params.n_gpu_layers = options.n_gpu_layers
    params.split_mode = SPLIT_MODES[options.split_mode]
    params.main_gpu = options.main_gpu
    if options.tensor_split:
        # llama.cpp copies llama_max_devices() of them.
        shares = (ctypes.c_float * api.llama_max_devices())(*options.tensor_split)
        params.tensor_split = shares
    if "gpu" in leave_out:
        devices = ()
        params.n_gpu_layers = 0
    if devices or "gpu" in leave_out:
        # Without a list, llama.cpp uses its GPUs for large batches even when no layer is there.
        chosen = (_PTR * (len(devices) + 1))(*devices, None)
        params.devices = ctypes.addressof(chosen)
    if progress is not None:
        params.progress_callback = api.llama_progress_callback(lambda done, _data: progress(done))
    params.use_extra_bufts = "extra_buffers" not in leave_out
    pointer: int | None
    if "amx" in leave_out and params.use_extra_bufts:
        with _amx_refused() as is_refused:
            # If AMX alone cannot be refused, do without all repacked weights.
            params.use_extra_bufts = is_refused
            pointer = api.llama_model_load_from_file(path.encode(), params)
    else:
        pointer = api.llama_model_load_from_file(path.encode(), params)
    return pointer


class _SignalStack(ctypes.Structure):
    """stack_t of Linux."""

    _fields_ = [("ss_sp", _PTR), ("ss_flags", ctypes.c_int), ("ss_size", _SIZE)]


_TOO_SMALL_FOR_AMX = 8192
"""Bytes. A signal frame with AMX state takes over 8 KiB for the tiles alone."""
_SS_DISABLE = 2
_SYS_ARCH_PRCTL, _GET_PERMISSIONS, _TILE_DATA = 158, 0x1022, 18


@contextmanager
def _amx_refused() -> Iterator[bool]:
    """Inside, Linux refuses AMX to this process; yields whether it does.

    Linux permits AMX (ARCH_REQ_XCOMP_PERM) only if the alternate signal stack of every thread has
    room for AMX state. llama.cpp asks once, in the first load of a model, and computes without AMX
    if it is refused. A permission that torch has already got cannot be taken back.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        yield False
        return
    libc = ctypes.CDLL(None, use_errno=True)
    granted = ctypes.c_uint64()
    libc.syscall(_SYS_ARCH_PRCTL, _GET_PERMISSIONS, ctypes.byref(granted))
    if granted.value >> _TILE_DATA & 1:
        yield False
        return
    memory = ctypes.create_string_buffer(_TOO_SMALL_FOR_AMX)
    small = _SignalStack(ctypes.addressof(memory), 0, _TOO_SMALL_FOR_AMX)
    before = _SignalStack()
    if libc.sigaltstack(ctypes.byref(small), ctypes.byref(before)) != 0:
        yield False
        return
    try:
        yield True
    finally:
        if before.ss_flags & _SS_DISABLE:
            before = _SignalStack(None, _SS_DISABLE, 0)
        libc.sigaltstack(ctypes.byref(before), None)


def library_files() -> list[Path]:
    return sorted(Path(_ggml.libggml_base_path).glob("*ggml*")) + sorted(
        Path(_ggml.libggml_base_path).glob("*llama*")
    )


def device_properties(device: int) -> Any:
    found = _DeviceProperties()
    libggml.device_properties(device, ctypes.byref(found))
    return found


def rpc_devices(endpoint: str) -> tuple[int, ...]:
    """The devices of an RPC server; `libggml.devices` does not count them.

    llama.cpp ends the process if the server cannot be reached.
    """
    rpc = next(
        backend
        for backend in (libggml.backend(index) for index in range(libggml.backends()))
        if libggml.backend_name(backend) == b"RPC"
    )
    add = ctypes.CFUNCTYPE(_PTR, _TEXT)(
        libggml.backend_function(rpc, b"ggml_backend_rpc_add_server")
    )
    server = add(endpoint.encode())
    count = libggml.backend_devices(server) if server else 0
    return tuple(libggml.backend_device(server, index) for index in range(count))


def model_devices(model: int) -> tuple[str, ...]:
    return tuple(
        libggml.device_name(libllama.model_device(model, index)).decode()
        for index in range(libllama.model_devices_n(model))
    )


def quantise(
    source: str, out: str, file_type: int, max_buffer_bytes: int, *, dry_run: bool
) -> bool:
    """Quantise a GGUF to a file type (general.file_type); True if llama.cpp wrote all of it.

    A dry run writes nothing, and logs the size of the result.
    """
    params = api.llama_model_quantize_default_params()
    params.ftype = file_type
    # The source may be quantised: a BF16 copy of it computes faster on some CPUs.
    params.allow_requantize = True
    params.max_buf_size = max_buffer_bytes
    params.dry_run = dry_run
    return bool(api.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)) == 0)


def bytes_of(size: int, write: Callable[[Any, int], int]) -> bytes:
    """What `write(buffer, size)` puts into a buffer. It returns how many, or their number negated
    if the buffer is too small; the next one is as large as that."""
    found: bytes = _filled(ctypes.c_char, size, write)
    return found


def numbers_of(size: int, write: Callable[[Any, int], int]) -> list[int]:
    """The same with integers."""
    found: list[int] = _filled(_I32, size, write)
    return found


def _filled(of: Any, size: int, write: Callable[[Any, int], int]) -> Any:
    while True:
        buffer = (of * size)()
        n = write(buffer, size)
        if n >= 0:
            return buffer[:n]
        size = -n


@lru_cache(maxsize=256)
def floats(address: int | None, shape: tuple[int, ...]) -> Floats | None:
    """A view of native float32 memory; None for a null pointer.

    Cached: llama.cpp's buffers rarely move, and making a view takes longer than reading it.
    """
    if not address:
        return None
    memory: Any = (ctypes.c_float * math.prod(shape)).from_address(address)
    view: Floats = np.frombuffer(memory, dtype=np.float32).reshape(shape)
    return view


def position_cell() -> tuple[Any, int]:
    """A llama_pos in native memory, to be set through `value`, and its address."""
    # Of a row of features, llama.cpp reads four positions for a model with M-RoPE. Those that have
    # a drafter rotate by the first alone.
    cell = _I32.from_buffer((_I32 * 4)())
    return cell, ctypes.addressof(cell)


def embeddings(rows: Floats) -> Iterator[Any]:
    """Each row of [n, n_embd] float32 as a llama_embd, of which llama.cpp makes a copy."""
    # `rows.ctypes.data` is Python code, and takes longer than copying the rows.
    address: int = rows.__array_interface__["data"][0]
    (stride, _), size = rows.strides, rows.shape[1]
    row = _Embedding(address, 1, size)
    for first in range(address, address + stride * len(rows), stride):
        row.data = first
        yield row
