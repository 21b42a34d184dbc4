"""Programs that take llama-server's options, to be started as one: `write_program` makes a file.

`real` is llama.cpp's own server out of the wheel xllamacpp. The others do what a program may do to
whoever starts it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from tests.llama_server import serve

ROOT = Path(__file__).parents[3]


def write_program(folder: Path, kind: str) -> Path:
    """An executable of this kind; it appends its options to `started` beside it."""
    program, new = folder / "llama-server", folder / "llama-server.new"
    new.write_text(
        f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -m tests.links.llama_server."
        f"program {kind} '{folder}/started' \"$@\"\n"
    )
    new.chmod(0o755)
    # The one before may still be running.
    return new.replace(program)


def started(folder: Path) -> list[list[str]]:
    """The options of each start."""
    return [line.split() for line in (folder / "started").read_text().splitlines()]


def main() -> None:
    kind, note, *options = sys.argv[1:]
    if options == ["--version"]:
        print("some library was found\nversion: 1.2.3 (abcdef)")
        return
    if options == ["--help"]:
        print(HELP.get(kind, f"{JUNE},draft-mtp,draft-dflash,draft-dspark,ngram-simple"))
        return
    if options == ["--list-devices"]:
        print("Available devices:\n  CUDA0: A Card (24 GB) (24000 MiB, 23000 MiB free)")
        return
    with Path(note).open("a", encoding="utf-8") as file:
        file.write(" ".join(options) + "\n")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("-m", "-c", "-b", "-np", "-ngl", "-fit", "-sm", "-mg", "-fa", "--host", "-t"):
        parser.add_argument(flag)
    for flag in ("-md", "--spec-type", "-ngld", "-ctk", "-ctv"):
        parser.add_argument(flag)
    parser.add_argument("--port", type=int)
    parser.add_argument("--spec-draft-n-max", type=int, dest="n_max", default=3)
    parser.add_argument("--spec-draft-n-min", type=int, dest="n_min", default=0)
    parser.add_argument("--spec-draft-p-min", type=float, dest="p_min", default=0.0)
    parser.add_argument("--no-webui", action="store_true")
    parser.add_argument("--offline", action="store_true")
    args = parser.parse_args(options)
    KINDS[kind](args)


def real(args: argparse.Namespace) -> None:
    server = serve(
        args.m,
        draft=args.md,
        spec_type=args.spec_type,
        drafting=(args.n_max, args.n_min, args.p_min),
        n_ctx=int(args.c),
        n_threads=int(args.t or 1),
        port=args.port,
        key=os.environ["LLAMA_API_KEY"],
    )
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while server:
        time.sleep(1.0)


def crash(args: argparse.Namespace) -> None:
    print(f"loading {args.m}", flush=True)
    print("error: failed to load the model: out of memory", file=sys.stderr, flush=True)
    for line in range(0 if "GGML_NO_BACKTRACE" in os.environ else 30):
        print(f"#{line} 0x0000 in a debugger's report", file=sys.stderr, flush=True)
    print("it ends here", file=sys.stderr, flush=True)
    sys.exit(3)


def doomed(_args: argparse.Namespace) -> None:
    os.kill(os.getpid(), signal.SIGILL)


def dated(_args: argparse.Namespace) -> None:
    """It lacks an option that newer ones have."""
    sys.exit("error: invalid argument: --spec-draft-p-min")


def hang(args: argparse.Namespace) -> None:
    print(f"loading {args.m}\nloading {args.md}", flush=True)
    time.sleep(600.0)


def deaf(args: argparse.Namespace) -> None:
    """It does not end when it is asked to."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(args)


def headless(args: argparse.Namespace) -> None:
    """It cannot run heads that are in the target's file."""
    if args.spec_type and not args.md:
        sys.exit("error: failed to create MTP context")
    real(args)


class _Garbage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/health":
            self.send_response(200)
            self.end_headers()
        else:
            self.wfile.write(b"\x00\xff what?\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        print("\udcff\x1b[31m garbage".encode("utf-8", "surrogateescape"))


def garbage(args: argparse.Namespace) -> None:
    sys.stdout.buffer.write(b"\xff\xfe\x00" * 1000 + b"\n")
    sys.stdout.flush()
    HTTPServer(("127.0.0.1", args.port), _Garbage).serve_forever()


JUNE = "--ctx-size N\n--port N\n--rpc SERVERS\n--spec-type none,draft-simple,draft-eagle3"
HELP = {
    "june": JUNE,
    "old": "--ctx-size N\n--port N\n--draft N",
    "stranger": "Usage: stranger [FILE]",
}
"""What programs say that are none, or cannot do all."""
KINDS = {
    "real": real,
    "june": real,
    "headless": headless,
    "crash": crash,
    "doomed": doomed,
    "dated": dated,
    "hang": hang,
    "deaf": deaf,
    "garbage": garbage,
}


if __name__ == "__main__":
    main()
