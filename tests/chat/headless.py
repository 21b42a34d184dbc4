"""A chat session without a screen, on a scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from eaglechat.chat.saved_chat import SavedChat
from eaglechat.chat.session import ChatSession
from eaglechat.chat.store import ChatStore
from eaglechat.chat.turns import TurnId
from eaglechat.chat.writing.question import QuestionParts, text_of, typed
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.local.speeds import Speeds
from eaglechat.settings.model import Settings
from eaglechat.wire import protocol
from eaglechat.words.timeline import Entry, entries
from tests.tui.scripted import ScriptedEngine
from tests.tui.scripted_reports import pair_info
from tests.waiting import until


class Headless:
    """A view that writes down what it is told, and the session that it shows."""

    def __init__(
        self,
        folder: Path,
        saved: SavedChat | None = None,
        settings: Settings | None = None,
        recommended: protocol.Recommended | None = None,
        roles: Path | None = None,
        *,
        is_loaded: bool = True,
    ) -> None:
        self.said: list[str] = []
        self.given_back: list[str] = []
        self.changes = 0
        self.folder = folder
        self.settings = settings or Settings()
        self.engine = ScriptedEngine()
        self.pair = Pair("scripted", folder / "target.gguf", folder / "draft.gguf", "files", 3)
        info = pair_info(str(self.pair.target), str(self.pair.draft), None)
        self.info = msgspec.structs.replace(info, sampling=recommended or info.sampling)
        self.load()
        self.speeds = Speeds(folder)
        self.session = ChatSession(
            self.engine,
            self,
            pair=self.pair,
            settings=lambda: self.settings,
            store=ChatStore(folder / "chats.sqlite3", self.said.append),
            roles_dir=roles or folder / "roles",
            speeds=self.speeds,
            saved=saved,
        )
        if is_loaded:
            self.session.loaded(self.pair, self.info)

    def load(self) -> None:
        """Load the pair, again after the engine died."""
        self.engine.start()
        loaded: list[protocol.Answer] = []
        load = protocol.Load(target=str(self.pair.target), draft=str(self.pair.draft))
        self.engine.request(load, loaded.append)
        self.pump_until(lambda: any(isinstance(e, protocol.Loaded) for e in loaded))

    # What the session says

    def changed(self) -> None:
        self.changes += 1

    def grew(self) -> None:
        """It is looked at when something is expected."""

    def give_back(self, question: QuestionParts, version_of: TurnId | None) -> None:
        self.given_back.append(text_of(question))

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    # Driving

    def pump_until(self, condition: Callable[[], object]) -> None:
        until(condition, "what was waited for", meanwhile=self.engine.pump)

    def finish(self) -> None:
        """Let the engine write to the end."""
        self.engine.budget = None
        self.pump_until(lambda: self.session.running is None)

    def rounds(self, count: int) -> None:
        """Let the running reply have so many rounds."""
        self.engine.budget = count
        self.pump_until(lambda: self.session.shown and len(self.session.shown.rounds) >= count)

    def begin(self, text: str) -> bool:
        """Ask, without an answer yet."""
        return self.session.ask(typed(text))

    def ask(self, text: str) -> None:
        assert self.begin(text)
        self.finish()

    def save(self, text: str = "") -> None:
        """With this text in the prompt, as `leave`."""
        self.session.recorder.save(typed(text))

    def leave(self, text: str = "") -> None:
        self.session.leave(typed(text))

    # Looking

    @property
    def texts(self) -> list[str]:
        return [turn.text for turn in self.session.turns.path]

    @property
    def entries(self) -> list[Entry]:
        return [*entries(self.session)]

    @property
    def shown(self) -> list[str]:
        """What the transcript shows, as kinds and texts."""
        return [
            f"{entry.kind}: {entry.recording.text if entry.recording else entry.text}"
            for entry in self.entries
        ]

    @property
    def last_request(self) -> protocol.Chat:
        return self.engine.requests(protocol.Chat)[-1]


def store_in(folder: Path) -> ChatStore:
    """The chats of the app in this folder."""
    return ChatStore(folder / "chats.sqlite3")


def saved_chats(folder: Path) -> list[SavedChat]:
    """The chats of the app in this folder, the one begun last first."""
    return [*store_in(folder).saved()]


def left_chat(folder: Path, *questions: str, reply: str = "so it is", unsent: str = "") -> str:
    """The name of a chat with these questions, left with `unsent` in the prompt."""
    chat = Headless(folder)
    chat.engine.reply = reply
    for question in questions:
        chat.ask(question)
    chat.leave(unsent)
    return chat.session.chat.name


def reopened(chat: Headless, unsent: str = "") -> Headless:
    """The chat, left with `unsent` in the prompt, as the next start of the app finds it."""
    chat.leave(unsent)
    chat.session.close()
    (saved,) = saved_chats(chat.folder)
    return Headless(chat.folder, saved)
