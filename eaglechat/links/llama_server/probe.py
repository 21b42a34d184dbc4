"""Asks a program whether it is a llama-server, what it can draft with and which GPUs it can use."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from eaglechat.paths import expanded
from eaglechat.wire.drafters import DRAFTERS, DrafterKind
from eaglechat.wire.errors import ProgramError

_NAMES: dict[str, str] = {}
"""The words of `--spec-type`, for people; kinds that share a word go by the first."""
for _one in DRAFTERS.values():
    _NAMES.setdefault(_one.spec_type, _one.several or _one.name)

_ANSWER_S = 20.0
_GPU = re.compile(r"^\s+\S+: (.+) \((\d+) MiB, (\d+) MiB free\)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Gpu:
    """A device of this machine that the program can put layers on; its memory in bytes."""

    description: str
    memory_total: int
    memory_free: int


@dataclass(frozen=True)
class ProbedProgram:
    """A llama-server. `has_rpc`: it was built with RPC."""

    path: str
    version: str
    spec_types: frozenset[str]
    """Those words of `DRAFTERS` that it knows."""
    has_rpc: bool

    def gpus(self) -> list[Gpu]:
        """The GPUs that it can use, with the memory that is free now. Raises ProgramError."""
        return [
            Gpu(name, int(total) * 2**20, int(free) * 2**20)
            for name, total, free in _GPU.findall(_answer(self.path, "--list-devices"))
        ]

    @property
    def drafts_with(self) -> tuple[str, ...]:
        """What it can draft with, in words for people."""
        return tuple(name for word, name in _NAMES.items() if word in self.spec_types)

    @property
    def lacks(self) -> tuple[str, ...]:
        """What a newer one could draft with."""
        return tuple(name for word, name in _NAMES.items() if word not in self.spec_types)

    def too_old(self, kind: DrafterKind) -> str | None:
        """Why it cannot draft with this kind of drafter; None if it can."""
        word = DRAFTERS[kind].spec_type
        if word in self.spec_types:
            return None
        return f"{self.path} is too old to draft with {_NAMES[word]}: install a newer one"

    @property
    def without_rpc(self) -> str:
        return (
            f"{self.path} was built without RPC, which engine.rpc_servers needs: install one built "
            "with -DGGML_RPC=ON"
        )


def probe_program(program: str) -> ProbedProgram:
    """Asks the program that engine.llama_server names. Raises ProgramError if it is none."""
    path = find(program)
    if path is None:
        at = expanded(program)
        if at.is_dir():
            raise ProgramError(f"{program} is a folder: name the llama-server in it")
        if at.is_file():
            raise ProgramError(f"{program} may not be executed: make it executable (chmod +x)")
        on_path = " on the PATH" if at.name == program else ""
        raise ProgramError(f"there is no program {program}{on_path}")
    with ThreadPoolExecutor() as pool:
        options, versions = pool.map(lambda word: _answer(path, word), ("--help", "--version"))
    if "--ctx-size" not in options or "--port" not in options:
        raise ProgramError(f"{path} is not a llama-server: “--help” lists none of its options")
    lines = (line.strip() for line in versions.splitlines())
    return ProbedProgram(
        path,
        next((line for line in lines if line.startswith("version")), "says no version"),
        # Among others, in one list: none,draft-simple,draft-eagle3,...
        spec_types=frozenset(_NAMES.keys() & set(re.findall(r"[\w-]+", options))),
        has_rpc="--rpc " in options,
    )


def find(program: str) -> str | None:
    """The path of a program that is named by its path, or is on the PATH; None without one."""
    path = expanded(program)
    # Path drops the “./” that says where it is.
    return shutil.which(program if path.name == program else str(path.absolute()))


def _answer(path: str, question: str) -> str:
    try:
        done = subprocess.run(
            [path, question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProgramError(
            f"{path} does not answer “{question}” within {_ANSWER_S:g} seconds, as a llama-server "
            "does"
        ) from None
    except OSError as error:
        raise ProgramError(f"{path} cannot be started: {error.strerror}") from error
    return done.stdout.decode("utf-8", errors="replace")
