"""Messages the app posts to its screens."""

from __future__ import annotations

from textual.message import Message

from eaglechat.links.process import Died
from eaglechat.settings import Settings
from eaglechat.wire.protocol import AnyEvent

EngineEvent = AnyEvent | Died


class EngineEvents(Message):
    """What the engine said since the last frame, in order. Never empty."""

    def __init__(self, events: list[EngineEvent]) -> None:
        super().__init__()
        self.events = events


class InstallsChanged(Message):
    """A pair was installed, or a model deleted."""


class MachineKnown(Message):
    """The engine said what its machine has."""


class SettingsChanged(Message):
    """The settings were changed on the settings screen."""

    def __init__(self, before: Settings, after: Settings) -> None:
        super().__init__()
        self.before = before
        self.after = after
