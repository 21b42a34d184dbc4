"""How large the index of a year of chats is, how long it takes to build, and a search to answer.

    python -m tests.measure.measure_search FOLDER CHATS BYTES

Makes chats in FOLDER, as many as are wanted and are not there yet, each of so many bytes as
eaglechat would write them: an eighth is text. The columns of the rounds, which no index reads, are
left as holes in the files, so that the disk holds the text alone; the time to read them is measured
on files without holes. Words follow Zipf's law over those of this repository and made-up ones.
"""

from __future__ import annotations

import itertools
import random
import re
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from eaglechat.chat.history import lines
from eaglechat.chat.recording import Terms, TurnPart
from eaglechat.chat.search.build import turns_of
from eaglechat.chat.search.shelf import ChatShelf

ROOT = Path(__file__).parents[2]
TEXT_SHARE, REPEATS = 8, 5
SENTENCES, SENTENCE_WORDS = 100_000, 10
QUESTION, REPLY, PIECE = 4, 30, 3
"""Sentences of each."""
QUERIES = (
    "t", "th", "the", "that", "pro", "proc", "process", "with token", "speculative decoding",
    '"the target"', '"accepted draft tokens', "zzzzqx", "the of and to", "con mod tok",
)  # fmt: skip


class Writer:
    """Writes sentences, whose words follow Zipf's law; the same for the same seed."""

    def __init__(self) -> None:
        pages = "\n".join(page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
        made_up = ("".join(made) for made in itertools.product("bcdflmnprst", "aeiou", repeat=3))
        words = [word for word, _ in Counter(re.findall(r"[A-Za-z]{1,20}", pages)).most_common()]
        words += made_up
        weights = [*itertools.accumulate(1 / rank for rank in range(1, len(words) + 1))]
        random.seed(1)
        drawn = random.choices(words, cum_weights=weights, k=SENTENCES * SENTENCE_WORDS)
        self._sentences = [
            " ".join(drawn[start : start + SENTENCE_WORDS]) + ". "
            for start in range(0, len(drawn), SENTENCE_WORDS)
        ]

    def sentences(self, count: int) -> str:
        return "".join(random.choices(self._sentences, k=count))


def write_chat(file: Path, writer: Writer, size: int, *, holes: bool) -> None:
    """A chat of about `size` bytes."""
    header = lines.ChatHeader(created="2026-01-01T00:00", pair="p", target="/t", version=2)
    with file.open("wb") as stream:
        stream.write(lines.encode(header) + lines.encode(lines.TermsLine(terms=Terms())))
        written, id, parent = 0, 1, None
        while written < size // TEXT_SHARE:
            question = writer.sentences(QUESTION)
            parts = (TurnPart(question),)
            stream.write(lines.encode(lines.QuestionLine(id=id, parent=parent, parts=parts)))
            stream.write(lines.encode(lines.ReplyLine(id=id + 1, parent=id)))
            written += len(question)
            for _ in range(REPLY // PIECE):
                text = writer.sentences(PIECE)
                written += len(text)
                data = "" if holes else "A" * (len(text) * (TEXT_SHARE - 1))
                stream.write(lines.encode(lines.RoundsLine(of=id + 1, text=text, data=data)))
            stream.write(lines.encode(lines.EndLine(of=id + 1)))
            id, parent = id + 2, id + 1
        stream.write(lines.encode(lines.SummaryLine(title=f"chat {file.stem}", messages=id - 1)))


def main() -> None:
    folder, count, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chats, writer = folder / "chats", Writer()
    chats.mkdir(parents=True, exist_ok=True)
    for number in range(len([*chats.iterdir()]), count):
        random.seed(number)
        write_chat(chats / f"{number:05}.jsonl", writer, size, holes=True)
    print(f"reading a whole chat: {read_ms(folder / 'whole.jsonl', writer, size):.0f} ms")
    shelf = ChatShelf(chats)
    begun = time.perf_counter()
    for progress in shelf.update():
        seconds = time.perf_counter() - begun
        print(f"\r{progress.done} of {progress.total} in {seconds:.0f} s", end="", flush=True)
    text = sum(file.stat().st_size for file in chats.iterdir())
    index = shelf.index_file.stat().st_size
    print(f"\n{text / 1e6:,.0f} MB of text, {index / 1e6:,.0f} MB of index")
    begun = time.perf_counter()
    listed = [*shelf.listed()][-1]
    print(f"list of {len(listed)}: {(time.perf_counter() - begun) * 1000:.0f} ms")
    for query in QUERIES:
        times, found = [], 0
        for _ in range(REPEATS):
            begun = time.perf_counter()
            found = len(shelf.find(query) or [])
            times.append((time.perf_counter() - begun) * 1000)
        print(f"{query:24} {times[0]:5.0f} ms, then {statistics.median(times):5.0f} ms, {found}")


def read_ms(file: Path, writer: Writer, size: int) -> float:
    """How long the index takes to read a chat without holes."""
    write_chat(file, writer, size, holes=False)
    begun = time.perf_counter()
    for _ in range(REPEATS):
        turns_of(file)
    return (time.perf_counter() - begun) * 1000 / REPEATS


if __name__ == "__main__":
    main()
