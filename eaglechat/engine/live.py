"""What may change while a reply is written."""

from __future__ import annotations

import msgspec

from eaglechat.wire.protocol import Set, Speculation


class Live:
    """The loop reads this before each round; any thread may set it.

    Each value is immutable and replaced as a whole, so a round never sees half a change.
    """

    def __init__(self, speculation: Speculation, temperature: float) -> None:
        self.speculation = speculation
        self.temperature = temperature
        self.has_begun = False
        """Whether the reply is being written, and not waiting."""
        self.answer_now = False
        """Whether the model should stop thinking. The loop resets this once it has acted on it."""

    def apply(self, change: Set) -> None:
        """Set the fields that a request gives. Who drafts is settled for a whole reply."""
        given = {
            name: value
            for name in Speculation.__struct_fields__
            if (value := getattr(change, name, None)) is not None
        }
        self.speculation = msgspec.structs.replace(self.speculation, **given)
        if change.temperature is not None:
            self.temperature = change.temperature
        # Whoever asks means the reasoning that is on the screen.
        if change.answer_now and self.has_begun:
            self.answer_now = True
