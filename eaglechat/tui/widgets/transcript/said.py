"""What a transcript has besides replies: questions, notices, and where the context begins."""

from __future__ import annotations

from collections.abc import Iterator

from eaglechat.tui.widgets.transcript.entry import TEXT, Entry, Run


class UserEntry(Entry):
    """What the user said, as it was typed."""

    DEFAULT_CSS = """
    UserEntry {
        background: $surface;
        text-style: none;
    }
    UserEntry > .entry--marker {
        color: $accent;
    }
    """

    marker = ">"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def runs(self) -> Iterator[Run]:
        yield Run(self._text, TEXT)


class Notice(UserEntry):
    """What the app has to say about the conversation."""

    DEFAULT_CSS = """
    Notice {
        background: transparent;
        color: $text-muted;
    }
    Notice.-warning, Notice.-warning > .entry--marker {
        color: $text-warning;
    }
    Notice.-error, Notice.-error > .entry--marker {
        color: $text-error;
    }
    """

    MARKERS = {"information": "i", "warning": "!", "error": "x"}

    def __init__(self, text: str, severity: str) -> None:
        super().__init__(text)
        self.marker = self.MARKERS[severity]
        self.add_class(f"-{severity}")


class WindowMark(Entry):
    """Where the part of the conversation begins that is in the context."""

    DEFAULT_CSS = """
    WindowMark > .entry--marker {
        color: $text-muted;
    }
    """

    marker = "↑"

    def runs(self) -> Iterator[Run]:
        yield Run("Older messages are no longer in the context.", "note", copied=False)
