"""llama.cpp's own server, out of the wheel xllamacpp, in a process of its own.

`python -m tests.llama_server TARGET [--template FILE] [--draft FILE] [--port N] [--key KEY]` serves
until its standard input ends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
N_DRAFT_MAX = 3


class RefusedError(Exception):
    """The server answered with an error; the text is what it said."""


class LlamaServer:
    """A running server, by its address."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to a request. Raises RefusedError."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RefusedError(error.read().decode()) from error

    def prompt(self, messages: list[dict[str, str]], **options: Any) -> str:
        """The prompt that its template makes of a conversation."""
        return str(self.post("/apply-template", {"messages": messages, **options})["prompt"])

    def parts_of(self, raw: str, messages: list[dict[str, str]], **options: Any) -> tuple[str, str]:
        """Reasoning and answer that its parser finds in a raw reply, which a grammar forces."""
        answer = self.post(
            "/v1/chat/completions",
            {
                "messages": messages,
                "grammar": f"root ::= {json.dumps(raw, ensure_ascii=False)}",
                "temperature": 0,
                **options,
            },
        )
        message = answer["choices"][0]["message"]
        return message.get("reasoning_content") or "", message.get("content") or ""


@contextmanager
def llama_server(
    target: Path,
    template: Path | None = None,
    *,
    draft: Path | None = None,
    port: int = 0,
    key: str = "",
) -> Iterator[LlamaServer]:
    """A server of this model, with this chat template or the model's own, and this draft."""
    given = {"--template": template, "--draft": draft, "--port": port, "--key": key}
    words = [
        str(target),
        *(str(w) for flag, value in given.items() if value for w in (flag, value)),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.llama_server", *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        said = (line.split() for line in process.stdout)
        url = next(words[1] for words in said if words[:1] == ["listening"])
        yield LlamaServer(url)
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


def main() -> None:
    from xllamacpp import CommonParams, Server
    from xllamacpp.xllamacpp import common_speculative_type

    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--template", type=Path)
    parser.add_argument("--draft")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key")
    args = parser.parse_args()
    params = CommonParams()
    params.model.path = args.target
    if args.template:
        params.chat_template = args.template.read_text(encoding="utf-8")
    if args.draft:
        params.speculative.draft.mparams.path = args.draft
        params.speculative.draft.n_max = N_DRAFT_MAX
        eagle3 = common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3
        params.speculative.types = [int(eagle3)]
    if args.key:
        params.api_keys = [args.key]
    params.use_jinja = True
    params.n_ctx, params.n_parallel, params.port = 4096, 1, args.port
    params.cpuparams.n_threads = 1
    params.warmup = False
    server = Server(params)
    print("listening", server.listening_address, flush=True)
    sys.stdin.read()
    # Its destructor waits for idle threads.
    os._exit(0)


if __name__ == "__main__":
    main()
