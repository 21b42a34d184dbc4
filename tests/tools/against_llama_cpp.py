"""Compares with llama.cpp's own loop: the built-in pair in llama-speculative-simple, in turns.

`python -m tests.tools.against_llama_cpp PROGRAM` from a clone, on a machine that does nothing else.
PROGRAM is your llama-speculative-simple, built from the same sources as llama-cpp-python.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, median

from eaglechat.cli.loading import CommandEngine, Interrupt
from eaglechat.engine.bench.prompts import Prompt, builtin_prompts
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.links.llama_server.program import draft_gpu_options, gpu_options
from eaglechat.settings.model import Settings
from eaglechat.wire import protocol as p

_DECODED = re.compile(r"decoded\s+(\d+)\s+tokens in\s+([\d.]+)\s+seconds")
Speeds = dict[tuple[str, int], list[float]]
"""Tokens per second of each repeat, by prompt and draft length; 0 is plain decoding."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--n", default="3,5", help="draft lengths")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=4)
    args = parser.parse_args()
    lengths = [int(n) for n in args.n.split(",")]
    ours: Speeds = defaultdict(list)
    theirs: Speeds = defaultdict(list)
    with Interrupt() as interrupt, CommandEngine(Settings(), interrupt) as engine:
        info = engine.load(builtin_pair())
        for repeat in range(args.repeat):
            for prompt in builtin_prompts():
                for length in [0, *lengths][:: 1 if repeat % 2 == 0 else -1]:
                    drafting = p.Speculation(n_draft_max=length) if length else p.PLAINLY
                    reply = p.Chat(
                        messages=prompt.messages,
                        sampling=p.Sampling(temperature=0.0),
                        speculation=drafting,
                        max_tokens=args.max_tokens,
                    )
                    *_, done = engine.ask(reply)
                    assert isinstance(done, p.Done)
                    ours[prompt.name, length].append(done.end.tokens_per_second)
                text = _rendered(engine, prompt)
                for length in (0, *lengths):
                    speed = _run(args, text, length, info)
                    theirs[prompt.name, length].append(speed)
    print("| Drafted tokens | eaglechat, tok/s | llama.cpp, tok/s | Ratio |")
    print("| --- | ---: | ---: | ---: |")
    for length in (0, *lengths):
        cells = [(median(ours[key]), median(theirs[key])) for key in ours if key[1] == length]
        own, other = (geometric_mean(speeds) for speeds in zip(*cells, strict=True))
        print(f"| {length or 'none'} | {own:.1f} | {other:.1f} | {own / other:.2f} |")


def _rendered(engine: CommandEngine, prompt: Prompt) -> str:
    *_, said = engine.ask(p.Render(messages=prompt.messages))
    assert isinstance(said, p.Rendered)
    return "".join(run.text for run in said.runs)


def _run(args: argparse.Namespace, prompt: str, length: int, info: p.PairInfo) -> float:
    """Tokens per second of the program; `length` 0 decodes plainly."""
    # It does not run without a drafter. For plain decoding, this one looks for a repetition of
    # 1024 tokens and never finds one.
    drafter = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "1024"]
    if length:
        assert info.drafter is not None
        assert info.drafter.file is not None
        eagle3 = ["--spec-type", "draft-eagle3", "--spec-draft-n-max", str(length)]
        drafter = ["-md", info.drafter.file.path, *eagle3]
    options = Settings().to_load_options()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        # The program drops one newline at the end of a prompt file.
        file.write(prompt + "\n")
        file.flush()
        command = [
            *(str(args.program), "-m", info.target.path, *drafter),
            *("-f", file.name, "--no-escape", "-n", str(args.max_tokens), "--temp", "0"),
            *("-c", str(info.n_ctx), "-b", str(info.n_ctx), "-t", str(info.n_threads)),
            *(*gpu_options(options), *draft_gpu_options(options)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = _DECODED.search(done.stdout + done.stderr)
    assert found is not None, done.stderr[-2000:]
    return int(found[1]) / float(found[2])


if __name__ == "__main__":
    main()
