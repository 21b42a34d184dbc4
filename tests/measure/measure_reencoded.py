"""What re-encoding the built-in target changes: greedy replies to 24 prompts, with both files.

    python -m tests.measure.measure_reencoded

For each prompt: the characters up to the first difference, and what the draft got accepted at a
draft length of 3. Prints Markdown.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.hub.local.reencoded import target_to_load
from tests.measure.everyday_prompts import everyday_prompts

N_PROMPTS, N_TOKENS, N_DRAFT = 24, 96, 3


def main() -> None:
    pair = builtin_pair()
    files = [pair.target, target_to_load(pair, lambda _fraction: None).target]
    totals = [[0, 0], [0, 0]]
    same = 0
    print("| Prompt | First difference | Accepted before | After |")
    print("| --- | --- | --- | --- |")
    prompts = everyday_prompts()
    for prompt in prompts[:: len(prompts) // N_PROMPTS][:N_PROMPTS]:
        replies = [greedy(target, pair.draft, prompt) for target in files]
        before, after = (reply["text"] for reply in replies)
        fork = forked(before, after)
        same += before == after
        counts = [(r["speculation"]["accepted"], r["speculation"]["drafted"]) for r in replies]
        for total, (accepted, drafted) in zip(totals, counts, strict=True):
            total[0] += accepted
            total[1] += drafted
        where = "none" if before == after else f"character {fork} of {len(before)}"
        shown = " | ".join(f"{accepted}/{drafted}" for accepted, drafted in counts)
        print(f"| {prompt[:40].strip()} | {where} | {shown} |", flush=True)
    shares = " | ".join(f"{100 * a / d:.0f}%" for a, d in totals)
    print(f"| All | {same} of {N_PROMPTS} the same | {shares} |")


def forked(one: str, other: str) -> int:
    """How many characters two replies begin with alike."""
    alike = 0
    while alike < min(len(one), len(other)) and one[alike] == other[alike]:
        alike += 1
    return alike


def greedy(target: Path, draft: Path | None, prompt: str) -> dict[str, Any]:
    flags = ["--temperature", "0", "--n-draft-max", str(N_DRAFT), "--max-tokens", str(N_TOKENS)]
    command = [sys.executable, "-m", "eaglechat", "run", "--json", *flags]
    files = ["--target", str(target), "--draft", str(draft), prompt]
    printed = subprocess.run([*command, *files], check=True, capture_output=True).stdout
    reply: dict[str, Any] = json.loads(printed)
    return reply


if __name__ == "__main__":
    main()
