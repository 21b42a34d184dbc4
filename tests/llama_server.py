"""llama.cpp's own server, out of the wheel xllamacpp, in a process of its own.

`python -m tests.llama_server TARGET [DRAFT]` serves until its standard input ends.
"""

from __future__ import annotations

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
def llama_server(target: Path, *, draft: Path | None = None) -> Iterator[LlamaServer]:
    """A server of this model and this draft."""
    files = [str(file) for file in (target, draft) if file]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.llama_server", *files],
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


def serve(
    target: str,
    *,
    draft: str | None = None,
    spec_type: str | None = None,
    drafting: tuple[int, int, float] = (N_DRAFT_MAX, 0, 0.0),
    n_ctx: int = 4096,
    n_threads: int = 1,
    port: int = 0,
    key: str = "",
) -> Any:
    """Serve from this process, and print the address; the server lives as long as the result.

    `spec_type` is the word of llama-server's option; with a draft and without the word it is
    EAGLE-3's. `drafting`: the most and the least tokens of a draft, and their least probability.
    """
    from xllamacpp import CommonParams, Server
    from xllamacpp.xllamacpp import common_speculative_type

    params = CommonParams()
    params.model.path = target
    if draft:
        params.speculative.draft.mparams.path = draft
        spec_type = spec_type or "draft-eagle3"
    if spec_type:
        speculative = params.speculative.draft
        speculative.n_max, speculative.n_min, speculative.p_min = drafting
        speculative.cpuparams.n_threads = n_threads
        name = spec_type.replace("-", "_").upper()
        params.speculative.types = [int(common_speculative_type[f"COMMON_SPECULATIVE_TYPE_{name}"])]
    if key:
        params.api_keys = [key]
    params.use_jinja, params.warmup = True, False
    params.n_ctx, params.n_parallel, params.port = n_ctx, 1, port
    params.cpuparams.n_threads = n_threads
    server = Server(params)
    print("listening", server.listening_address, flush=True)
    return server


if __name__ == "__main__":
    files = sys.argv[1:]
    running = serve(files[0], draft=files[1] if files[1:] else None)
    sys.stdin.read()
    # Its destructor waits for idle threads.
    os._exit(0)
