"""A chat with an engine, without a screen: ask, edit, compare, stop, step, delete, save."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from eaglechat.chat import refusals
from eaglechat.chat.capability_text import foreign, no_comparison, no_prompt
from eaglechat.chat.comparing import cannot_compare, plain_terms
from eaglechat.chat.controls import seeded_anew, terms_of
from eaglechat.chat.conversation.going_on import (
    begun_with,
    cannot_go_on,
    changes,
    end_so_far,
    terms_to_go_on,
    together,
)
from eaglechat.chat.conversation.open_chat import OpenChat
from eaglechat.chat.conversation.running import Running
from eaglechat.chat.conversation.turns import Comparison, Question, Reply, TurnId
from eaglechat.chat.recording import Recording, Terms
from eaglechat.chat.writing.parts import Draft, composed, draft_of, shown
from eaglechat.links.base import ENGINE_DIED
from eaglechat.wire import protocol
from eaglechat.wire.records import FinishReason, Round

STAND_IN = "hi"
"""Stands for the question in `show_prompt` while nothing is typed."""


class ChatSession(OpenChat):
    """What can be done in a chat, and what the engine answers."""

    # Leaving

    def leave(self, written: str | Draft) -> None:
        """Stop, and put on disk what is not there yet, with what stands in the prompt."""
        if self.running is not None:
            self._engine.send(protocol.Cancel(id=self.running.request_id))
            given_back = self._end()
            written = written or given_back
        self._recorder.left(draft_of(written))

    def close(self) -> None:
        """After leaving: hear of the engine no more."""
        self._unwatch()

    def save(self, written: str | Draft) -> None:
        """Every second: put on disk what is new, and what stands in the prompt."""
        if self.running is not None:
            self._recorder.writing(self.running.turn)
        self._recorder.typed(draft_of(written))

    # Asking

    def ask(self, written: str | Draft) -> bool:
        """Ask at the end of the chat; False where that cannot be done now, and it was said why."""
        if self._refuses():
            return False
        question = self.turns.ask(composed(draft_of(written)))
        self._recorder.asked(question)
        self._answer(question)
        return True

    def answer_again(self, id: TurnId) -> bool:
        """Answer a question, or the one behind a reply, once more, with a seed of its own."""
        if self._refuses() or self._is_gone(id):
            return False
        turn = self.turns.find(id)
        question = self.turns.question(turn.parent if isinstance(turn, Reply) else id)
        self._answer(question, is_again=True)
        return True

    def go_on(self, id: TurnId) -> bool:
        """Have a reply that was stopped go on, from its very last token."""
        if self._refuses() or self._is_gone(id):
            return False
        reason = cannot_go_on(self.turns, id, self.terms, self.hello)
        if reason is not None:
            self._view.say(reason)
            return False
        reply = self.turns.reply(id)
        recording = reply.recording
        running = Running(
            reply,
            reply.parent,
            before=recording.end,
            so_far=end_so_far(recording),
            n_before=len(recording.rounds),
        )
        begun = begun_with(recording, self.hello)
        terms = terms_to_go_on(recording.terms, self.terms)
        recording.changed |= changes(recording.terms, terms)
        recording.end, recording.went_on = None, True
        self._recorder.goes_on(reply)
        self._send(running, terms, *begun)
        return True

    def edit(self, id: TurnId, written: str | Draft) -> bool:
        """Ask an earlier question in other words."""
        if self._refuses() or self._is_gone(id):
            return False
        question = self.turns.edit(id, composed(draft_of(written)))
        self._recorder.asked(question)
        self._answer(question)
        return True

    def compare(self) -> bool:
        """Have the last reply written once more without speculation, and measure both."""
        if self._refuses():
            return False
        reply = self.turns.last_reply
        off = refusals.speculation_off(self.info, self.controls, None, is_comparison=False)
        recording = reply.recording if reply else None
        reason = cannot_compare(recording, off) or no_comparison(self.hello)
        if reply is None or reason is not None:
            self._view.say(reason or "")
            return False
        plain = Recording(plain_terms(reply.recording))
        self._request(self.turns.compare(reply.id, plain), reply.parent)
        return True

    def stop(self) -> None:
        """End what is being written; it stays."""
        if self.running is not None and not self.is_stopping:
            self.is_stopping = True
            self._engine.send(protocol.Cancel(id=self.running.request_id))
            self._touch()

    def answer_now(self) -> None:
        """End the reasoning of what is being written: the model goes on with its answer."""
        recording = self.running.turn.recording if self.running else None
        reason = refusals.cannot_answer_now(recording, self.reasoning)
        if reason is not None:
            self._view.say(reason)
        else:
            self._engine.send(protocol.Set(answer_now=True))

    def show_prompt(self, typed: str, then: Callable[[protocol.Rendered], None]) -> None:
        """Have the engine say what the model would read if this were sent; `then` gets it."""
        if self._refuses():
            return
        if (reason := no_prompt(self.hello)) is not None:
            self._view.say(reason)
            return
        last = self.turns.last
        before = self.turns.messages_to(last.id) if last else ()
        question = protocol.Message(role="user", content=typed or STAND_IN)
        asked = self.terms.to_chat((*before, question))

        def heard(event: protocol.Answer) -> None:
            if isinstance(event, protocol.Rendered):
                then(event)
            elif isinstance(event, protocol.Error):
                self._complain(event.message)

        self._engine.request(
            protocol.Render(
                messages=asked.messages, thinking=asked.thinking, max_tokens=asked.max_tokens
            ),
            heard,
        )

    # Branches

    def step(self, id: TurnId, by: int) -> TurnId | None:
        """Show another sibling of a turn, so many places on: that sibling, or None."""
        if self._is_busy() or self._is_gone(id):
            return None
        siblings = self.turns.siblings(id)
        place = siblings.index(id) + by
        if not 0 <= place < len(siblings):
            self._view.say(refusals.no_more_siblings(len(siblings), by))
            return None
        self._recorder.chose(self.turns.step(id, by))
        self._touch()
        return siblings[place]

    def choose(self, id: TurnId) -> bool:
        """Have the path go through a turn, if it is there."""
        if self.turns.is_chosen(id):
            return True
        if id not in self.turns or self._is_busy():
            return False
        self.turns.choose(id)
        self._recorder.chose(id)
        self._touch()
        return True

    def delete(self, id: TurnId) -> bool:
        """Delete a turn and all that follows it."""
        if self._is_busy() or self._is_gone(id):
            return False
        before = len(self.turns)
        gone = self.turns.delete(id)
        self._deleted.append(gone.id)
        self._recorder.deleted(gone.id)
        self.notices.forget_gone(self.turns)
        self._view.say(refusals.deleted(before - len(self.turns)))
        self._touch()
        return True

    def undo_delete(self) -> TurnId | None:
        """Put back what was deleted last since the chat was opened: what it began with."""
        if self._is_busy():
            return None
        if not self._deleted:
            self._view.say(refusals.NOTHING_DELETED)
            return None
        id = self._deleted.pop()
        self.turns.restore(id)
        self._recorder.restored(id)
        self._touch()
        return id

    # Requests

    def _answer(self, question: Question, *, is_again: bool = False) -> None:
        terms = seeded_anew(self.terms) if is_again else self.terms
        self._request(self.turns.answer(question.id, Recording(terms)), question.id)

    @property
    def terms(self) -> Terms:
        """What the next reply is asked with."""
        terms = terms_of(self.settings, self.controls, self.pair, self.recommended, self.reasoning)
        return msgspec.structs.replace(terms, engine=foreign(self.hello))

    def _request(self, turn: Reply | Comparison, question: TurnId) -> None:
        self._recorder.began(turn)
        self._send(Running(turn, question), turn.recording.terms)

    def _send(
        self,
        running: Running,
        terms: Terms,
        begun: tuple[int, ...] = (),
        more: Sequence[protocol.Message] = (),
    ) -> None:
        self.is_stopping = False
        self.running = running
        running.request_id = self._engine.request(
            terms.to_chat((*self.turns.messages_to(running.question), *more), begun),
            lambda event: self._heard(running, event),
        )
        self._touch()

    def _heard(self, running: Running, event: protocol.Answer) -> None:
        if running is not self.running:
            return
        turn = running.turn
        match event:
            case protocol.RoundDone():
                self._add_round(turn, running.in_place(event.round))
            case protocol.Settled():
                self._recorder.writing(turn)
                rounds = [running.in_place(round_) for round_ in event.rounds]
                turn.recording.settle(rounds, running.n_before)
                self._recorder.settled(turn)
                self._count_latest()
                self._touch()
            case protocol.WindowMoved():
                running.window = event.window
                self._move_window(running, event.window.first_turn)
            case protocol.Loading() | protocol.PrefillProgress():
                self._wait(running, event)
            case protocol.SpeculationStopped():
                turn.recording.speculation_stopped = event.off.reason
                self._touch()
            case protocol.Done():
                if running.so_far is None:
                    turn.recording.finish(event.end, event.stats)
                else:
                    turn.recording.finish(together(running.so_far, event.end), None)
                self.n_past = self.n_past or turn.recording.n_past
                self._end()
            case protocol.Error():
                self._end()
                if event.code != ENGINE_DIED:
                    self._note(event.message, "error")
        self._tell()

    def _wait(self, running: Running, event: protocol.Loading | protocol.PrefillProgress) -> None:
        if isinstance(event, protocol.Loading):
            running.loading = event
            return
        if running.prefill is None and running.window is None:
            self._move_window(running, 0)
        running.prefill, self.n_past = event.prefill, event.prefill.done

    def _add_round(self, turn: Reply | Comparison, round_: Round) -> None:
        recording = turn.recording
        before = recording.has_reasoning, recording.is_answering
        recording.add(round_)
        if before != (recording.has_reasoning, recording.is_answering):
            self.version += 1
        self.n_past = round_.n_past
        if isinstance(turn, Reply):
            self.rolling.add(round_)

    def _move_window(self, running: Running, first_turn: int) -> None:
        if isinstance(running.turn, Reply):
            path = self.turns.path_to(running.question)
            questions = [turn.id for turn in path if isinstance(turn, Question)]
            self.first_question = questions[first_turn] if first_turn else None
            self._recorder.window(self.first_question)
            self.version += 1

    # The end of a reply

    def _end(self) -> Draft:
        """Nothing more will come of what is running: keep it, or take it back if it is nothing.
        A question that is given back."""
        assert self.running is not None
        running, self.running, self.is_stopping = self.running, None, False
        turn = running.turn
        if turn.recording.end is None and len(turn.recording.rounds) == running.n_before:
            turn.recording.end = running.before
        self.version += 1
        end = turn.recording.end
        was_answered = end is not None and end.finish_reason is not FinishReason.CANCELLED
        if was_answered or turn.recording.text or turn.recording.reasoning:
            self._recorder.ended(turn)
            self._judge_draft(turn.recording.rounds[running.n_before :])
            return ()
        return self._take_back(turn)

    def _take_back(self, turn: Reply | Comparison) -> Draft:
        """Two questions in a row break most chat templates: one without an answer goes."""
        is_reply = isinstance(turn, Reply)
        gone = self.turns.delete(turn.id) if is_reply else self.turns.drop_comparison(turn.id)
        self._recorder.deleted(gone.id)
        moved = self.notices.take({turn.id, gone.id})
        if isinstance(gone, Question):
            self._note(shown(gone.parts), "question")
        if turn.recording.end is not None:
            self._note(refusals.STOPPED_EMPTY)
        self.notices.put(moved, self._last_id)
        if not isinstance(gone, Question):
            return ()
        others = self.turns.beside(gone)
        self._recorder.gave_back(gone.parts)
        self._view.give_back(gone.parts, others[-1] if others else None)
        return gone.parts

    def _refuses(self) -> bool:
        if self.is_engine_gone:
            self._view.say(refusals.ENGINE_GONE)
            return True
        return self._is_busy()

    def _is_gone(self, id: TurnId) -> bool:
        """Whether a turn that somebody still points to was deleted meanwhile, which is said."""
        if id in self.turns:
            return False
        self._view.say(refusals.GONE)
        return True

    def _is_busy(self) -> bool:
        if self.running is not None:
            self._view.say(refusals.BUSY)
        return self.running is not None
