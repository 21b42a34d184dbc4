"""Serve a chat client over standard input and output (see docs/protocol.md)."""

from __future__ import annotations

import argparse
from functools import partial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--llama-server", metavar="PROGRAM", help="run the pairs in this llama-server"
    )


def run(args: argparse.Namespace) -> int:
    if args.llama_server:
        from eaglechat.engine.llama_server.program_worker import ProgramWorker  # the HTTP client
        from eaglechat.engine.process import pipes

        return pipes.serve(partial(ProgramWorker, args.llama_server))
    from eaglechat.engine.process import pair_worker  # loads llama.cpp

    return pair_worker.main()
