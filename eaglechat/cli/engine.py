"""Serve a chat client over standard input and output (see docs/protocol.md)."""

from __future__ import annotations

import argparse

from eaglechat.cli.status import FAILED, complain
from eaglechat.wire.errors import NativeLibraryError


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The engine takes its orders as requests."""


def run(_args: argparse.Namespace) -> int:
    try:
        from eaglechat.engine.process import server  # loads llama.cpp
    except NativeLibraryError as error:
        complain(str(error))
        return FAILED
    return server.main()
