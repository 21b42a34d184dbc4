"""Replies in the transcript, in one of three views: text in two inks, formatted while it is written
(live); Markdown (read); tokens in the styles of their origins, with the rejected ones (trace)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.style import Style
from textual.geometry import Offset, Size
from textual.message import Message
from textual.worker import Worker, WorkerState

from eaglechat.chat.recording import Recording
from eaglechat.settings.model import View
from eaglechat.tui.themes import REJECTED
from eaglechat.tui.widgets.transcript.entry import Body, TranscriptEntry
from eaglechat.tui.widgets.transcript.formatting import COPY, FAINT, FormattedText
from eaglechat.tui.widgets.transcript.markdown import (
    CODE,
    LINK,
    Code,
    MarkdownLook,
    MarkdownRenderer,
    RenderedMarkdown,
    code_ending_at,
    link_at,
    same_passage,
)
from eaglechat.tui.widgets.transcript.marks import CODE as CODE_FORMAT
from eaglechat.tui.widgets.transcript.marks import EMPHASIS, STRONG
from eaglechat.tui.widgets.transcript.token_styles import GUESSED, NGRAM_KIND
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Run
from eaglechat.wire.neutral import neutralise
from eaglechat.wire.records import NGRAM, DraftToken, Origin, Part, Round, Token
from eaglechat.words.wording import VISIBLE_WHITESPACE

RENDERED_EVERY_S, RENDERING_PAUSE = 0.1, 3.0
"""The pause between two Markdown renderings of a growing reply: at least RENDERED_EVERY_S seconds,
and at least RENDERING_PAUSE times the duration of the last rendering."""
_GUESSES = (Origin.ACCEPTED.value, NGRAM_KIND)
_FORMATS = {STRONG: Style(bold=True), EMPHASIS: Style(italic=True)}
_WORD = re.compile(r"\S+")


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

    COMPONENT_CLASSES = {"reply--heading", "reply--code", "reply--faint", "reply--ground"}
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
    ReplyEntry > .reply--ground {
        background: $foreground 14%;
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

    def __init__(self, recording: Recording, view: View, note: str | None = None) -> None:
        """`note` is shown below the reply; None while it is being written."""
        super().__init__()
        self._recording = recording
        self._view = view
        self._note = note
        self._rounds_drawn = 0
        self._formatted: FormattedText | None = None
        """The rows of the live view, and of the others where there is no Markdown to read yet."""
        self._rounds_formatted = 0
        """How many rounds they hold."""
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
    def view(self) -> View:
        return self._view

    @view.setter
    def view(self, view: View) -> None:
        if view != self._view:
            self._drop_selection()
            self._view = view
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
        if not new and note is None:
            return
        if note is not None:
            self._note = note
        if self.markdown_shown:
            pass
        elif self._formatted is not None:
            last = len(self._formatted.wrapping.rows)
            first = self._format(self._formatted)
            self.rows_changed(first, last == len(self._formatted.wrapping.rows))
        else:
            self.append(self._runs_of(new))
            if note is not None:
                self.append(self._end_runs())
        self._is_rendered = False
        self._ask_for_markdown()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is written."""
        return self._note is not None

    @property
    def markdown_shown(self) -> bool:
        """Whether the reply is drawn as Markdown now."""
        return self._view == "read" and self._rendered is not None

    @property
    def body(self) -> Body:
        if self._view == "read" and self._rendered is not None:
            return self._rendered
        return super().body

    def drawn_span(self, span: tuple[int, int]) -> tuple[int, int]:
        if not self.markdown_shown:
            return span
        return same_passage(self.text, span, self.body.text)

    def clicked(self, at: Offset | None) -> None:
        """The first click selects the reply; another one on a token shows its round."""
        index = self._round_at(*at) if at and self.has_class("-selected") else None
        if index is None:
            super().clicked(at)
        else:
            self.post_message(self.RoundChosen(self._recording, index))

    def _round_at(self, character: int, line: int) -> int | None:
        """The index of the round that wrote the token at a character and line of the copied text;
        None where no token is."""
        body = self.body.text
        lines = body.split("\n")
        left = sum(len(one) + 1 for one in lines[:line]) + character
        if self.markdown_shown:
            word = next(
                (w.span() for w in _WORD.finditer(body) if w.start() <= left < w.end()), None
            )
            if word is None:
                return None
            left = same_passage(body, word, neutralise(self.text))[0]
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

    def _wrap(self, width: int) -> None:
        if not self._is_formatted:
            self._formatted = None
            super()._wrap(width)
            return
        self._formatted, self._rounds_formatted = FormattedText(width), 0
        self._wrapping, self._wrapped = self._formatted.wrapping, True
        self._format(self._formatted)

    @property
    def _is_formatted(self) -> bool:
        return self._view != "trace"

    def _format(self, formatted: FormattedText) -> int:
        """Add what is new to the formatted rows. Returns the first one that changed."""
        begun = self._rounds_formatted
        if self._note is not None:
            rounds = self._recording.rounds[begun:]
            self._rounds_formatted += len(rounds)
            return formatted.end([*self._inked(rounds), *self._tail_runs()], self._note_runs())
        rounds = self._recording.rounds[begun : self._rounds_drawn]
        self._rounds_formatted = self._rounds_drawn
        runs = self._runs_of(rounds[-1:]) if self._view == "live" else ()
        rejected = [run for run in runs if run.kind == REJECTED]
        return formatted.update(self._inked(rounds), rejected)

    def _inked(self, rounds: Sequence[Round]) -> Iterator[Run]:
        """The text of rounds in the two inks of the live view, or without any to be read."""
        for run in self._runs_of(rounds):
            if run.kind != REJECTED:
                is_guess = self._view == "live" and run.kind in _GUESSES
                yield Run(run.text, GUESSED if is_guess else TEXT)

    def _runs_of(self, rounds: Iterable[Round]) -> Iterator[Run]:
        return (run for round in rounds for run in _round_runs(round, self.part))

    def _end_runs(self) -> Iterator[Run]:
        yield from self._tail_runs()
        yield from self._note_runs()

    def _tail_runs(self) -> Iterator[Run]:
        end = self._recording.end
        if end is not None and (end.tail_part or Part.ANSWER) is self.part:
            yield Run(end.tail, TEXT)

    def _note_runs(self) -> Iterator[Run]:
        if self._note:
            if self.text:
                yield Run("\n", "note", copied=False)
            yield Run(self._note, "note", copied=False)

    def _find_style(self, kind: str) -> Style:
        if kind == FAINT:
            return self.get_component_rich_style("reply--faint")
        if kind == COPY:
            return self.style_of(FAINT) + Style(underline=True, meta={CODE: None})
        ink, *formats = kind.split()
        return sum((self._format_style(one) for one in formats), super()._find_style(ink))

    def _format_style(self, format: str) -> Style:
        if format == CODE_FORMAT:
            return Style(bgcolor=self.get_component_rich_style("reply--ground").bgcolor)
        return _FORMATS[format]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        height = super().get_content_height(container, viewport, width)
        self._ask_for_markdown()
        return height

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._view == "read":
            self.call_later(self._ask_for_markdown)

    def _drop_selection(self) -> None:
        # The two views number lines and characters differently.
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def _ask_for_markdown(self) -> None:
        """Start a thread that renders the Markdown, unless one is running, or the current text was
        already rendered for the current width and theme."""
        if self._view != "read" or not self.body_width or self._is_rendering:
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
        if self._view == "read":
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

    def clicked_on(self, meta: Mapping[str, Any], at: Offset | None) -> bool:
        code, address = self._code_at(meta, at), self._link_at(meta, at)
        if code is not None:
            self.post_message(CodeChosen(code))
        elif address is not None:
            self.post_message(LinkChosen(address))
        else:
            return super().clicked_on(meta, at)
        return True

    def _code_at(self, meta: Mapping[str, Any], at: Offset | None) -> Code | None:
        if CODE not in meta:
            return None
        if self.markdown_shown and self._rendered is not None:
            number: int = meta[CODE]
            return self._rendered.codes[number]
        return code_ending_at(self.body.text, at.y) if at else None

    def _link_at(self, meta: Mapping[str, Any], at: Offset | None) -> str | None:
        if self.markdown_shown or at is None:
            return meta.get(LINK)
        return link_at(self.body.text, at.y, at.x)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        event.stop()
        if event.state is WorkerState.ERROR:
            # `_is_rendering` stays set, so that the failed rendering is not tried again.
            self.notify(
                f"The reply could not be read as Markdown ({event.worker.error}); "
                "it is formatted as in the live view.",
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

    def __init__(self, recording: Recording, view: View, note: str | None = None) -> None:
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
    def _is_formatted(self) -> bool:
        return super()._is_formatted and not (self._is_folded and self._note is not None)

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
        """Does nothing: reasoning is never read as Markdown, only formatted."""

    def clicked(self, at: Offset | None) -> None:
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
