"""Checks eaglechat on this machine's GPU and prints what it measured, as Markdown.

`python -m tests.gpu.check` from a clone, with a llama-cpp-python that was built for the GPU; see
docs/gpu.md. It ends with 0 if every check passed, 1 if one failed, 3 if there is no GPU.
"""

from __future__ import annotations

import argparse
import io
import math
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import eaglechat
from eaglechat.cli.bench import tables as bench_tables
from eaglechat.engine.bench import measure as bench
from eaglechat.engine.bench.measure import BenchPrompt, BenchRun, Write
from eaglechat.engine.bench.profile import native_clock, profile
from eaglechat.engine.bench.settings import name_of, settings_of
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama import backend
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.engine.loading.placement import offload_devices
from eaglechat.gguf.preflight import check_pair
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.wire import bench_records
from eaglechat.wire.bench_records import RoundProfile
from eaglechat.wire.errors import EngineError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import PROTOCOL_VERSION, Hello, Message, Sampling, Speculation
from tests.gpu.killed import kill_and_load_again
from tests.gpu.random_pair import QUANTIZATIONS, SHAPES, pair_bytes, write_pair

PASSED, FAILED, NO_GPU = 0, 1, 3
PYTHON_BOUND_MS = 0.2
"""What a round may take beyond native calls, on a GPU with rounds of 5 to 10 ms."""

_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_SIGMAS = 3.0

Pair = tuple[Path, Path | None]


@dataclass(frozen=True)
class Check:
    """What was found; `passed` is None where the check was skipped."""

    name: str
    passed: bool | None
    found: str

    def __str__(self) -> str:
        verdict = {True: "passed", False: "FAILED", None: "skipped"}[self.passed]
        return f"| {self.name} | {verdict} | {self.found} |"


def main(arguments: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    backend.start_backend(backend.LOG_ERRORS)
    gpus = offload_devices(backend.devices())
    if not gpus and not args.cpu:
        print(
            f"no GPU: llama.cpp was built for {', '.join(backend.backends())} and sees none. "
            "docs/gpu.md says how to install it; --cpu runs what can run without one.",
            file=sys.stderr,
        )
        return NO_GPU
    print(f"eaglechat on {platform.platform()}, {platform.machine()}")
    print(f"llama-cpp-python and llama.cpp: {', '.join(backend.versions())}")
    for gpu in [] if args.cpu else gpus:
        print(f"{gpu.name}: {gpu.description}, {gpu.memory_total / 2**30:.1f} GiB")
    checks: list[Check] = []
    try:
        with _folder(args) as folder:
            for name, pair in _pairs(args, folder):
                print(f"\n## {name}\n")
                checks += [_named(check, name) for check in _check(pair, args)]
    except (EngineError, OSError) as error:
        print(f"stopped: {error}", file=sys.stderr)
        return FAILED
    print("\n## Checks\n\n| Check | Result | Found |\n| --- | --- | --- |")
    for check in checks:
        print(check)
    return FAILED if any(check.passed is False for check in checks) else PASSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="run on the processor; skip GPU checks")
    parser.add_argument(
        "--without-speed", action="store_true", help="placement and acceptance only; no random pair"
    )
    parser.add_argument("--target", type=Path, help="a target in place of the built-in pair's")
    parser.add_argument("--draft", type=Path, help="its draft")
    parser.add_argument(
        "--shape", choices=SHAPES, action="append", help="random pairs to build (llama-3.1-8b)"
    )
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="q4_0")
    parser.add_argument("--folder", type=Path, help="keep the random pairs here for the next run")
    parser.add_argument("--prompts", type=int, default=8, help="built-in prompts to run, 1 to 8")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ctx", type=int, default=4096)
    return parser


@contextmanager
def _folder(args: argparse.Namespace) -> Iterator[Path]:
    if args.folder is not None:
        yield args.folder
        return
    with tempfile.TemporaryDirectory(prefix="eaglechat-gpu-") as folder:
        yield Path(folder)


def _pairs(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Pair]]:
    builtin = builtin_pair()
    if args.target is not None:
        yield args.target.stem, (args.target, args.draft)
    elif builtin.target.is_file():
        yield builtin.name, (builtin.target, builtin.draft)
    if args.without_speed:
        return
    for name in args.shape or ["llama-3.1-8b"]:
        shape = SHAPES[name]
        folder.mkdir(parents=True, exist_ok=True)
        free, needed = shutil.disk_usage(folder).free, pair_bytes(shape, args.quantization)
        if free < needed:
            raise SystemExit(
                f"{folder} has {free / 2**30:.1f} GiB free, a random {name} pair takes "
                f"{needed / 2**30:.1f}; give another --folder"
            )
        print(f"writing a random {name} pair to {folder}", file=sys.stderr)
        yield f"random {name} {args.quantization}", write_pair(folder, shape, args.quantization)


def _named(check: Check, pair: str) -> Check:
    return Check(f"{pair}: {check.name}", check.passed, check.found)


def _check(pair: Pair, args: argparse.Namespace) -> Iterator[Check]:
    """All checks of one pair; tables are printed as they are measured."""
    prompts = bench.builtin_prompts()[: args.prompts]
    here = LoadOptions(n_ctx=args.ctx, n_gpu_layers=0 if args.cpu else -1)
    before = _free_memory()
    with _loaded(pair, here) as (loaded, log):
        for name, free in _free_memory().items():
            print(f"{name}: {(before[name] - free) / 2**30:.2f} GiB taken by the pair\n")
        yield _offload_check(log, skipped=args.cpu)
        runs = _measure(loaded, prompts, args)
        accepted = accepted_by_length(runs)
        if not args.without_speed:
            yield _speed(loaded, runs, prompts, args)
    # Against one thread where there is no other device, which at least runs the comparison.
    other = LoadOptions(n_ctx=args.ctx, n_gpu_layers=0, n_threads=1 if args.cpu else None)
    with _loaded(pair, other) as (loaded, _):
        again = accepted_by_length(_measure(loaded, prompts, args, repeats=1))
    yield acceptance_check(accepted, again, "one thread" if args.cpu else "the processor")
    name = "an engine killed in mid-reply leaves the device to the next one"
    yield Check(name, *kill_and_load_again(pair, here))


