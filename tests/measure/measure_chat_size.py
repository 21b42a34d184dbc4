"""Bytes a token of a chat on disk, from a trace of `eaglechat run --trace FILE`:

python -m tests.measure.measure_chat_size FILE...
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from eaglechat.chat.history.lines import RoundsLine, encode
from eaglechat.chat.history.packing import pack
from eaglechat.chat.recording import text_in
from eaglechat.wire.records import Part, Round

TOKENS_PER_SECOND = (10, 20, 40, 100)


def pieces(rounds: Sequence[Round], tokens: int) -> Iterator[list[Round]]:
    """Rounds in pieces of so many tokens: what a second writes at that speed."""
    piece: list[Round] = []
    for round_ in rounds:
        piece.append(round_)
        if sum(len(r.tokens) for r in piece) >= tokens:
            yield piece
            piece = []
    if piece:
        yield piece


def size(rounds: Sequence[Round]) -> int:
    text, reasoning = text_in(rounds, Part.ANSWER), text_in(rounds, Part.REASONING)
    return len(encode(RoundsLine(of=12, text=text, reasoning=reasoning, data=pack(rounds))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path)
    heads = [f"{rate} tokens/s" for rate in TOKENS_PER_SECOND]
    print("|", " | ".join(["Trace", "as JSON", "text alone", *heads]), "|")
    for trace in parser.parse_args().traces:
        lines = trace.read_bytes().splitlines()
        rounds = [msgspec.json.decode(line, type=Round) for line in lines]
        n_tokens = sum(len(r.tokens) for r in rounds)
        text = sum(len(r.text.encode()) for r in rounds)
        sizes = [sum(map(size, pieces(rounds, rate))) for rate in TOKENS_PER_SECOND]
        cells = [sum(map(len, lines)), text, *sizes]
        print("|", " | ".join([trace.name, *(f"{c / n_tokens:.0f}" for c in cells)]), "|")


if __name__ == "__main__":
    main()
