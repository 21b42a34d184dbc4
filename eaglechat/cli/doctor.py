"""Says on one screen what runs where, what is wrong, and what would make this machine faster."""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import eaglechat
from eaglechat import machine, own_python, paths, rpc
from eaglechat.cli.status import FAILED, OK
from eaglechat.engine.llama.placement import (
    Device,
    chosen_devices,
    free_memory,
    offload_devices,
)
from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.memory import context_size, memory_need
from eaglechat.hub.local import passes
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import inspect
from eaglechat.hub.units import format_bytes
from eaglechat.links.crashes import (
    BUILT_FOR_ANOTHER_PROCESSOR,
    ILLEGAL_INSTRUCTION,
    crash,
    without,
)
from eaglechat.links.http.discovery import ask
from eaglechat.links.llama_server.probe import find, probe_program
from eaglechat.settings import config_file
from eaglechat.settings.model import Settings
from eaglechat.wire.errors import (
    EngineError,
    ModelLoadError,
    NativeLibraryError,
    ProgramError,
    RpcError,
)
from eaglechat.words import drafting
from eaglechat.words.wording import about_times

_TITLE_CELLS = 14
_WRAPPER = textwrap.TextWrapper(
    width=79 - _TITLE_CELLS,
    subsequent_indent="  ",
    break_long_words=False,
    break_on_hyphens=False,
)
_MOST_PAIRS = 5
_WITHOUT_GPU = {"CPU", "BLAS", "RPC"}
"""Backends of llama.cpp that do not compute on a GPU of this machine."""
_BUILD = {"CUDA": "-DGGML_CUDA=on", "ROCm": "-DGGML_HIP=on", "MTL": "-DGGML_METAL=on"}
"""What CMake needs to build a backend."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--forget-crashes",
        action="store_true",
        help="load every model again with what llama.cpp crashed with before",
    )


def run(args: argparse.Namespace) -> int:
    if args.forget_crashes:
        from eaglechat.engine.llama import workarounds  # loads llama.cpp

        workarounds.forget()
        print("The crashes are forgotten: nothing is left out of the next loads because of them.")
        return OK
    doctor = Doctor(*config_file.load(paths.config_file()))
    print(f"eaglechat {eaglechat.__version__}, Python {platform.python_version()}")
    print(f"{platform.platform()}, {platform.machine()}")
    for title, section in (
        ("llama.cpp", doctor.llama_cpp),
        ("llama-server", doctor.llama_server),
        ("memory", doctor.memory),
        ("devices", doctor.devices),
        ("threads", doctor.threads),
        ("pairs", doctor.pairs),
        ("servers", doctor.servers),
        ("files", doctor.files),
    ):
        print("\n".join(_beside(title, section())))
    _print_list("What would make this machine faster", doctor.faster())
    _print_list("What is wrong", doctor.wrong)
    if doctor.wrong:
        return FAILED
    print("\nNothing is wrong.")
    return OK


def _beside(title: str, lines: Iterable[str]) -> Iterator[str]:
    """The lines of a section, wrapped beside its title. An indented one is for copying: it stays
    whole, in a line of its own."""
    for line in lines:
        if line.startswith(" "):
            yield line
            continue
        for part in _WRAPPER.wrap(line):
            yield f"{title:<{_TITLE_CELLS}}{part}"
            title = ""


def _print_list(title: str, sentences: Iterable[str]) -> None:
    listed = [f"  - {sentence}" for sentence in sentences]
    if listed:
        print("\n".join(["", title, *listed]))


class Doctor:
    """The sections of the report, in the order in which they are printed: each yields its lines,
    adds to `wrong`, and may use what the ones before it found."""

    def __init__(self, configured: Settings, problems: list[config_file.Problem]) -> None:
        self.wrong: list[str] = []
        self._settings, self._problems = configured, problems
        self._has_llama_cpp = False
        self._devices: tuple[Device, ...] = ()
        """llama.cpp's; none if it could not be loaded."""
        self._lent: list[Device] = []
        """Those of the RPC servers."""
        self._quantisations: list[str] = []
        """Those with which drafting could gain more."""

    def llama_cpp(self) -> Iterator[str]:
        if crashed := _crash_at_start():
            hint = f": {BUILT_FOR_ANOTHER_PROCESSOR}" if crashed in ILLEGAL_INSTRUCTION else ""
            self.wrong.append(f"llama.cpp crashes as soon as it starts ({crashed}){hint}")
            yield "not usable"
            return
        try:
            from eaglechat.engine.llama import backend  # loads llama.cpp
        except NativeLibraryError as error:
            self.wrong.append(str(error))
            yield "not usable"
            return
        self._has_llama_cpp = True
        python, native = backend.versions()
        yield f"llama-cpp-python {python}, llama.cpp {native}"
        features = dict.fromkeys(re.findall(r"(\w+) = 1\b", backend.system_info()))
        yield f"built for {', '.join(backend.backends())} with {', '.join(features)}"
        yield from self._crashes()

    def _crashes(self) -> Iterator[str]:
        """What models run without because llama.cpp crashed with it, and the way back."""
        from eaglechat.engine.llama import workarounds  # loads llama.cpp

        known, last = workarounds.remembered(), workarounds.last_crash()
        for one in known:
            yield (
                f"{Path(one.files[0]).name} runs {without(one.left_out)} since {_day(one.since)}: "
                f"llama.cpp crashed with it ({one.crash})"
            )
        if known:
            yield "  to try everything again: eaglechat doctor --forget-crashes"
        if last is None:
            return
        yield f"  the log of the last crash: {paths.crash_log()}"
        if all(one.since < last for one in known):
            self.wrong.append(
                f"llama.cpp crashed on {_day(last)}, and will again if the cause is still there: "
                "its log says more. eaglechat doctor --forget-crashes forgets it"
            )

    def llama_server(self) -> Iterator[str]:
        """The llama-server that can run the pairs in place of eaglechat's own engine."""
        engine = self._settings.engine
        chosen = engine.llama_server
        if not chosen and find("llama-server") is None:
            yield "none on the PATH: eaglechat's own engine runs the pairs"
            return
        try:
            known = probe_program(chosen or "llama-server")
            gpus = known.gpus()
        except ProgramError as error:
            yield "cannot be used" if chosen else f"on the PATH, but cannot be used: {error}"
            if chosen:
                self.wrong.append(
                    f"no pair would load: {error}. Change engine.llama_server, or empty it: then "
                    "eaglechat's own engine runs the pairs"
                )
            return
        yield f"{known.path}: {known.version}"
        for gpu in gpus:
            yield f"{gpu.description}: {_free(gpu.memory_free, gpu.memory_total)}"
        if not gpus:
            yield "no GPU: it computes on the CPU"
        if known.drafts_with:
            yield f"drafts with {_listed(known.drafts_with)}"
        if known.lacks:
            yield f"too old to draft with {_listed(known.lacks)}"
        if not known.drafts_with:
            if chosen:
                self.wrong.append(f"no pair with a draft would load: {known.too_old('eagle3')}")
        elif chosen:
            yield "runs the pairs (engine.llama_server)"
        else:
            yield "can run the pairs in place of eaglechat's own engine, with this in config.toml:"
            yield f'  [engine] llama_server = "{known.path}"'
        if chosen and engine.rpc_servers and not known.has_rpc:
            self.wrong.append(f"no pair would load: {known.without_rpc}")

    def memory(self) -> Iterator[str]:
        ram = machine.memory()
        yield _free(ram.ram_available, ram.ram)

    def devices(self) -> Iterator[str]:
        """The devices of this machine and of RPC servers, and which layers they get."""
        if not self._has_llama_cpp:
            yield "unknown without llama.cpp"
            return
        from eaglechat.engine.llama import backend

        backend.start_backend(backend.LOG_ERRORS)
        self._devices = tuple(backend.devices())
        for device in self._devices:
            size = f", {_free(device.memory_free, device.memory_total)}" if device.is_gpu else ""
            yield f"{device.name}: {device.description}{size}"
        yield from self._rpc_servers()
        yield from self._offload(backend.backends())

    def _rpc_servers(self) -> Iterator[str]:
        """The servers of engine.rpc_servers and their devices."""
        from eaglechat.engine.llama import backend

        engine = self._settings.engine
        endpoints = engine.rpc_servers
        if endpoints and not engine.llama_server and not backend.has_rpc():
            self.wrong.append(backend.no_rpc())
        for endpoint, server in zip(endpoints, rpc.ask_all(endpoints), strict=True):
            if isinstance(server, RpcError):
                self.wrong.append(
                    f"{server}. Start ggml-rpc-server there, or change engine.rpc_servers"
                )
                yield f"RPC server {endpoint}: cannot be used now"
                continue
            yield f"RPC server {endpoint}: {server.latency_ms:.1f} ms away, RPC {server.protocol}"
            for free, total in server.memory:
                name = f"RPC{len(self._lent)}"  # as llama.cpp will call it
                self._lent.append(
                    Device(
                        name, endpoint, free, total, is_gpu=True, shares_ram=False, backend="RPC"
                    )
                )
                yield f"{name}: {_free(free, total)} on {endpoint}"

    def _offload(self, backends: Sequence[str]) -> Iterator[str]:
        """Which layers go to which device with the current settings."""
        devices = (*self._lent, *self._devices)
        gpus = offload_devices(devices)
        if not gpus:
            idle = [name for name in backends if name not in _WITHOUT_GPU]
            why = "llama.cpp was built for the CPU only"
            if idle:
                why = f"{', '.join(idle)} found none (is the driver installed?)"
            yield f"no GPU: {why}"
            return
        options = self._settings.to_load_options()
        try:
            chosen_devices(options, devices)
        except ModelLoadError as error:
            self.wrong.append(f"no pair would load: {error}")
            return
        if options.n_gpu_layers == 0:
            yield "layers: all on the CPU (engine.n_gpu_layers is 0)"
            return
        count = "all" if options.n_gpu_layers < 0 else f"up to {options.n_gpu_layers} of each model"
        is_split = options.split_mode != "none" and len(gpus) > 1
        used = gpus if is_split or len(gpus) == 1 else [gpus[options.main_gpu]]
        how = f"; the target split by {options.split_mode} over" if is_split else " on"
        yield f"layers: {count}{how} {' and '.join(gpu.name for gpu in used)}"

    def threads(self) -> Iterator[str]:
        chosen = machine.choose_threads()
        own = self._settings.engine.n_threads
        rule = f"{own}, as engine.n_threads says; the default would be " if own else ""
        yield f"{rule}{chosen.count}: {chosen.reason}"

    def pairs(self) -> Iterator[str]:
        remembered = PairLibrary(paths.state_dir())
        known, timed = remembered.pairs(), passes.measured(paths.state_dir())
        for index, pair in enumerate(known):
            status, said = inspect(pair), ""
            if (target := status.loaded_target) is not None:
                said = f"; {self._context(target, status.draft)}"
                path = str(target.path)
                if found := timed.get(path):
                    said += f"; at most {about_times(found.most)} as fast as plain here"
                if found and (better := passes.better(path, timed)):
                    self._quantisations.append(
                        f"{pair.name} can be at most {about_times(found.most)} as fast as plain in "
                        f"{found.quantization}; the same model in {better.quantization} "
                        f"{about_times(better.most)}, as both were timed when they were loaded"
                    )
            if index < _MOST_PAIRS:
                drafts = "drafted by " * bool(status.drafters) + drafting.badge(status.drafters)
                yield f"{pair.name}: {status.problem or f'can run, {drafts}'}{said}"
            # A pair whose files were moved or not installed is told above, and nothing is broken.
            if status.problem and all(f.exists() for f in (pair.target, pair.draft) if f):
                self.wrong.append(f"the pair {pair.name} cannot run: {status.problem}")
        if len(known) > _MOST_PAIRS:
            yield f"and {len(known) - _MOST_PAIRS} more"
        if remembered.problem:
            self.wrong.append(remembered.problem)

    def _context(self, target: GGUFHeader, draft: GGUFHeader | None) -> str:
        """The context that a pair gets with the current settings, and the memory that all takes."""
        options = self._settings.to_load_options()
        free = free_memory(options, (*self._lent, *self._devices))
        n_ctx = context_size(target, draft, free, options)
        need = memory_need(target, draft, n_ctx, options.kv_type, options.draft_kv_type)
        return f"context {n_ctx:,} tokens, {format_bytes(need.total)} of {format_bytes(free)} free"

    def servers(self) -> Iterator[str]:
        """The servers of config.toml, all asked at the same time."""
        servers = self._settings.server
        if not servers:
            yield "none in config.toml"
            return
        with ThreadPoolExecutor(len(servers)) as pool:
            asked = [(server, pool.submit(ask, server)) for server in servers]
        for server, answer in asked:
            try:
                found = answer.result()
            except EngineError as error:
                self.wrong.append(f"the server {server.name}: {error}")
                yield f"{server.name}: cannot be used now"
                continue
            speculation = {True: "with a draft", False: "without a draft", None: ""}[found.drafts]
            kind = found.kind.name.replace("this server", "an OpenAI-compatible server")
            models = f"{len(found.models)} models" if len(found.models) != 1 else found.models[0].id
            yield f"{server.name}: {', '.join(filter(None, (kind, speculation, models)))}"

    def files(self) -> Iterator[str]:
        """The program's own files, and why some could not be saved."""
        from eaglechat.tui.commands.keys import read_keymap  # brings Textual

        config = paths.config_file()
        problems = self._problems + read_keymap(self._settings.keys, config)[1]
        read = "has problems" if problems else "read" if config.exists() else "none: all defaults"
        yield f"settings  {config} ({read})"
        yield f"chats     {paths.chats_file()}"
        yield f"state     {paths.state_dir()}"
        yield f"log       {paths.engine_log()}"
        self.wrong.extend(str(problem) for problem in problems)
        lost: dict[str, list[str]] = {}
        for what, folder in (
            ("settings", paths.config_dir()),
            ("chats", paths.data_dir()),
            ("recent pairs", paths.state_dir()),
            ("the engine's log", paths.log_dir()),
        ):
            reason = paths.why_unwritable(folder)
            if reason is not None:
                lost.setdefault(reason, []).append(what)
        for reason, kinds in lost.items():
            self.wrong.append(
                f"{_listed(kinds)} cannot be saved ({reason}); set EAGLECHAT_HOME to a folder that "
                "can be written"
            )

    def faster(self) -> Iterator[str]:
        """Advice on speed; none if llama.cpp could not be loaded."""
        if not self._has_llama_cpp:
            return
        from eaglechat.engine.llama import backend, workarounds

        gcc = workarounds.compiler_that_breaks_amx()
        if gcc and "amx" in workarounds.for_every_model():
            yield (
                f"llama.cpp runs without AMX, so it reads prompts more slowly: GCC {gcc}, which "
                "compiled it, breaks AMX; 13.2 and newer do not. This compiles it again, in one "
                f"line:\n    {workarounds.mending_command()}"
            )
        name, wanted = gpu_of_machine() or ("", None)
        if wanted and wanted not in backend.backends() and not any(d.is_gpu for d in self._devices):
            yield (
                f"there is {name}, and this llama-cpp-python was not built for "
                f"{'Metal' if wanted == 'MTL' else wanted}. This builds it so, in one line, with "
                f"the tools of that name:\n    {backend.built_with(_BUILD[wanted])}"
            )
        yield from self._quantisations


def gpu_of_machine(root: Path = Path("/")) -> tuple[str, str] | None:
    """A GPU that the system reports, and llama.cpp's name of the backend for it."""
    if (root / "proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"):
        return "an NVIDIA GPU", "CUDA"
    if (root / "dev/kfd").exists():
        return "an AMD GPU", "ROCm"
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "an Apple GPU", "MTL"
    return None


def _crash_at_start() -> str | None:
    """The signal with which llama.cpp crashes when it is loaded, or None.

    An engine loads it, because a crash would end this process. It ends with its empty input.
    """
    none = subprocess.DEVNULL
    engine = own_python.command("eaglechat", "engine")
    ended = subprocess.run(engine, stdin=none, stdout=none, stderr=none, check=False)
    return crash(ended.returncode)


def _day(day: date) -> str:
    return f"{day:%d %B %Y}".lstrip("0")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _free(free: float, size: float) -> str:
    return f"{format_bytes(free)} free of {format_bytes(size)}"
