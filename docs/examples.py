"""Writes the output shown in commands.md and protocol.md again, from runs of the built-in pair.

    python docs/examples.py

The requests of protocol.md are sent as they stand there. By hand are its `restarting`, for
which llama.cpp has to crash, `settled`, which only servers cause, and `speculation_off`, for which
a draft has to fail.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent)]

from eaglechat.hub.local.pairs import builtin_pair  # noqa: E402

EAGLECHAT = (sys.executable, "-m", "eaglechat")
FLAGS = ("--no-ngram", "--n-draft-max=3", "--shape=chain", "--temperature=0", "--max-tokens=48")
PROMPT = "Explain the Pythagorean theorem"
LONG = "Tell me more about the colour of the sea, and about that of the sky above it. " * 24


class Page:
    """A page whose blocks are replaced."""

    def __init__(self, name: str) -> None:
        self._file = DOCS / f"{name}.md"
        self._text = self._file.read_text(encoding="utf-8")

    def example(self, heading: str) -> str:
        """The first block of JSON under a heading."""
        return self._block(heading, "json")[1]

    def put(self, heading: str, text: str, *, kind: str = "json", nth: int = 0) -> None:
        start, end = self._block(heading, kind, nth).span(1)
        self._text = self._text[:start] + text + self._text[end:]

    def save(self) -> None:
        self._file.write_text(self._text, encoding="utf-8")

    def _block(self, heading: str, kind: str, nth: int = 0) -> re.Match[str]:
        begin = re.search(rf"^#+ {re.escape(heading)}$", self._text, re.M)
        assert begin is not None, heading
        blocks = re.compile(rf"^```{kind}\n(.*?)\n```$", re.M | re.S)
        return list(blocks.finditer(self._text, begin.end()))[nth]


class Engine:
    """An engine, and the first fitting event of each kind."""

    def __init__(self, page: Page, paths: dict[str, str]) -> None:
        self.seen: dict[str, str] = {}
        self._page, self._paths = page, paths
        self._process = subprocess.Popen(
            (*EAGLECHAT, "engine"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, kind: str, **changes: Any) -> None:
        """Send the page's example of a request."""
        request = json.loads(self._page.example(f"`{kind}`")) | changes
        line = json.dumps(request)
        for shown, real in self._paths.items():
            line = line.replace(shown, real)
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def until(self, last: str) -> None:
        """Read events up to one of this kind."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            kind = event["type"]
            step = event.get("step", {})
            if _shows(step):
                self.seen.setdefault(step.get("type", kind), self._shown(line.strip()))
            if kind == last:
                return
        raise RuntimeError(f"the engine ended before {last}")

    def _shown(self, line: str) -> str:
        for shown, real in self._paths.items():
            line = line.replace(real, shown)
        return line


def _shows(step: dict[str, Any]) -> bool:
    """Whether an event with this step is one to show."""
    match step.get("type"):
        case "loading":
            fits = step["stage"] == "draft"
        case "round":
            fits = step["n_draft_max"] == 5 and step["n_accepted"] > 0
        case "prefill":
            fits = step["reused"] > 0
        case _:
            fits = True
    return fits


def protocol() -> None:
    pair = builtin_pair()
    assert pair is not None
    assert pair.draft is not None
    page = Page("protocol")
    paths = {f"/models/{file.name}": str(file) for file in (pair.target, pair.draft)}
    engine = Engine(page, paths)
    engine.ask("load", id=2, target=f"/models/{pair.draft.name}", draft=None)
    engine.until("error")
    engine.ask("load")
    engine.until("loaded")
    engine.ask("chat")
    engine.ask("set")
    engine.until("done")
    engine.ask("chat", id=4)
    engine.until("done")
    engine.ask("render")
    engine.until("rendered")
    turns = [{"role": role, "content": LONG} for role in ("user", "assistant")] * 3
    question = {"role": "user", "content": "And at night?"}
    engine.ask("chat", messages=[*turns, question], max_tokens=256)
    engine.until("done")
    engine.ask("unload")
    engine.until("unloaded")
    engine.ask("shutdown")
    engine.seen["progress"] = engine.seen["loading"]
    for kind, line in engine.seen.items():
        page.put(f"`{kind}`", line)
    page.save()


def commands() -> None:
    page = Page("commands")
    said = subprocess.run((*EAGLECHAT, "run", *FLAGS, PROMPT), capture_output=True, check=True)
    page.put("`eaglechat run`", said.stderr.decode().splitlines()[-1], kind="", nth=1)
    said = subprocess.run(
        (*EAGLECHAT, "run", *FLAGS, "--json", PROMPT), capture_output=True, check=True
    )
    page.put("`--json`", json.dumps(json.loads(said.stdout), indent=2, ensure_ascii=False))
    page.save()


if __name__ == "__main__":
    commands()
    protocol()
