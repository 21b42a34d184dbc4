"""Checks eaglechat on this machine's GPU and prints what it found, as Markdown.

`python -m tests.tools.gpu_check` from a clone, with a llama-cpp-python that was built for the GPU.
It exits with 0 if every check passed, 1 if one failed, 3 if there is no GPU. The speed is measured
by `eaglechat bench`.
"""

from __future__ import annotations

import argparse
import io
import math
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import msgspec

from eaglechat.engine.bench.prompts import Prompt, builtin_prompts
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.placement import offload_devices
from eaglechat.engine.loop import Live
from eaglechat.engine.pair import LoadedPair
from eaglechat.gguf.pairing import check_pair
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.wire import protocol as p
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import LoadOptions
from eaglechat.wire.records import Round
from tests.engine_client import engine_process

PASSED, FAILED, NO_GPU = 0, 1, 3

_DRAFT_LENGTH = 3
_SIGMAS = 3.0
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_PATIENCE_S = 900.0
"""Mesa's software driver takes a second for a token, and half a minute to compile its shaders."""

Pair = tuple[Path, Path | None]
Counts = tuple[int, int]
"""Accepted and tested draft tokens."""


@dataclass(frozen=True)
class Check:
    """The result of one check; `passed` is None where it was skipped."""

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
        built_for = ", ".join(backend.backends())
        print(f"no GPU: llama.cpp was built for {built_for} and sees none", file=sys.stderr)
        return NO_GPU
    print(f"eaglechat on {platform.platform()}, {platform.machine()}")
    print(f"llama-cpp-python and llama.cpp: {', '.join(backend.versions())}")
    for gpu in [] if args.cpu else gpus:
        print(f"{gpu.name}: {gpu.description}, {gpu.memory_total / 2**30:.1f} GiB")
    builtin = builtin_pair()
    pair = (args.target, args.draft) if args.target else (builtin.target, builtin.draft)
    checks = []
    try:
        print("\n| Check | Result | Found |\n| --- | --- | --- |")
        for check in _checks(pair, args):
            print(check, flush=True)
            checks.append(check)
    except (EngineError, OSError) as error:
        print(f"stopped: {error}", file=sys.stderr)
        return FAILED
    return FAILED if any(check.passed is False for check in checks) else PASSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.gpu_check", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="run on the CPU; skip what needs a GPU")
    parser.add_argument("--target", type=Path, help="a target in place of the built-in pair's")
    parser.add_argument("--draft", type=Path, help="its draft")
    parser.add_argument("--prompts", type=int, default=8, help="built-in prompts to run, 1 to 8")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--ctx", type=int, default=4096)
    return parser


def _checks(pair: Pair, args: argparse.Namespace) -> Iterator[Check]:
    prompts = builtin_prompts()[: args.prompts]
    here = LoadOptions(n_ctx=args.ctx, n_gpu_layers=0 if args.cpu else -1)
    with _loaded(pair, here) as (loaded, log):
        if args.cpu:
            yield Check("every layer of target and draft is on a GPU", None, "--cpu")
        else:
            yield offload_check(log)
        counts = _count(loaded, prompts, args.max_tokens)
    # Without a GPU, one thread stands in for the other device, so that the comparison runs at all.
    there = LoadOptions(n_ctx=args.ctx, n_gpu_layers=0)
    there = msgspec.structs.replace(there, n_threads=1) if args.cpu else there
    with _loaded(pair, there) as (loaded, _):
        again = _count(loaded, prompts, args.max_tokens)
    yield acceptance_check(counts, again, "one thread" if args.cpu else "the CPU")
    yield kill_check(pair, here)


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


def offload_check(log: str) -> Check:
    """Judges llama.cpp's own count of layers; it logs one line per model."""
    counts = [(int(on_gpu), int(all_)) for on_gpu, all_ in _OFFLOADED.findall(log)]
    found = ", ".join(f"{on_gpu} of {all_}" for on_gpu, all_ in counts) or "no layer"
    whole = len(counts) == 2 and all(on_gpu == all_ for on_gpu, all_ in counts)
    return Check("every layer of target and draft is on a GPU", whole, found)


def _count(loaded: LoadedPair, prompts: Sequence[Prompt], most: int) -> Counts:
    """Accepted and tested draft tokens over greedy replies to the prompts."""
    accepted = tested = 0
    for prompt in prompts:
        events = loaded.generator.reply(
            loaded.prompter.conversation(prompt.messages),
            p.Sampling(temperature=0.0),
            Live(p.Speculation(n_draft_max=_DRAFT_LENGTH), 0.0),
            seed=0,
            max_tokens=most,
        )
        for event in events:
            if isinstance(event, Round):
                accepted += event.n_accepted
                tested += event.n_tested
    return accepted, tested


def acceptance_check(here: Counts, there: Counts, other: str) -> Check:
    """Compares two acceptance rates within three standard deviations.

    Two devices round differently, so greedy replies fork where two logits nearly tie.
    """
    (a, n), (b, m) = here, there
    if n and m:
        share = (a + b) / (n + m)
        spread = math.sqrt(share * (1.0 - share) * (1.0 / n + 1.0 / m))
        alike = abs(a / n - b / m) <= _SIGMAS * spread
    else:
        alike = n == m
    found = f"{a} of {n} here, {b} of {m} there"
    return Check(f"as many drafted tokens are accepted as on {other}", alike, found)


def kill_check(pair: Pair, options: LoadOptions) -> Check:
    """Kills an engine process during a reply; the next one must write the same."""
    name = "after an engine is killed during a reply, the next one writes the same"
    target, draft = pair
    load = p.Load(target=str(target), draft=str(draft) if draft else None, options=options)
    with tempfile.TemporaryDirectory(prefix="eaglechat-gpu-") as folder:
        command = [sys.executable, "-m", "eaglechat", "engine"]
        client = engine_process(command, Path(folder) / "engine.log", _PATIENCE_S)
        try:
            loaded = client.answer(load).last
            if not isinstance(loaded, p.Loaded):
                return Check(name, False, f"not loaded: {loaded}")
            client.ask(_chat(256))
            client.until(lambda: len(client.latest.rounds) >= 2)
            before = [token.id for round_ in client.latest.rounds for token in round_.tokens]
            client.process.kill()
            client.until(lambda: client.died is not None)
            client.link.start()
            loaded = client.answer(load).last
            if not isinstance(loaded, p.Loaded):
                return Check(name, False, f"not loaded again: {loaded}")
            client.answer(_chat(max(len(before), 1)))
        finally:
            client.link.close()
        after = [token.id for round_ in client.latest.rounds for token in round_.tokens]
    n = min(len(before), len(after))
    found = f"killed after {len(before)} tokens, loaded again, {len(after)} tokens written"
    return Check(name, n > 0 and before[:n] == after[:n], found)


def _chat(max_tokens: int) -> p.Chat:
    return p.Chat(
        messages=(p.Message(role="user", content="Name three rivers."),),
        sampling=p.Sampling(temperature=0.0, seed=1),
        max_tokens=max_tokens,
    )


if __name__ == "__main__":
    sys.exit(main())
