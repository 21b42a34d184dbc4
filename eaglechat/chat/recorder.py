"""Keeps a chat on disk while it goes on; a disk that refuses is reported once and then let be."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.chat.conversation import Run
from eaglechat.chat.history import ChatLog, MessageLine
from eaglechat.wire.records import ReplyEnd


class ChatRecorder:
    """Writes what happens in a Conversation to a ChatLog."""

    def __init__(
        self, log: ChatLog, on_failure: Callable[[str], None], first_turn: int = 0
    ) -> None:
        """`on_failure` gets one sentence, once, when the chat cannot be written; `first_turn` is
        what the log says of the context already."""
        self._log = log
        self._on_failure = on_failure
        self._written = 0
        self._first_turn = first_turn
        self._broken = False

    def asked(self, text: str) -> None:
        self._try(lambda: self._log.message(MessageLine(role="user", content=text)))

    def writing(self, run: Run) -> None:
        """Add what the running reply wrote since the last call."""
        text = run.text
        if not run.is_comparison and len(text) > self._written:
            self._try(lambda: self._log.partial(text[self._written :]))
            self._written = len(text)

    def window(self, first_turn: int) -> None:
        """The context begins with this turn."""
        if first_turn != self._first_turn:
            self._first_turn = first_turn
            self._try(lambda: self._log.window(first_turn))

    def ended(self, run: Run) -> None:
        """Write the reply, or take the question back."""
        if run.is_comparison:
            return
        self._written = 0
        if run.taken_back is not None:
            self._try(self._log.retracted)
        else:
            self._try(lambda: self._log.message(_line(run, run.end)))

    def left(self, unsent: str) -> None:
        """The chat is left, with this text in the prompt."""
        if unsent.strip():
            self._try(lambda: self._log.unsent(unsent))
        self._log.close()

    def _try(self, write: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            write()
        except OSError as error:
            self._broken = True
            self._on_failure(f"This chat cannot be saved to {self._log.file}: {error}")


def _line(run: Run, end: ReplyEnd | None) -> MessageLine:
    if end is None:
        return MessageLine(role="assistant", content=run.text, finish="lost")
    return MessageLine(
        role="assistant",
        content=run.text,
        finish=end.finish_reason.value,
        tokens=end.tokens,
        tokens_per_second=round(end.tokens_per_second, 2),
    )
