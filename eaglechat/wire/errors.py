"""What users are told: every message is one sentence that names the cause."""

from __future__ import annotations


class EngineError(RuntimeError):
    """Something the user can be told. `code` is stable, for programs."""

    code = "engine"
    status = 1
    """Of a command that ends with it; 2 where what was asked for makes no sense."""


class NativeLibraryError(EngineError):
    """llama-cpp-python is missing, or lacks a function this engine needs."""

    code = "native_library"


class ModelLoadError(EngineError):
    """llama.cpp refused a model or a context."""

    code = "load"


class RpcError(ModelLoadError):
    """An RPC server that cannot lend its devices; the text names it and says why."""

    code = "rpc"


class ProgramError(ModelLoadError):
    """The program of engine.llama_server is not one that can run the pair."""

    code = "program"


class SettingsError(EngineError):
    """Settings that do not go together, or not with these models."""

    code = "settings"


class DecodeError(EngineError):
    """The target failed to decode a batch."""

    code = "decode"


class PromptError(EngineError):
    """The conversation cannot be turned into a prompt that fits."""

    code = "prompt"


class Cancelled(EngineError):  # noqa: N818 - it is no fault
    """The request was cancelled; `check` of `worker.py` raises this."""

    code = "cancelled"

    def __init__(self, message: str = "it was cancelled") -> None:
        super().__init__(message)


class NoPairError(EngineError):
    code = "no_pair"

    def __init__(self) -> None:
        super().__init__("no pair is loaded; load one first")
