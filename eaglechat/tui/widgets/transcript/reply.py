"""A reply in the transcript: the loop's records drawn as tokens, or its text read as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.worker import Worker, WorkerState

from eaglechat.chat.recording import Recording
from eaglechat.tui.themes import REJECTED
from eaglechat.tui.widgets.transcript.entry import TEXT, Body, Entry, Run
from eaglechat.tui.widgets.transcript.reading import ReadingLook, Rendered, render
from eaglechat.tui.widgets.transcript.wrapping import neutralise
from eaglechat.wire.records import DraftToken, Origin, Part, Round

_ORIGINS = {origin.value for origin in Origin}
_SEEN_WHITESPACE = str.maketrans({"\n": "↵", "\t": "⇥"})


@dataclass(frozen=True)
class ReplyView:
    """How replies are shown."""

    show_rejected: bool = True
    token_colours: bool = True
    reading: bool = False


class Reply(Entry):
    """What a recording wrote, and while it goes on, what it writes."""

    COMPONENT_CLASSES = {"reply--heading", "reply--code", "reply--faint"}
    DEFAULT_CSS = """
    Reply > .reply--heading {
        color: $primary;
        text-style: bold;
    }
    Reply > .reply--code {
        color: $accent;
    }
    Reply > .reply--faint {
        color: $foreground-muted;
    }
    """

    marker = "•"
    part = Part.ANSWER
    """The part of the recording that is drawn."""

    class ReadingReady(Message):
        """The reading view was rendered, in a thread."""

        def __init__(self, rendered: Rendered) -> None:
            super().__init__()
            self.rendered = rendered

    @dataclass
    class RoundChosen(Message):
        """A token of the selected reply was clicked: its round."""

        recording: Recording
        index: int

    def __init__(self, recording: Recording, view: ReplyView, note: str | None = None) -> None:
        """`note` is said below it; None while it is being written."""
        super().__init__()
        self._recording = recording
        self._view = view
        self._note = note
        self._rounds_drawn = 0
        self._reading: Rendered | None = None
        self._reading_asked: ReadingLook | None = None

    @property
    def text(self) -> str:
        """The part exactly as it was generated, without rejected tokens."""
        return self._recording.text

    @property
    def view(self) -> ReplyView:
        return self._view

    @view.setter
    def view(self, view: ReplyView) -> None:
        old, self._view = self._view, view
        if view == old:
            return
        if view.reading != old.reading:
            self._drop_selection()
        self._styles.clear()
        if view.show_rejected != old.show_rejected:
            self.rewrap()
        self._ask_for_reading()
        self.rows_changed(0, same_height=False)

    def follow(self, note: str | None) -> None:
        """Draw what was written since the last call; the note when it has ended."""
        if self._note is not None:
            return
        new = self._recording.rounds[self._rounds_drawn :]
        self._rounds_drawn += len(new)
        self.append(self._runs_of(new))
        if note is not None:
            self._note = note
            self.append(self._end_runs())
            self._ask_for_reading()

    @property
    def reading_shown(self) -> bool:
        """Whether the reply is drawn as Markdown now."""
        return self._view.reading and self._reading is not None

    @property
    def body(self) -> Body:
        if self._view.reading and self._reading is not None:
            return self._reading
        return super().body

    def clicked(self, at: tuple[int, int] | None) -> None:
        """A click selects the reply; another one, on a token, looks inside its round."""
        index = self._round_at(*at) if at and self.has_class("-selected") else None
        if index is None:
            super().clicked(at)
        else:
            self.post_message(self.RoundChosen(self._recording, index))

    def _round_at(self, character: int, line: int) -> int | None:
        """The index of the round that wrote what stands there, as it is drawn."""
        if self.reading_shown:
            return None
        lines = self.body.text.split("\n")
        left = sum(len(one) + 1 for one in lines[:line]) + character
        for round_ in self._recording.rounds:
            for token in round_.tokens:
                if token.part is self.part:
                    left -= len(neutralise(token.text))
                    if left < 0:
                        return round_.index
        return None

    def runs(self) -> Iterator[Run]:
        if self._note is None:
            yield from self._runs_of(self._recording.rounds[: self._rounds_drawn])
            return
        if rounds := self._recording.rounds:
            yield from self._runs_of(rounds)
            yield from self._end_runs()
        else:
            yield Run(self.text, TEXT)
            yield from self._note_runs()

    def _runs_of(self, rounds: Iterable[Round]) -> Iterator[Run]:
        runs = (run for round in rounds for run in _round_runs(round, self.part))
        return (run for run in runs if self._view.show_rejected or run.kind != REJECTED)

    def _end_runs(self) -> Iterator[Run]:
        end = self._recording.end
        if end is not None and (end.tail_part or Part.ANSWER) is self.part:
            yield Run(end.tail, TEXT)
        yield from self._note_runs()

    def _note_runs(self) -> Iterator[Run]:
        if self._note:
            if self.text:
                yield Run("\n", "note", copied=False)
            yield Run(self._note, "note", copied=False)

    def _find_style(self, kind: str) -> Style:
        if kind in _ORIGINS and not self._view.token_colours:
            kind = TEXT
        return super()._find_style(kind)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        height = super().get_content_height(container, viewport, width)
        self._ask_for_reading()
        return height

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._view.reading:
            self.call_later(self._ask_for_reading)

    def _drop_selection(self) -> None:
        # The two views number lines and characters differently.
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def _ask_for_reading(self) -> None:
        """Have the reading view rendered, unless it is, for the width and theme of now."""
        if not (self._view.reading and self._note is not None and self.body_width):
            return
        look = self._look()
        if look != self._reading_asked:
            self._reading_asked = look
            text, note = neutralise(self.text), neutralise(self._note)
            work = partial(self._render_reading, text, note, look)
            self.run_worker(work, group="reading", thread=True, exclusive=True, exit_on_error=False)

    def _look(self) -> ReadingLook:
        return ReadingLook(
            width=self.body_width,
            dark=self.app.current_theme.dark,
            base=self.style_of(TEXT),
            heading=self.get_component_rich_style("reply--heading"),
            code=self.get_component_rich_style("reply--code"),
            faint=self.get_component_rich_style("reply--faint"),
        )

    def _render_reading(self, text: str, note: str, look: ReadingLook) -> None:
        self.post_message(self.ReadingReady(render(text, note, look)))

    def on_reply_reading_ready(self, event: ReadingReady) -> None:
        event.stop()
        if event.rendered.look == self._reading_asked:
            self._reading = event.rendered
            self.rows_changed(0, same_height=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        event.stop()
        if event.state is WorkerState.ERROR:
            self.notify(
                f"The reply could not be read as Markdown ({event.worker.error}); "
                "it is shown as it was written.",
                severity="warning",
            )


def _round_runs(round: Round, part: Part) -> Iterator[Run]:
    """A round's tokens of one part, the rejected one in front of what the target said instead."""
    rejected = round.rejected
    for token in round.tokens:
        if token.part is not part:
            rejected = None if token.origin is Origin.CORRECTION else rejected
            continue
        if token.origin is Origin.CORRECTION and rejected is not None:
            yield from _rejected_run(rejected)
            rejected = None
        yield Run(token.text, TEXT if token.origin is Origin.UNKNOWN else token.origin.value)
    if rejected is not None and round.part is part:
        yield from _rejected_run(rejected)


def _rejected_run(token: DraftToken) -> Iterator[Run]:
    """Nothing, where the engine does not say what was rejected."""
    if token.text is not None:
        yield Run(token.text.translate(_SEEN_WHITESPACE), REJECTED, copied=False)
