"""Serve a chat client over standard input and output (see docs/protocol.md)."""

from __future__ import annotations

import argparse


def add_arguments(_: argparse.ArgumentParser) -> None:
    """It has none."""


def run(_: argparse.Namespace) -> int:
    from eaglechat.engine import process  # loads llama.cpp

    return process.main()
