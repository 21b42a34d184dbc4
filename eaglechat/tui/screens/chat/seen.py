"""What the model would read: the prompt of the next reply, with its control tokens highlighted."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from eaglechat.chat.session import STAND_IN
from eaglechat.tui.commands.keys import bindings_of
from eaglechat.tui.screens.dialogs import TextDialog
from eaglechat.tui.services import desktop
from eaglechat.wire.protocol import Rendered
from eaglechat.words.neutral import neutralise
from eaglechat.words.wording import plural

_CONTROL = "bold $text-accent on $accent-muted"


class SeenScreen(TextDialog[None]):
    """Shows a prompt below a sentence about it."""

    HEADING = "What the model sees"
    KEYS = "{chat.copy} copies, {dialog.back} back"
    BINDINGS = bindings_of("seen")

    def __init__(self, prompt: Rendered, summary: str) -> None:
        super().__init__()
        self._prompt, self._summary = prompt, summary

    def content(self) -> ComposeResult:
        yield Static(self._summary, classes="muted", markup=False)
        yield from super().content()

    def on_mount(self) -> None:
        runs = ((neutralise(one.text), one.is_control) for one in self._prompt.runs)
        self.show(Content.assemble(*((text, _CONTROL if is_one else "") for text, is_one in runs)))
        self.scroll.focus()
        # The question that is being asked is at the end.
        self.call_after_refresh(self.scroll.scroll_end, animate=False)

    def action_copy(self) -> None:
        seen = "".join(run.text for run in self._prompt.runs)
        desktop.copy(self.app, seen, "what the model sees")


def prompt_seen(prompt: Rendered, n_ctx: int, typed: str) -> str:
    """The sentence above the prompt. `typed` is empty if the user has not typed a question yet."""
    said = [f"{prompt.tokens:,} of {plural(n_ctx, 'token')}"]
    if prompt.first_turn:
        n = prompt.first_turn
        left = "the first turn is" if n == 1 else f"the first {n:,} turns are"
        said.append(f"{left} not in the context")
    if prompt.checkpoints:
        mib = f"{prompt.checkpoint_bytes / 2**20:.1f}"
        said.append(f"{plural(prompt.checkpoints, 'checkpoint')} to go back to, {mib} MiB")
    if not typed:
        said.append(f"“{STAND_IN}” stands for the question that you have not typed yet")
    return "; ".join(said) + "."
