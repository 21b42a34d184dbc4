"""Messages that bubble from a screen to the app: what closes or replaces the open chat.

Everything else a screen opens itself, by `EagleScreen.open`.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.message import Message

from eaglechat.chat.saved_chat import SavedChat
from eaglechat.hub.local.pair import Pair
from eaglechat.wire.protocol import PairInfo


class OpenMenu(Message):
    """Leave the chat for the menu."""


class LoadInstead(Message):
    """Close everything above the menu, load a pair and chat with it."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair


class LoadAgain(Message):
    """After the engine died: load the pair of a chat again; `then` gets what was loaded."""

    def __init__(self, pair: Pair, then: Callable[[PairInfo], None]) -> None:
        super().__init__()
        self.pair, self.then = pair, then


class Resume(Message):
    """Close everything above the menu and resume a saved chat, with the pair it ran on."""

    def __init__(self, chat: SavedChat) -> None:
        super().__init__()
        self.chat = chat


class LeaveChat(Message):
    """Call `then`, which leaves the open chat; the user is asked first if it is not saved."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self.then = then
