"""A chat with an engine, without a screen: ask, compare, stop, turn a control, open, leave, save.

Who shows it is told once that something changed, looks when it draws, and is told again after.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eaglechat.chat import wording
from eaglechat.chat.comparing import cannot_compare, plain_terms
from eaglechat.chat.controls import (
    N_DRAFT_MAX,
    Controls,
    differences,
    first_controls,
    follow_settings,
    length_in_force,
    seeded_anew,
    terms_of,
    turned,
)
from eaglechat.chat.history.log import new_log, resumed_log
from eaglechat.chat.history.reading import SavedChat
from eaglechat.chat.history.recorder import ChatRecorder
from eaglechat.chat.notices import NoticeKind, Notices
from eaglechat.chat.parties import Engine, View
from eaglechat.chat.recording import Recording, TurnPart
from eaglechat.chat.running import Running
from eaglechat.chat.turns import Comparison, Question, Reply, TurnId, Turns
from eaglechat.chat.unreported import no_auto, no_comparison, not_yet
from eaglechat.hub.local.pair import Pair
from eaglechat.links.base import ENGINE_DIED, Died, Lifecycle
from eaglechat.settings import Settings
from eaglechat.wire import protocol
from eaglechat.wire.records import FinishReason, Round
from eaglechat.wire.stats import ROLLING_ROUNDS, RollingStats


class ChatSession:
    """One chat at a time on a loaded pair."""

    def __init__(
        self,
        engine: Engine,
        view: View,
        *,
        pair: Pair,
        info: protocol.PairInfo | None,
        settings: Callable[[], Settings],
        chats_dir: Path,
        saved: SavedChat | None = None,
    ) -> None:
        """Without `info` nothing is loaded: the chat can only be read."""
        self._engine, self._view = engine, view
        self._settings, self._chats_dir = settings, chats_dir
        self.pair, self.info = pair, info
        self.controls = first_controls(settings(), pair, self._recommended)
        self.is_engine_gone = info is None
        self.version = 0
        """Grows with everything but what a running reply writes."""
        self._is_told = False
        self.notices = Notices()
        self._unwatch = engine.watch(self._engine_changed)
        self.open(saved)

    # Opening and leaving

    def open(self, saved: SavedChat | None = None) -> None:
        """Begin a new chat, or resume a saved one; the one before must have been left."""
        self.turns = saved.turns if saved else Turns()
        self.first_question = saved.first_question if saved else None
        """The oldest question in the context, where older ones have left it."""
        self.unsent = saved.unsent if saved else ""
        """What stood in the prompt when the chat was left."""
        self.running: Running | None = None
        self.is_stopping = False
        self.notices.clear()
        self.rolling, self.n_past = RollingStats(), 0
        """Over the latest rounds of replies; comparisons are not among them."""
        for round_ in self.turns.latest_rounds(ROLLING_ROUNDS):
            self.rolling.add(round_)
            self.n_past = round_.n_past
        if saved is None:
            log = new_log(self._chats_dir, self.pair, self._complain)
        else:
            log = resumed_log(saved, self._complain)
        self._recorder = ChatRecorder(
            log, self.turns, first_question=self.first_question, unsent=self.unsent
        )
        if self.info is None:
            self._note(wording.only_read(self.pair, self._view.key_of), "warning")
        elif not self.turns:
            self._note(wording.greeting(self.info, self.pair.note))
        if log.is_copy:
            self._note(wording.ELSEWHERE, "warning")
        self._touch()

    def leave(self, typed: str) -> None:
        """Stop, and put on disk what is not there yet, with what stands in the prompt."""
        if self.running is not None:
            self._engine.send(protocol.Cancel(id=self.running.request_id))
            self._end()
        self._recorder.left(typed)

    def close(self) -> None:
        """After leaving: hear of the engine no more."""
        self._unwatch()

    def save(self, typed: str) -> None:
        """Every second: put on disk what is new, and what stands in the prompt."""
        if self.running is not None:
            self._recorder.writing(self.running.turn)
        self._recorder.typed(typed)

    def look(self) -> None:
        """Whoever shows the session draws it now; `changed` is said again from here on."""
        self._is_told = False

    # Asking

    def ask(self, text: str) -> bool:
        """Ask at the end of the chat; False where that cannot be done now, and it was said why."""
        if self._refuses():
            return False
        question = self.turns.ask([TurnPart(text)])
        self._recorder.asked(question)
        self._answer(question)
        return True

    def answer_again(self, id: TurnId) -> bool:
        """Answer a question, or the one behind a reply, once more, with a seed of its own."""
        if self._refuses():
            return False
        turn = self.turns.find(id)
        question = self.turns.question(turn.parent if isinstance(turn, Reply) else id)
        self._answer(question, is_again=True)
        return True

    def edit(self, id: TurnId, text: str) -> bool:
        """Ask an earlier question in other words."""
        if self._refuses():
            return False
        question = self.turns.edit(id, [TurnPart(text)])
        self._recorder.asked(question)
        self._answer(question)
        return True

    def compare(self) -> bool:
        """Have the last reply written once more without speculation, and measure both."""
        if self._refuses():
            return False
        reply = self.turns.last_reply
        off = wording.speculation_off(self.info, self.controls, None, is_comparison=False)
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
        reason = wording.cannot_answer_now(recording, self.reasoning)
        if reason is not None:
            self._view.say(reason)
        else:
            self._engine.send(protocol.Set(answer_now=True))

    # Branches

    def step(self, id: TurnId, by: int) -> bool:
        """Show another sibling of a turn, so many places on."""
        if self._is_busy():
            return False
        self._recorder.chose(self.turns.step(id, by))
        self._touch()
        return True

    def delete(self, id: TurnId) -> bool:
        """Delete a turn and all that follows it."""
        if self._is_busy():
            return False
        self._recorder.deleted(self.turns.delete(id).id)
        self.notices.forget_gone(self.turns)
        self._touch()
        return True

    # Controls

    def turn(self, controls: Controls) -> None:
        """Put controls in force, in the running reply from its next round on."""
        if reason := no_auto(self.hello, controls):
            self._view.say(reason)
            controls = turned(controls, N_DRAFT_MAX, self._length_in_force())
        change = differences(self.controls, controls)
        self.controls = controls
        if change and self.running is not None and isinstance(self.running.turn, Reply):
            self.running.turn.recording.changed.update(change)
            self._engine.send(protocol.Set(**change))
            if {N_DRAFT_MAX.name, "enabled"} & change.keys() and (when := not_yet(self.hello)):
                self._view.say(when)
        self._touch()

    def draft(self, by: int) -> None:
        """Draft so many tokens more or less than in the latest round."""
        self.turn(turned(self.controls, N_DRAFT_MAX, self._length_in_force() + by))

    def switch_auto(self) -> None:
        """Leave the draft length to measurement, or take it over as it was chosen last."""
        is_auto = self.controls.n_draft_max == protocol.AUTO
        length = self._length_in_force() if is_auto else protocol.AUTO
        self.turn(turned(self.controls, N_DRAFT_MAX, length))

    def follow_settings(self, before: Settings, after: Settings) -> None:
        """Take over what changed in the settings."""
        self.turn(follow_settings(self.controls, before, after, self._recommended))

    @property
    def _recommended(self) -> protocol.RecommendedSampling | None:
        return self.info.sampling if self.info else None

    def _length_in_force(self) -> int:
        rounds = self.shown.rounds if self.shown else ()
        return length_in_force(self.controls, rounds[-1] if rounds else None)

    # What there is to see

    @property
    def shown(self) -> Recording | None:
        """The recording whose numbers are on show: the one in progress, else the last reply's."""
        if self.running is not None:
            return self.running.turn.recording
        reply = self.turns.last_reply
        return reply.recording if reply else None

    def is_writing(self, turn: Reply | Comparison) -> bool:
        """Whether this is what is being written now."""
        return self.running is not None and self.running.turn is turn

    @property
    def reasoning(self) -> protocol.Reasoning:
        """What the chat template of the target knows of reasoning."""
        return self.info.reasoning if self.info else protocol.NO_REASONING

    @property
    def hello(self) -> protocol.Hello | None:
        """What the engine is and can do; None while there is none."""
        return self._engine.hello

    @property
    def n_ctx(self) -> int:
        """Tokens the context has room for; 0 while nothing is loaded."""
        return self.info.n_ctx if self.info else 0

    # The engine

    def loaded(self, info: protocol.PairInfo) -> None:
        """The pair was loaded again after the engine had died."""
        self.info, self.is_engine_gone = info, False
        self._note("The models are loaded again.")
        self._touch()

    def _engine_changed(self, news: Lifecycle) -> None:
        if isinstance(news, Died):
            self.is_engine_gone, self.n_past = True, 0
            self._note(wording.died_in_chat(news, self._view.key_of), "error")
            self._touch()

    def _answer(self, question: Question, *, is_again: bool = False) -> None:
        terms = terms_of(
            self._settings(), self.controls, self.pair, self._recommended, self.reasoning
        )
        if is_again:
            terms = seeded_anew(terms)
        self._request(self.turns.answer(question.id, Recording(terms)), question.id)

    def _request(self, turn: Reply | Comparison, question: TurnId) -> None:
        self._recorder.began(turn)
        self.is_stopping = False
        self.running = Running(turn, question)
        self.running.request_id = self._engine.request(
            turn.recording.terms.to_chat(self.turns.messages_to(question)),
            lambda event: self._heard(turn, event),
        )
        self._touch()

    def _heard(self, turn: Reply | Comparison, event: protocol.Answer) -> None:
        running = self.running
        if running is None or running.turn is not turn:
            return
        match event:
            case protocol.RoundDone():
                self._add_round(turn, event.round)
            case protocol.WindowMoved():
                running.window = event.window
                self._move_window(running, event.window.first_turn)
            case protocol.PrefillProgress():
                if running.prefill is None and running.window is None:
                    self._move_window(running, 0)
                running.prefill, self.n_past = event.prefill, event.prefill.done
            case protocol.SpeculationStopped():
                turn.recording.speculation_stopped = event.off.reason
                self._touch()
            case protocol.Done():
                turn.recording.finish(event.end, event.stats)
                self._end()
            case protocol.Error():
                self._end()
                if event.code != ENGINE_DIED:
                    self._note(wording.sentence(event.message), "error")
        self._tell()

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

    def _end(self) -> None:
        """Nothing more will come of what is running: keep it, or take it back if it is nothing."""
        assert self.running is not None
        turn, self.running, self.is_stopping = self.running.turn, None, False
        self.version += 1
        end = turn.recording.end
        was_answered = end is not None and end.finish_reason is not FinishReason.CANCELLED
        if was_answered or turn.recording.text or turn.recording.reasoning:
            self._recorder.ended(turn)
        else:
            self._take_back(turn)

    def _take_back(self, turn: Reply | Comparison) -> None:
        """Two questions in a row break most chat templates: one without an answer goes."""
        gone = self.turns.delete(turn.id)
        self._recorder.deleted(gone.id)
        moved = self.notices.take({turn.id, gone.id})
        if isinstance(gone, Question):
            self._note(gone.text, "question")
        if turn.recording.end is not None:
            self._note(wording.STOPPED_EMPTY)
        self.notices.put(moved, self._last_id)
        if isinstance(gone, Question):
            self._recorder.gave_back(gone.text)
            self._view.give_back(gone.text)

    def _refuses(self) -> bool:
        if self.is_engine_gone:
            self._view.say(wording.engine_gone(self._view.key_of))
            return True
        return self._is_busy()

    def _is_busy(self) -> bool:
        if self.running is not None:
            self._view.say(wording.busy(self._view.key_of))
        return self.running is not None

    def _note(self, text: str, kind: NoticeKind = "information") -> None:
        self.version += 1
        self.notices.say(text, self._last_id, kind)

    @property
    def _last_id(self) -> TurnId | None:
        return self.turns.last.id if self.turns.last else None

    def _complain(self, sentence: str) -> None:
        self._view.say(sentence, "error")

    def _touch(self) -> None:
        self.version += 1
        self._tell()

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._view.changed()