def _speed(
    loaded: LoadedPair,
    runs: list[BenchRun],
    prompts: Sequence[BenchPrompt],
    args: argparse.Namespace,
) -> Check:
    """Print the tables; judge where a round's time goes."""
    profiles = _profiles(loaded, prompts[0], args.max_tokens)
    report = bench.report_of(runs)
    hello = Hello(
        protocol=PROTOCOL_VERSION, eaglechat=eaglechat.__version__, llama_cpp="", devices=()
    )
    for line in bench_tables.lines(loaded.info, hello, report, [], profiles, markdown=True):
        print(line)
    return _python_check(profiles, skipped=args.cpu)


@contextmanager
def _loaded(pair: Pair, options: LoadOptions) -> Iterator[tuple[LoadedPair, str]]:
    """A loaded pair, and llama.cpp's log of the load."""
    log = io.StringIO()
    backend.start_backend(backend.LOG_INFO)
    try:
        with redirect_stderr(log):
            loaded = LoadedPair(check_pair(*pair), options)
    except Exception:
        print(log.getvalue(), file=sys.stderr)
        raise
    finally:
        backend.start_backend(backend.LOG_ERRORS)
    try:
        yield loaded, log.getvalue()
    finally:
        loaded.close()


def _free_memory() -> dict[str, int]:
    return {gpu.name: gpu.memory_free for gpu in offload_devices(backend.devices())}


def _offload_check(log: str, *, skipped: bool) -> Check:
    name = "every layer of target and draft is on a GPU"
    if skipped:
        return Check(name, None, "--cpu")
    return offload_check(name, log)


def offload_check(name: str, log: str) -> Check:
    """Judge llama.cpp's own count of layers; it logs one line for each model."""
    counts = [(int(on_gpu), int(all_)) for on_gpu, all_ in _OFFLOADED.findall(log)]
    found = ", ".join(f"{on_gpu} of {all_}" for on_gpu, all_ in counts) or "no layer"
    whole = len(counts) == 2 and all(on_gpu == all_ for on_gpu, all_ in counts)
    return Check(name, whole, found)


def _writer(loaded: LoadedPair) -> Write:
    def write(prompt: BenchPrompt, speculation: Speculation, most: int) -> Iterator[object]:
        return loaded.generator.reply(
            loaded.prompter.prompt((Message(role="user", content=prompt.text),)),
            Sampling(temperature=0.0),
            Live(speculation, 0.0),
            seed=0,
            max_tokens=most,
        )

    return write


def _measure(
    loaded: LoadedPair,
    prompts: Sequence[BenchPrompt],
    args: argparse.Namespace,
    repeats: int | None = None,
) -> list[BenchRun]:
    never: Callable[[], bool] = lambda: False  # noqa: E731
    return list(
        bench.measure(
            _writer(loaded),
            prompts,
            settings_of([3] if args.without_speed else [3, 5], ["chain"], [False]),
            repeats=range(repeats or args.repeat),
            max_tokens=args.max_tokens,
            cancelled=never,
        )
    )


def _profiles(loaded: LoadedPair, prompt: BenchPrompt, most: int) -> list[RoundProfile]:
    write = _writer(loaded)
    with native_clock() as clock:
        return [
            profile(name_of(setting), write(prompt, setting, most), clock)
            for setting in settings_of([3, 5], ["chain"], [False])
        ]


def _python_check(profiles: Sequence[RoundProfile], *, skipped: bool) -> Check:
    worst = max(profiles, key=lambda one: one.python_ms)
    found = f"at most {worst.python_ms:.3f} ms of {worst.total_ms:.2f} (n = {worst.setting})"
    name = f"a round takes less than {PYTHON_BOUND_MS} ms of Python"
    return Check(name, None if skipped else worst.python_ms < PYTHON_BOUND_MS, found)


Counts = dict[str, tuple[int, int]]
"""Accepted and tested draft tokens by draft length."""


def accepted_by_length(runs: Sequence[BenchRun]) -> Counts:
    """Of each prompt's first run: greedy repeats are all alike."""
    counts: Counts = {}
    for run in runs:
        if run.repeat == 0 and run.setting != bench_records.PLAIN:
            accepted, tested = counts.get(run.setting, (0, 0))
            counts[run.setting] = (accepted + run.n_accepted, tested + run.n_tested)
    return counts


def acceptance_check(here: Counts, there: Counts, other: str) -> Check:
    """Judge two sets of counts by the spread of a share: texts fork where logits are near ties."""
    same = all(_alike(here[length], there[length]) for length in here)
    found = "; ".join(
        f"n = {length}: {here[length][0]} of {here[length][1]} here, "
        f"{there[length][0]} of {there[length][1]} there"
        for length in here
    )
    return Check(f"as many tokens are accepted as on {other}", same, found)


def _alike(one: tuple[int, int], two: tuple[int, int]) -> bool:
    (a, n), (b, m) = one, two
    if n == 0 or m == 0:
        return n == m
    share = (a + b) / (n + m)
    spread = math.sqrt(share * (1.0 - share) * (1.0 / n + 1.0 / m))
    return abs(a / n - b / m) <= _SIGMAS * spread


if __name__ == "__main__":
    sys.exit(main())
