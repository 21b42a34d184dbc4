"""The reasoning of a reply: in its token colours while it is written, then folded to one line."""

from __future__ import annotations

from collections.abc import Iterator

from eaglechat.chat.recording import Recording
from eaglechat.tui.widgets.transcript.entry import Run
from eaglechat.tui.widgets.transcript.reply import Reply, ReplyView
from eaglechat.wire.records import Part


class Thought(Reply):
    """What a model thought before it answered. A click folds and unfolds it."""

    DEFAULT_CSS = """
    Thought {
        color: $text-muted;
    }
    Thought > .entry--marker {
        color: $text-muted;
    }
    """

    marker = "~"
    part = Part.REASONING

    def __init__(self, recording: Recording, view: ReplyView, note: str | None = None) -> None:
        super().__init__(recording, view, note)
        self._is_folded = note is not None

    @property
    def text(self) -> str:
        return self._recording.reasoning

    @property
    def is_folded(self) -> bool:
        """Whether it is one line, which says how long it took."""
        return self._is_folded

    def fold(self, folded: bool) -> None:
        """Show one line, or all of it; while it is written all of it is seen."""
        if self._note is not None and folded != self._is_folded:
            self._is_folded = folded
            self._drop_selection()
            self.rewrap()

    def follow(self, note: str | None) -> None:
        was_writing = self._note is None
        super().follow(note)
        if was_writing and note is not None and not self._is_read:
            self.fold(True)

    @property
    def _is_read(self) -> bool:
        """Whether the reader has scrolled up, away from what is being written."""
        return self.parent is not None and not self.parent.has_class("-at-end")

    def runs(self) -> Iterator[Run]:
        if self._is_folded and self._note is not None:
            yield Run(f"▸ {_in_one_line(self._note, self.body_width - 2)}", "note", copied=False)
        else:
            yield from super().runs()

    def _ask_for_reading(self) -> None:
        """It is always shown as tokens."""

    def clicked(self, at: tuple[int, int] | None) -> None:
        self.fold(not self._is_folded)


def _in_one_line(note: str, width: int) -> str:
    """As many of its parts as there is room for, and the first in any case."""
    while len(note) > width and ", " in note:
        note = note.rpartition(", ")[0]
    return note
