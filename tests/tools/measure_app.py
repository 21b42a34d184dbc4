"""Measures what the app costs: the CPU time of its process, its speed, its start.

    python -m tests.tools.measure_app cpu       share of a core that the app's process takes
    python -m tests.tools.measure_app speed     the app against `eaglechat run`, interleaved
    python -m tests.tools.measure_app start     seconds to the first row of the menu, and to the
                                                rows of models in Ollama's store

Each prints a table. They need tmux and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.ggufs import target
from tests.hub import ollama_store
from tests.terminal.tmux import Terminal

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests" / "tools" / "paced_engine.py"
PROMPT = "Tell me a very long story about a fox who wanted to fly."
LOADING_S = 60.0
SETTLE_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("cpu", "speed", "start"))
    parser.add_argument("--rates", default="100,500", help="tokens per second of the script")
    parser.add_argument("--sizes", default="200x50,80x24", help="terminals")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, of a reply")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--n", default="3,auto,0", help="values of n_draft_max")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--models", default="0,2000", help="models in Ollama's store, for start")
    args = parser.parse_args()
    {"cpu": cpu, "speed": speed, "start": start}[args.what](args)


def cpu(args: argparse.Namespace) -> None:
    print("terminal  n_draft_max  tok/s  share of a core")
    for size in args.sizes.split(","):
        for n in args.n.split(","):
            for rate in args.rates.split(","):
                share, seen = _share_of_a_core(size, n, rate, args.seconds)
                print(f"{size:8}  {n:>11}  {seen:8.0f}  {share:.1%}", flush=True)


def _share_of_a_core(size: str, n: str, rate: str, seconds: float) -> tuple[float, float]:
    """CPU time over wall time of the UI process alone, and the tokens per second it was shown."""
    command = [sys.executable, str(ENGINE), rate]
    options = ("--pair", "smollm2-135m", "--n-draft-max", n)
    with (
        _home(f"[engine]\ncommand = {json.dumps(command)}\n") as home,
        _app(home, size, *options) as terminal,
    ):
        _ask(terminal)
        terminal.wait_for("writing…", LOADING_S)
        time.sleep(SETTLE_S)
        process = _process(terminal)
        began, before = time.monotonic(), process.cpu_times()
        time.sleep(seconds)
        took, after = time.monotonic() - began, process.cpu_times()
        spent = after.user + after.system - before.user - before.system
        terminal.keys("Escape")
        screen = terminal.says(r"tokens, [\d.]+\s")
        (count,) = re.findall(r"([\d,]+) tokens,", screen)
        tokens = int(count.replace(",", ""))
        return spent / took, tokens / (took + SETTLE_S)


def speed(args: argparse.Namespace) -> None:
    options = ["--pair", "smollm2-135m", "--temperature", "0"]
    options += ["--max-tokens", str(args.max_tokens)]
    print("n_draft_max  terminal  app tok/s  run tok/s  app / run (medians; all values)")
    for size in args.sizes.split(","):
        for n in args.n.split(","):
            chosen = [*options, "--n-draft-max", n]
            pairs = [(_app_speed(size, chosen), _run_speed(chosen)) for _ in range(args.repeat)]
            app, run = (statistics.median(values) for values in zip(*pairs, strict=True))
            print(
                f"{n:>11}  {size:8}  {app:9.1f}  {run:9.1f}  {app / run:.3f}  {pairs}", flush=True
            )


def _app_speed(size: str, options: list[str]) -> float:
    with _home("") as home, _app(home, size, *options) as terminal:
        _ask(terminal)
        # Every look at the pane costs the models a little; few looks.
        # Where the line is long, the unit is on the next one.
        wanted = r"tokens, ([\d.]+)\s"
        (speed,) = re.findall(wanted, terminal.says(wanted, LOADING_S, every=2.0))
        return float(speed)


def _run_speed(options: list[str]) -> float:
    with _home("") as home:
        command = [sys.executable, "-m", "eaglechat", "run", *options, "--json", PROMPT]
        environment = {**psutil.Process().environ(), "EAGLECHAT_HOME": str(home)}
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        report = json.loads(done.stdout)
        return float(report["timings"]["tokens_per_second"])


def start(args: argparse.Namespace) -> None:
    """Interleaved. The first start of each store reads every header; the others know them."""
    with ExitStack() as stack:
        homes = {int(n): stack.enter_context(_home("")) for n in args.models.split(",")}
        for n, home in homes.items():
            _fill(home / "ollama", n)
        times: dict[int, list[tuple[float, float]]] = {n: [] for n in homes}
        for _ in range(args.repeat + 1):
            for n, home in homes.items():
                times[n].append(_start(home, n > 0))
    print("models  first row  their rows  at the first start (seconds; medians; all values)")
    for n, (first, *others) in times.items():
        row, rows = (statistics.median(values) for values in zip(*others, strict=True))
        print(f"{n:6}  {row:9.2f}  {rows:10.2f}  {first[0]:.2f}, {first[1]:.2f}  {others}")


def _fill(store: Path, n: int) -> None:
    tensors = [(f"blk.{i}.weight", (8,)) for i in range(300)]
    for i in range(n):
        name: dict[str, Any] = {"general.name": f"Model {i}"}
        data = target(tensors=tensors, **name)
        ollama_store.put(store, f"a{i:04}/latest", data)


def _start(home: Path, has_models: bool) -> tuple[float, float]:
    """Seconds to the first row, and to those of the models, which are shown all at once."""
    began = time.monotonic()
    with _app(home, "80x24") as terminal:
        terminal.wait_for("smollm2-135m", LOADING_S, every=0.005)
        row = time.monotonic() - began
        if has_models:
            terminal.wait_for("a0000", LOADING_S, every=0.02)
        rows = time.monotonic() - began
        terminal.keys("C-q")
    return row, rows


@contextmanager
def _home(config: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "config").mkdir()
        (home / "config" / "config.toml").write_text(config, encoding="utf-8")
        yield home


def _app(home: Path, size: str, *options: str) -> Terminal:
    width, height = map(int, size.split("x"))
    command = [sys.executable, "-m", "eaglechat", *options]
    env = {
        "EAGLECHAT_HOME": str(home),
        "OLLAMA_MODELS": str(home / "ollama"),
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        # As where it is installed: compiled once, and not at each start.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(home / "bytecode"),
    }
    return Terminal(command, width=width, height=height, env=env)


def _ask(terminal: Terminal) -> None:
    terminal.wait_for("Ask something", LOADING_S)
    terminal.type(PROMPT)
    terminal.keys("Enter")


def _process(terminal: Terminal) -> psutil.Process:
    return terminal.shell().children()[0]


if __name__ == "__main__":
    main()
