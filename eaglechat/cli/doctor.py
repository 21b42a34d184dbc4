"""Show the llama.cpp build, devices, memory and paths, and what is wrong."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator

import eaglechat
from eaglechat import paths, settings
from eaglechat.cli.status import FAILED, OK
from eaglechat.engine.errors import NativeLibraryError


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The doctor needs to be told nothing."""


def run(_args: argparse.Namespace) -> int:
    wrong: list[str] = []
    print(f"eaglechat {eaglechat.__version__}, Python {platform.python_version()}")
    print(f"{platform.platform()}, {platform.machine()}\n")
    for title, section in (
        ("llama.cpp", _llama_cpp),
        ("Devices", _devices),
        ("Paths", _paths),
        ("Pairs", _pairs),
        ("Configuration", _configuration),
    ):
        print(title)
        for line in section(wrong):
            print(f"  {line}")
        print()
    if not wrong:
        print("Nothing is wrong.")
        return OK
    print("What is wrong")
    for line in wrong:
        print(f"  - {line}")
    return FAILED


def _llama_cpp(wrong: list[str]) -> Iterator[str]:
    try:
        from eaglechat.engine import bindings  # loads llama.cpp
    except NativeLibraryError as error:
        wrong.append(str(error))
        yield "not usable"
        return
    python, native = bindings.versions()
    yield f"llama-cpp-python {python}, llama.cpp {native}"
    yield f"compiled for {bindings.system_info().strip()}"
    yield "every function the engine needs is there"


def _devices(_wrong: list[str]) -> Iterator[str]:
    import psutil  # only here

    memory = psutil.virtual_memory()
    yield f"memory: {_gib(memory.available)} free of {_gib(memory.total)}"
    if "eaglechat.engine.bindings" not in sys.modules:
        return
    from eaglechat.engine import bindings
    from eaglechat.engine.pair import default_threads

    bindings.start_backend(bindings.LOG_ERRORS)
    for device in bindings.devices():
        size = f", {_gib(device.memory_free)} free of {_gib(device.memory_total)}"
        yield f"{device.name}: {device.description}{size if device.is_gpu else ''}"
    if not any(device.is_gpu for device in bindings.devices()):
        yield "no GPU backend: see docs/getting-started.md for CUDA, Metal and Vulkan"
    yield f"threads: {default_threads()}, the physical cores this process may use"


def _paths(_wrong: list[str]) -> Iterator[str]:
    yield f"configuration  {paths.config_file()}"
    yield f"themes         {paths.user_themes_dir()}"
    yield f"chats          {paths.chats_dir()}"
    yield f"engine log     {paths.engine_log()}"
    yield f"recent pairs   {paths.state_dir()}"


def _pairs(wrong: list[str]) -> Iterator[str]:
    from eaglechat.hub import pairs

    library = pairs.PairLibrary(paths.state_dir())
    for pair in library.pairs():
        status = pairs.inspect(pair)
        yield f"{pair.name}: {status.problem or 'can run'}"
        if status.problem:
            wrong.append(f"the pair {pair.name} cannot run: {status.problem}")
    if library.problem:
        wrong.append(library.problem)


def _configuration(wrong: list[str]) -> Iterator[str]:
    _, problems = settings.load(paths.config_file())
    exists = paths.config_file().exists()
    yield (
        "read" if exists and not problems else "has problems" if problems else "none, all defaults"
    )
    wrong.extend(str(problem) for problem in problems)


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
