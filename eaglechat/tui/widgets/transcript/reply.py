"""Replies in the transcript, drawn either as tokens in the colours of their origin or as
Markdown."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.worker import Worker, WorkerState

from eaglechat.chat.recording import Recording
from eaglechat.tui.texts.wording import VISIBLE_WHITESPACE
from eaglechat.tui.themes import REJECTED
from eaglechat.tui.widgets.transcript.entry import TEXT, Body, Run, TranscriptEntry
from eaglechat.tui.widgets.transcript.markdown import (
    CODE,
    LINK,
    Code,
    MarkdownLook,
    MarkdownRenderer,
    RenderedMarkdown,
    same_passage,
)
from eaglechat.tui.widgets.transcript.token_styles import NGRAM_KIND
from eaglechat.wire.neutral import neutralise
from eaglechat.wire.records import NGRAM, DraftToken, Origin, Part, Round, Token

RENDERED_EVERY_S, RENDERING_PAUSE = 0.1, 3.0
"""The pause between two Markdown renderings of a growing reply: at least RENDERED_EVERY_S seconds,
and at least RENDERING_PAUSE times the duration of the last rendering."""
_ORIGINS = {*(origin.value for origin in Origin), NGRAM_KIND}


@dataclass(frozen=True)
class ReplyView:
    """How replies are shown."""

    show_rejected: bool = True
    token_colours: bool = True
    markdown: bool = False


@dataclass
class CodeChosen(Message):
    """The reader clicked on the header of a code block, to copy it."""

    code: Code


@dataclass
class LinkChosen(Message):
    """The reader wants to open an address."""

    address: str


class ReplyEntry(TranscriptEntry):
    """The answer of a recording, which the model may still be writing."""

    COMPONENT_CLASSES = {"reply--heading", "reply--code", "reply--faint"}
    DEFAULT_CSS = """
    ReplyEntry > .reply--heading {
        color: $primary;
        text-style: bold;
    }
    ReplyEntry > .reply--code {
        color: $accent;
    }
    ReplyEntry > .reply--faint {
        color: $foreground-muted;
    }
    """

    marker = "•"
    part = Part.ANSWER
    """The part of the recording that is drawn."""

    @dataclass
    class MarkdownReady(Message):
        """A thread has rendered the Markdown, in `took_s` seconds."""

        rendered: RenderedMarkdown
        took_s: float

    @dataclass
    class RoundChosen(Message):
        """The reader clicked on a token of the selected reply. `index` is that of its round."""

        recording: Recording
        index: int

    def __init__(self, recording: Recording, view: ReplyView, note: str | None = None) -> None:
        """`note` is shown below the reply; None while it is being written."""
        super().__init__()
        self._recording = recording
        self._view = view
        self._note = note
        self._rounds_drawn = 0
        self._has_settled = False
        self._renderer: MarkdownRenderer | None = None
        self._rendered: RenderedMarkdown | None = None
        self._is_rendering = self._is_rendered = False
        """Whether a thread is rendering; whether the current text was given to the renderer."""

    @property
    def text(self) -> str:
        """The text of the part exactly as it was generated, without rejected tokens."""
        return self._recording.text

    @property
    def view(self) -> ReplyView:
        return self._view

    @view.setter
    def view(self, view: ReplyView) -> None:
        old, self._view = self._view, view
        if view == old:
            return
        if view.markdown != old.markdown:
            self._drop_selection()
        self._styles.clear()
        if view.show_rejected != old.show_rejected:
            self.rewrap()
        self._ask_for_markdown()
        self.rows_changed(0, same_height=False)

    def follow(self, note: str | None) -> None:
        """Draw what was written since the last call. `note` is None until the reply is over; then
        it is drawn too."""
        if self._note is not None:
            return
        if self._recording.is_settled and not self._has_settled:
            self._has_settled, self._rounds_drawn = True, len(self._recording.rounds)
            self.rewrap()
        new = self._recording.rounds[self._rounds_drawn :]
        self._rounds_drawn += len(new)
        write = self._add if self.markdown_shown else self.append
        write(self._runs_of(new))
        if note is not None:
            self._note = note
            write(self._end_runs())
        if new or note is not None:
            self._is_rendered = False
            self._ask_for_markdown()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is written."""
        return self._note is not None

    @property
    def markdown_shown(self) -> bool:
        """Whether the reply is drawn as Markdown now."""
        return self._view.markdown and self._rendered is not None

    @property
    def body(self) -> Body:
        if self._view.markdown and self._rendered is not None:
            return self._rendered
        return super().body

    def drawn_span(self, span: tuple[int, int]) -> tuple[int, int]:
        if not self.markdown_shown:
            return span
        return same_passage(self.text, span, self.body.text)

    def clicked(self, at: tuple[int, int] | None) -> None:
        """The first click selects the reply; another one on a token shows its round."""
        index = self._round_at(*at) if at and self.has_class("-selected") else None
        if index is None:
            super().clicked(at)
        else:
            self.post_message(self.RoundChosen(self._recording, index))

    def _round_at(self, character: int, line: int) -> int | None:
        """The index of the round that wrote the token at a character and line of the copied text;
        None in the Markdown view, and where no token is."""
        if self.markdown_shown:
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
        yield from self._runs_of(self._recording.rounds)
        yield from self._end_runs()

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
        self._ask_for_markdown()
        return height

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._view.markdown:
            self.call_later(self._ask_for_markdown)

    def _drop_selection(self) -> None:
        # The two views number lines and characters differently.
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def _ask_for_markdown(self) -> None:
        """Start a thread that renders the Markdown, unless one is running, or the current text was
        already rendered for the current width and theme."""
        if not (self._view.markdown and self.body_width) or self._is_rendering:
            return
        look = self._look()
        if self._renderer is None or self._renderer.look != look:
            self._renderer, self._is_rendered = MarkdownRenderer(look), False
        if not self._is_rendered:
            self._is_rendering = self._is_rendered = True
            text = neutralise(self.text)
            work = partial(self._render_markdown, self._renderer, text, self._note)
            self.run_worker(work, group="markdown", thread=True, exit_on_error=False)

    def _look(self) -> MarkdownLook:
        return MarkdownLook(
            width=self.body_width,
            dark=self.app.current_theme.dark,
            base=self.style_of(TEXT),
            heading=self.get_component_rich_style("reply--heading"),
            code=self.get_component_rich_style("reply--code"),
            faint=self.get_component_rich_style("reply--faint"),
        )

    def _render_markdown(self, renderer: MarkdownRenderer, text: str, note: str | None) -> None:
        began = time.perf_counter()
        rendered = renderer.render(text) if note is None else renderer.whole(text, neutralise(note))
        self.post_message(self.MarkdownReady(rendered, time.perf_counter() - began))

    def on_reply_entry_markdown_ready(self, event: MarkdownReady) -> None:
        event.stop()
        before, self._rendered = self._rendered, event.rendered
        if self._view.markdown:
            # The rendering thread slows the drawing one down (the GIL), so it pauses in between.
            pause = max(RENDERED_EVERY_S, RENDERING_PAUSE * event.took_s)
            self.set_timer(pause, self._rendering_is_over)
            same = before is not None and len(before.rows) == len(event.rendered.rows)
            self.rows_changed(0, same_height=same)
        else:
            self._is_rendering = False

    def _rendering_is_over(self) -> None:
        self._is_rendering = False
        self._ask_for_markdown()

    def clicked_on(self, meta: Mapping[str, Any]) -> bool:
        if CODE in meta and self._rendered is not None:
            self.post_message(CodeChosen(self._rendered.codes[meta[CODE]]))
        elif LINK in meta:
            self.post_message(LinkChosen(meta[LINK]))
        else:
            return super().clicked_on(meta)
        return True

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        event.stop()
        if event.state is WorkerState.ERROR:
            # `_is_rendering` stays set, so that the failed rendering is not tried again.
            self.notify(
                f"The reply could not be read as Markdown ({event.worker.error}); "
                "it is shown as it was written.",
                severity="warning",
            )


