"""What is typed while no chat is there to take it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Typeahead:
    """`is_sent` is whether the text is to be sent."""

    text: str = ""
    is_sent: bool = False

    def take(self) -> Typeahead:
        """What was typed; nothing is, from now on."""
        taken = Typeahead(self.text, self.is_sent)
        self.text, self.is_sent = "", False
        return taken
