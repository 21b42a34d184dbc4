"""Where a screen asks to go: messages that bubble to the app, which alone knows the screens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from eaglechat.chat.controls import Controls
from eaglechat.chat.history.recorder import ChatRecorder
from eaglechat.chat.history.saved_chat import SavedChat
from eaglechat.chat.recording import Recording
from eaglechat.hub.local.pair import Pair
from eaglechat.tui.export.formats import Format
from eaglechat.wire.protocol import Auto, PairInfo, Rendered

if TYPE_CHECKING:
    from eaglechat.hub.catalogue.entries import Entry


class OpenMenu(Message):
    """Leave the chat for the menu."""


class OpenChat(Message):
    """From the menu: load a pair and chat with it."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair


class LoadInstead(Message):
    """From anywhere: leave what is open, load a pair and chat with it."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair


class LoadAgain(Message):
    """After the engine died: load the pair of a chat again; `then` gets what was loaded."""

    def __init__(self, pair: Pair, then: Callable[[PairInfo], None]) -> None:
        super().__init__()
        self.pair, self.then = pair, then


class Resume(Message):
    """Leave what is open and resume a saved chat, on the pair it ran on."""

    def __init__(self, chat: SavedChat) -> None:
        super().__init__()
        self.chat = chat


class OpenPastChats(Message):
    """Choose a saved chat; `then` gets it. `open_chat` is the one that is open, if one is, and
    `words` are to be found."""

    def __init__(
        self,
        then: Callable[[SavedChat], None],
        open_chat: ChatRecorder | None = None,
        words: str = "",
    ) -> None:
        super().__init__()
        self.then, self.open_chat, self.words = then, open_chat, words


class OpenFiles(Message):
    """Choose a pair among the GGUF files of this machine."""


class OpenRoles(Message):
    """Choose among the roles of a folder; `then` gets a name."""

    def __init__(self, directory: Path, then: Callable[[str], None]) -> None:
        super().__init__()
        self.directory, self.then = directory, then


class OpenBench(Message):
    """Measure the loaded pair as these controls have it draft; `keep` puts the length that is kept
    in force in its chat."""

    def __init__(
        self,
        pair: Pair,
        info: PairInfo,
        controls: Controls,
        keep: Callable[[int | Auto], None],
    ) -> None:
        super().__init__()
        self.pair, self.info, self.controls, self.keep = pair, info, controls, keep


class ShowPrompt(Message):
    """Show what the model would read; `summary` is said above it."""

    def __init__(self, prompt: Rendered, summary: str) -> None:
        super().__init__()
        self.prompt, self.summary = prompt, summary


class LookInside(Message):
    """Show a round of a recording; `unreported` says so where its engine does not tell what the
    target held likely."""

    def __init__(self, recording: Recording, index: int, unreported: str | None) -> None:
        super().__init__()
        self.recording, self.index, self.unreported = recording, index, unreported


class OpenPlan(Message):
    """Show what installing a pair takes; the user starts it there."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry


class OpenSearch(Message):
    """Search the Hub, beginning with `words`."""

    def __init__(self, words: str = "") -> None:
        super().__init__()
        self.words = words


class OpenLibrary(Message):
    """Show the models on this machine."""


class OpenDownloads(Message):
    """Show what is being downloaded and converted."""


class Say(Message):
    """Say something in a dialog that the user closes."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.title, self.text = title, text


class OpenExport(Message):
    """Export the chat that `read` gives, in a thread; with a format at once."""

    def __init__(self, read: Callable[[], SavedChat], format: Format | None = None) -> None:
        super().__init__()
        self.read, self.format = read, format


class Ask(Message):
    """Ask for a line of text; `written` stands there already, and `then` gets what is written."""

    def __init__(self, title: str, text: str, written: str, then: Callable[[str], None]) -> None:
        super().__init__()
        self.title, self.text, self.written, self.then = title, text, written, then


class Leave(Message):
    """Do something that leaves the open chat; the user is asked first where it would be lost."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self.then = then


class Confirm(Message):
    """Ask before something is done that cannot be undone, or may not work; `agree` is the label
    of the button that calls `then`."""

    def __init__(self, title: str, text: str, agree: str, then: Callable[[], None]) -> None:
        super().__init__()
        self.title, self.text, self.agree, self.then = title, text, agree, then
