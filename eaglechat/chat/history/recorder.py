"""Writes an open chat to disk while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from eaglechat.chat.conversation.turns import Question, Reply, TurnId, Turns
from eaglechat.chat.history import lines
from eaglechat.chat.history.listing import summary_line, title_of
from eaglechat.chat.history.log import ChatLog
from eaglechat.chat.history.packing import pack
from eaglechat.chat.history.purging import unsent_line
from eaglechat.chat.history.saved_chat import SavedChat, chat_in
from eaglechat.chat.recording import Terms
from eaglechat.chat.writing.question import QuestionParts, shown, text_of
from eaglechat.wire.records import Part, text_in

_SHORT = 2000
"""Characters up to which the prompt is written each second while it is typed."""


class ChatRecorder:
    """Turns what happens in a chat into lines of its log."""

    def __init__(self, log: ChatLog, turns: Turns, saved: SavedChat | None) -> None:
        """`saved` is what the log already contains."""
        self._log, self._turns = log, turns
        self._first_question = saved.first_question if saved else None
        self._unsent = self._typed = saved.unsent if saved else ()
        self.role = self._kept_role = saved.role if saved else ""
        """Role of the next question; written with it, or when the chat is left."""
        self._title, self._is_pinned = (saved.title, saved.pinned) if saved else ("", False)
        self._terms: Terms | None = None
        self._rounds = 0
        """Rounds of the running reply that are written."""

    @property
    def file(self) -> Path:
        """The chat's file, which may not exist yet."""
        return self._log.file

    @property
    def is_behind(self) -> bool:
        """Whether some of the chat could not be written: leaving it now loses that."""
        return self._log.is_behind

    def reader(self) -> Callable[[], SavedChat]:
        """A function that reads the chat as it is now, written or not, in any thread. It raises
        ChatFormatError."""
        return partial(chat_in, self.file, self._log.content())

    def _keep_role(self) -> None:
        if self.role != self._kept_role:
            self._kept_role = self.role
            self._log.add(lines.RoleLine(role=self.role))

    def rename(self, title: str) -> None:
        """Give the chat a title; an empty one stands for its first question."""
        self._title = title_of(title)
        self._log.add(lines.TitleLine(title=self._title))
        self._summarise()

    def pin(self, pinned: bool) -> None:
        """Put the chat at the top of the list, or back among the others."""
        self._is_pinned = pinned
        self._log.add(lines.PinnedLine(pinned=pinned))
        self._summarise()

    def asked(self, question: Question) -> None:
        self._keep_role()
        self._unsent = ()
        self._log.add(
            lines.QuestionLine(id=question.id, parent=question.parent, parts=question.parts)
        )

    def began(self, turn: Reply) -> None:
        """A reply begins."""
        self._rounds = 0
        terms = turn.recording.terms
        if terms != self._terms:
            self._terms = terms
            self._log.add(lines.TermsLine(terms=terms))
        self._log.add(lines.ReplyLine(id=turn.id, parent=turn.parent))

    def goes_on(self, reply: Reply) -> None:
        """A stopped reply continues."""
        self._rounds = len(reply.recording.rounds)
        self._log.add(lines.GoesOnLine(of=reply.id))

    def writing(self, turn: Reply) -> None:
        """Write the rounds since the last call."""
        rounds = turn.recording.rounds[self._rounds :]
        if rounds:
            self._rounds += len(rounds)
            self._log.add(
                lines.RoundsLine(
                    of=turn.id,
                    text=text_in(rounds, Part.ANSWER),
                    reasoning=text_in(rounds, Part.REASONING),
                    data=pack(rounds),
                )
            )

    def settled(self, turn: Reply) -> None:
        """The rounds were replaced by final ones. Their text is written already; `ended` writes
        them."""
        self._rounds = len(turn.recording.rounds)

    def ended(self, turn: Reply) -> None:
        """A reply ended, or was cut off."""
        self.writing(turn)
        recording = turn.recording
        self._log.add(
            lines.EndLine(
                of=turn.id,
                end=recording.end,
                stats=recording.stats if recording.end else None,
                changed=tuple(sorted(recording.changed)),
                speculation_stopped=recording.speculation_stopped,
                settled=pack(recording.rounds)
                if recording.is_settled and recording.rounds
                else None,
            )
        )
        self._summarise()

    def chose(self, turn: TurnId) -> None:
        """This turn was chosen."""
        self._log.add(lines.ChosenLine(turn=turn))
        self._summarise()

    def deleted(self, turn: TurnId) -> None:
        """A turn was deleted with all that follows it."""
        self._log.add(lines.DeletedLine(turn=turn))
        self._summarise()

    def restored(self, turn: TurnId) -> None:
        """What was deleted with this turn was restored."""
        self._log.add(lines.RestoredLine(turn=turn))
        self._summarise()

    def window(self, first_question: TurnId | None) -> None:
        """The context begins with this question; None: with the first one."""
        if first_question != self._first_question:
            self._first_question = first_question
            self._log.add(lines.WindowLine(question=first_question))

    def typed(self, parts: QuestionParts) -> None:
        """This is in the prompt; to be called about once a second. A long text is written once it
        has not changed since the last call."""
        if sum(len(part.text) for part in parts) <= _SHORT or parts == self._typed:
            self.keep_unsent(parts)
        self._typed = parts
        self._log.try_again()

    def keep_unsent(self, unsent: QuestionParts) -> None:
        """This is in the prompt, or was given back to it."""
        if unsent != self._unsent:
            self._unsent = unsent
            self._log.add(unsent_line(unsent))
            if not self._turns:
                self._summarise()

    def left(self, unsent: QuestionParts) -> None:
        """The chat was left with this in the prompt."""
        if self._turns:
            self._keep_role()
        self.keep_unsent(unsent)
        if not self._turns and not text_of(unsent).strip() and not self._title:
            self._log.discard()
        else:
            self._log.purge()

    def _summarise(self) -> None:
        self._log.add(summary_line(self._turns, shown(self._unsent), self._title, self._is_pinned))
