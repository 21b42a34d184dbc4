"""Parameters that may change while a reply is being written."""

from __future__ import annotations

import msgspec

from eaglechat.wire.protocol import Set, Speculation


class Live:
    """What the loop reads before each round, and any thread may set.

    Each value is immutable and replaced whole, so a round never sees half a change.
    """

    def __init__(self, speculation: Speculation, temperature: float) -> None:
        self.speculation = speculation
        self.temperature = temperature
        self.answer_now = False
        """Whether the model should stop thinking; the loop takes it back when it has seen it."""

    def apply(self, change: Set) -> None:
        """Take over the fields that are given."""
        fields = ("enabled", "n_draft_max", "n_min", "p_min", "shape", "ngram")
        given = {name: getattr(change, name) for name in fields}
        given = {name: value for name, value in given.items() if value is not None}
        self.speculation = msgspec.structs.replace(self.speculation, **given)
        if change.temperature is not None:
            self.temperature = change.temperature
        if change.answer_now:
            self.answer_now = True
