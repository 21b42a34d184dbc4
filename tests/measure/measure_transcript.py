"""Measures a long chat on the screen: python -m tests.measure.measure_transcript [QUESTIONS]

How long it takes to read it from its file and to see its end, how many widgets are made, what a
frame of scrolling through it costs, and the memory that is left afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from eaglechat.chat.conversation.turns import Turns
from eaglechat.chat.history.log import new_log
from eaglechat.chat.history.reading import read_chat
from eaglechat.chat.history.recorder import ChatRecorder
from eaglechat.chat.recording import Recording, Terms, TurnPart
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.paths import builtin_themes_dir
from eaglechat.settings import Settings
from eaglechat.tui.app import EagleApp
from eaglechat.tui.navigation import Resume
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.wire.stats import StatsFold
from tests.chat.records import end_of
from tests.tiny_gguf import write_draft, write_target
from tests.tui.scripted import ScriptedEngine
from tests.tui.scripted_desk import ScriptedDesk
from tests.tui.widgets.transcript_app import make_round

SENTENCE = (" The", " draft", " guesses", " and", " the", " target", " checks", " it.")
FRAMES = 200


def written(folder: Path, questions: int, words: int) -> Path:
    """A chat of so many questions, each with an answer of so many words, as the app keeps it."""
    target, draft = write_target(folder / "target.gguf"), write_draft(folder / "draft.gguf")
    pair = Pair("measured", target, draft, "files", 3)
    turns, log = Turns(), new_log(folder / "chats", pair, print)
    recorder = ChatRecorder(log, turns, None)
    terms = Terms(pair=pair.name, target=str(target), draft=str(draft))
    for number in range(questions):
        question = turns.ask([TurnPart(f"Question {number}: how does it work?")])
        recorder.asked(question)
        reply = turns.answer(question.id, Recording(terms))
        recorder.began(reply)
        fold = StatsFold()
        for at in range(0, words, 4):
            accepted = [SENTENCE[(at + i) % len(SENTENCE)] for i in range(3)]
            end = ".\n\n" if at % 40 == 36 else SENTENCE[(at + 3) % len(SENTENCE)]
            round_ = make_round(accepted, end, " umbrella")
            reply.recording.add(round_)
            fold.add(round_)
            if at % 40 == 36:
                recorder.writing(reply)
        reply.recording.finish(end_of(words, 10.0 * words), fold.stats())
        recorder.ended(reply)
    recorder.left("")
    return log.file


async def measure(folder: Path, file: Path) -> None:
    app = EagleApp(
        settings=Settings(),
        engine=ScriptedEngine(),
        pairs=PairLibrary(folder / "state"),
        config_file=folder / "config.toml",
        chats_dir=folder / "chats",
        theme_dirs=[builtin_themes_dir()],
        desk=ScriptedDesk(),
    )
    app.animation_level = "none"
    async with app.run_test(size=(200, 50)) as pilot:
        while not isinstance(app.screen, MenuScreen):
            await pilot.pause()
        started = time.perf_counter()
        saved = read_chat(file)
        read = time.perf_counter()
        print(f"read {file.stat().st_size / 1e6:.1f} MB in {(read - started) * 1000:.0f} ms")
        app.post_message(Resume(saved))
        while not isinstance(app.screen, ChatScreen) or not app.screen.is_mounted:
            await pilot.pause()
        screen = app.screen
        transcript = screen.transcript
        shown, worked = time.perf_counter(), time.process_time()
        screen._drawn_version = -1
        screen._show_opened()
        await pilot.pause()
        took, work = time.perf_counter() - shown, time.process_time() - worked
        print(f"shown anew in {took * 1000:.0f} ms, {work * 1000:.0f} of them work")
        print(f"entries made: {len(transcript.children)} of {len(transcript.rows.entries)}")
        for name, step in (("rows", 3), ("pages", 40)):
            times = []
            for _frame in range(FRAMES):
                started = time.process_time()
                transcript.scroll_relative(y=-step, animate=False, immediate=True)
                await pilot.pause()
                times.append((time.process_time() - started) * 1000)
                if transcript.scroll_y == 0:
                    transcript.action_scroll_end()
            times.sort()
            print(
                f"work of a frame that scrolls by {name}: median {times[len(times) // 2]:.1f} ms, "
                f"95% {times[int(0.95 * len(times))]:.1f} ms, most {times[-1]:.1f} ms; "
                f"{len(transcript.children)} made"
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(f"peak memory {peak:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", type=int, nargs="?", default=1000)
    parser.add_argument("--words", type=int, default=200)
    args = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(measure(folder, written(folder, args.questions, args.words)))


if __name__ == "__main__":
    main()