class ThoughtEntry(ReplyEntry):
    """The reasoning of a recording. It folds to one line when it ends; a click unfolds it."""

    DEFAULT_CSS = """
    ThoughtEntry {
        color: $text-muted;
    }
    ThoughtEntry > .entry--marker {
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
        """Whether it shows only one line, which says how long the reasoning took."""
        return self._is_folded

    def fold(self, folded: bool) -> None:
        """Fold it to one line or unfold it. While it is being written it stays unfolded."""
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
        """Whether the reader has scrolled up, away from the newest text, to read."""
        return self.parent is not None and not self.parent.has_class("-at-end")

    def runs(self) -> Iterator[Run]:
        if self._is_folded and self._note is not None:
            yield Run(f"▸ {_in_one_line(self._note, self.body_width - 2)}", "note", copied=False)
        else:
            yield from super().runs()

    def _ask_for_markdown(self) -> None:
        """Does nothing: reasoning is always drawn as tokens."""

    def clicked(self, at: tuple[int, int] | None) -> None:
        self.fold(not self._is_folded)


def _in_one_line(note: str, width: int) -> str:
    """Drop the last comma-separated parts of a note until it fits into `width` characters. The
    first part always stays."""
    while len(note) > width and ", " in note:
        note = note.rpartition(", ")[0]
    return note


def _round_runs(round: Round, part: Part) -> Iterator[Run]:
    for token in round.tokens_and_rejected(part):
        if isinstance(token, DraftToken):
            text = (token.text or "").translate(VISIBLE_WHITESPACE)
            yield Run(text, REJECTED, copied=False)
        else:
            yield Run(token.text, _kind_of(token))


def _kind_of(token: Token) -> str:
    if token.origin is Origin.UNKNOWN:
        return TEXT
    return NGRAM_KIND if token.drafter == NGRAM else token.origin.value
