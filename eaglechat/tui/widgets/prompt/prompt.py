"""The prompt: a text area with keys to send, a history of what was sent, and completions: what the
text before the cursor can become, a command, its value, or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option
from textual.widgets.text_area import Edit, EditResult, Location, Selection

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.writing.files import (
    MOST_BYTES,
    Listed,
    as_typed,
    fitting,
    list_directory,
    read_part,
    typed_path,
)
from eaglechat.chat.writing.question import Marks, pasted, text_of
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.keys import TAB, bindings_of, keys_of, run_own_key
from eaglechat.tui.commands.slash import Choices, Completion, CompletionList, completions_of
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.filter import Rows

_NAME_CELLS = 24
"""Cells of what a completion puts in."""
_MOST_FILES_OFFERED = 60


class Completions(Rows):
    """The list of completions. The prompt keeps the focus and sets what is offered."""

    DEFAULT_CSS = """
    Completions {
        max-height: 9;
    }
    """

    can_focus = False

    def __init__(self, take: Callable[[Completion, int], None]) -> None:
        """`take` gets a completion that was clicked, and the column from which on it replaces."""
        super().__init__(id="completions")
        self.display = False
        self.offered: CompletionList | None = None
        self._take = take

    def show(self, offered: CompletionList | None) -> None:
        """Show these completions; None hides the list."""
        if offered == self.offered:
            return
        self.offered = offered
        self.clear_options()
        if offered is not None:
            self.add_options(
                Option(_row(one), disabled=not one.text) for one in offered.completions
            )
            self.action_first()
        self.display = offered is not None

    @property
    def chosen(self) -> Completion | None:
        """The highlighted completion; None if there is none, or it has no text."""
        if self.offered is None or self.highlighted is None:
            return None
        completion = self.offered.completions[self.highlighted]
        return completion if completion.text else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.offered is not None:
            self._take(self.offered.completions[event.option_index], self.offered.start)


def _row(completion: Completion) -> Content:
    shown = f"  {completion.shown:<{_NAME_CELLS}}  "
    style = "bold" if completion.text else MUTED
    return Content.assemble((shown, style), (completion.help, MUTED))


class Prompt(TextArea):
    """A multi-line prompt that grows with its text, up to the height in its style sheet."""

    BINDINGS = bindings_of("prompt")

    is_waiting = False
    """Whether the screen has not answered the last `Sent` yet: what is typed behind it is for what
    that opens, and goes on to the screen."""

    @dataclass
    class Sent(Message):
        """The user wants to send. The text stays until the screen calls `take`."""

        text: str

    def __init__(
        self,
        *,
        in_background: Callable[..., object],
        may_be_command: Callable[[], bool],
        choices: Choices,
        n_ctx: Callable[[], int],
        placeholder: str = "",
    ) -> None:
        """`in_background` is that of the screen; `n_ctx` gives the length of the context in tokens,
        0 if it is not known."""
        super().__init__(
            id="prompt",
            placeholder=placeholder,
            tab_behavior="focus",
            soft_wrap=True,
            highlight_cursor_line=False,
        )
        self._sent: list[str] = []
        self._walked, self._position = [""], 0
        """The texts of the history, as they were edited on a walk through it, and the text being
        written; and which of them is shown."""
        self.marks = Marks()
        """The pastes and files for which a mark is shown."""
        self.completions = Completions(self._take_clicked)
        """The screen shows them above it."""
        self._in_background, self._may_be_command = in_background, may_be_command
        self._choices, self._n_ctx = choices, n_ctx
        self.being_read: set[str] = set()
        """Paths of attached files that are still being read."""
        self._listed: dict[str, tuple[Listed, ...]] = {}
        """The directories of the path that is being typed; empty until they are read."""
        self._declined: tuple[int, int] | None = None
        """The line and column at which the user closed the completions."""

    def type_in(self, text: str) -> None:
        """Insert a text that was typed or pasted elsewhere, and take the focus."""
        self.take_focus()
        part = pasted(text)
        text = text if part is None else self.marks.hold(part)
        self.replace(text, *self.selection, maintain_selection_offset=False)

    def take_focus(self) -> None:
        """Take the focus at once: `focus` would do so after the keys that are already queued."""
        self.screen.set_focus(self)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.type_in(event.text)

    # Marks for pastes and files

    def edit(self, edit: Edit) -> EditResult:
        """Do an edit, widened so that it does not cut a mark in two."""
        top, bottom = sorted((edit.from_location, edit.to_location))
        first, last = self._mark_at(top), self._mark_at(bottom)
        if top == bottom:
            top = bottom = (top[0], first[1]) if first else top
        else:
            top = (top[0], first[0]) if first else top
            bottom = (bottom[0], last[1]) if last else bottom
        return super().edit(replace(edit, from_location=top, to_location=bottom))

    def _refresh_size(self) -> None:
        # During an undo the cursor may still be below the text, and a scroll bar that disappears
        # looks there: setting the selection clamps it.
        self.selection = Selection(*self.selection)
        super()._refresh_size()

    def _mark_at(self, location: Location) -> tuple[int, int] | None:
        """The start and end column of the mark around a location, if any."""
        row, column = location
        if row >= self.document.line_count:
            # Deleting the last line deletes to the start of the next, which does not exist.
            return None
        spans = self.marks.spans(self.document.get_line(row))
        return next(((a, b) for a, b in spans if a < column < b), None)

    def action_open_part(self) -> None:
        """Replace the mark at the cursor, or the last one, by its text."""
        spans = [
            (row, *span)
            for row, line in enumerate(self.document.lines)
            for span in self.marks.spans(line)
        ]
        row, column = self.cursor_location
        here = [one for one in spans if one[0] == row and one[1] <= column <= one[2]]
        if not spans:
            self.notify("There is no paste or file in the prompt to expand.")
            return
        row, start, stop = (here or spans)[-1]
        text = text_of(self.marks.parts(self.document.get_line(row)[start:stop]))
        self.replace(text, (row, start), (row, stop), maintain_selection_offset=False)

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2 and self._mark_at(self.get_target_document_location(event)):
            self.action_open_part()

    def _read_in(self, path: str, name: str) -> None:
        """Read a file; its name in the text becomes a mark, which stands at the end if the name is
        gone."""

        def fail(error: Exception) -> None:
            self.being_read.discard(path)
            self.notify(str(error), severity="warning")

        def attached(part: TurnPart) -> None:
            self.being_read.discard(path)
            mark = self.marks.hold(part)
            for row, line in enumerate(self.document.lines):
                if (column := line.find(name)) >= 0:
                    self.replace(mark, (row, column), (row, column + len(name)))
                    return
            self.insert(mark, self.document.end)

        self.being_read.add(path)
        self._in_background(partial(read_part, path, self._n_ctx()), attached, fail)

    def take(self) -> None:
        """Remember the text, which was sent, and clear the prompt."""
        self.remember(self.text)
        self.clear()

    def remember(self, text: str) -> None:
        """Add a text to the history, behind those that were edited while walking through it."""
        edited = [one for one in self._walked if one not in (*self._sent, self.text)]
        for one in filter(None, (*edited, text)):
            if one not in self._sent[-1:]:
                self._sent.append(one)
        self._walked, self._position = [*self._sent, ""], len(self._sent)

    def replace_all(self, text: str) -> None:
        """Replace the text, with the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def put_above(self, text: str) -> None:
        """Put a text above what is typed, which goes on at the cursor."""
        if text and self.text:
            self.insert(f"{text}\n\n", (0, 0))
        elif text:
            self.replace_all(text)

    def action_send(self) -> None:
        self.is_waiting = True
        if isinstance(self.parent, Widget):
            # Not behind the keys that are queued here: those go up, too.
            self.parent.post_message(self.Sent(self.text))

    def action_newline(self) -> None:
        self.insert("\n")

    def action_cursor_up(self, select: bool = False) -> None:
        is_first = self.navigator.is_first_wrapped_line(self.cursor_location)
        if select or not is_first or not self._walk(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        is_last = self.navigator.is_last_wrapped_line(self.cursor_location)
        if select or not is_last or not self._walk(1):
            super().action_cursor_down(select)

    async def _on_key(self, event: events.Key) -> None:
        if self.is_waiting:
            event.prevent_default()
        elif self._is_completed_by(event.key):
            event.prevent_default().stop()
        else:
            await run_own_key(self, event)

    # Completions

    def on_text_area_changed(self) -> None:
        self.complete()

    def on_text_area_selection_changed(self) -> None:
        self.complete()

    def on_blur(self) -> None:
        self.completions.show(None)

    def complete(self) -> None:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        is_at_end = self.selection.is_empty and not line[column : column + 1].strip()
        offered = self._completed(line[:column], is_first=row == 0) if is_at_end else None
        if self._declined != (start := (row, offered.start) if offered else None):
            self._declined = None
        self.completions.show(None if start == self._declined else offered)

    def _completed(self, before: str, *, is_first: bool) -> CompletionList | None:
        """`before` is the text before the cursor on its line, which is the first one or not."""
        typed = typed_path(before)
        if typed is None:
            self._listed.clear()
            is_command = is_first and self._may_be_command()
            return completions_of(before, self._choices) if is_command else None
        start, directory, name = typed
        if directory not in self._listed:
            self._listed[directory] = ()
            self._in_background(
                partial(list_directory, directory), partial(self._take_listed, directory)
            )
        found = fitting(self._listed[directory], name)[:_MOST_FILES_OFFERED]
        files = tuple(_file(directory, one) for one in found)
        return CompletionList(start, files) if files else None

    def _take_listed(self, directory: str, listed: tuple[Listed, ...]) -> None:
        # By now another path may be typed.
        if directory in self._listed:
            self._listed[directory] = listed
            self.complete()

    def _is_completed_by(self, key: str) -> bool:
        """Handle a key of the completions; False if it is none."""
        self.complete()
        offered, chosen = self.completions.offered, self.completions.chosen
        if offered is None:
            return False
        if key == "up":
            self.completions.action_cursor_up()
        elif key == "down":
            self.completions.action_cursor_down()
        elif key == "escape":
            self._declined = self.cursor_location[0], offered.start
            self.completions.show(None)
        elif key == TAB.lower():
            if chosen is not None:
                self._put(chosen, offered.start)
        elif key in keys_of("prompt.send") and chosen is not None:
            self._choose(chosen, offered.start)
        else:
            return False
        return True

    def _take_clicked(self, completion: Completion, start: int) -> None:
        self.take_focus()
        self._choose(completion, start)

    def _choose(self, completion: Completion, start: int) -> None:
        """Insert a completion, and send if nothing has to follow it."""
        row, column = self.cursor_location
        typed = self.document.get_line(row)[start:column]
        if not completion.is_whole or typed != completion.text.rstrip():
            self._put(completion, start)
        if completion.is_whole:
            self.action_send()

    def _put(self, completion: Completion, start: int) -> None:
        """Replace what is completed, which begins at this column, by a completion."""
        row, column = self.cursor_location
        self.replace(completion.text, (row, start), (row, column), maintain_selection_offset=False)
        if completion.path:
            self._read_in(completion.path, completion.text)
        self.complete()

    def _walk(self, step: int) -> bool:
        """Show the next older (-1) or newer (1) text of the history; False if there is none."""
        position = self._position + step
        if not 0 <= position < len(self._walked):
            return False
        self._walked[self._position] = self.text
        self._position = position
        self.replace_all(self._walked[position])
        return True


def _file(directory: str, listed: Listed) -> Completion:
    path = directory + listed.name
    if listed.size is None:
        return Completion(f"{listed.name}/", "", as_typed(f"{path}/"))
    size = format_bytes(listed.size) + (", too large" if listed.size > MOST_BYTES else "")
    return Completion(listed.name, size, as_typed(path), path=path)
