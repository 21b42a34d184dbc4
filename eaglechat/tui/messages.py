"""Messages the app posts to its screens."""

from __future__ import annotations

from textual.message import Message

from eaglechat.links.process import Died
from eaglechat.wire.protocol import AnyEvent

EngineEvent = AnyEvent | Died


class EngineEvents(Message):
    """What the engine said since the last frame, in order. Never empty."""

    def __init__(self, events: list[EngineEvent]) -> None:
        super().__init__()
        self.events = events


class MachineKnown(Message):
    """The engine said what its machine has."""
