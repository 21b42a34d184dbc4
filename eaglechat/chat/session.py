"""An open chat, without a screen: ask, edit, stop, step, delete, save. Before its pair is loaded it
can be read, and what is typed is saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from eaglechat.chat import refusals
from eaglechat.chat.comparing import Asked, Engine
from eaglechat.chat.controls import STARTED_WITH, Controls, first_controls, not_followed
from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.recording import Recording, Terms
from eaglechat.chat.saved_chat import SavedChat, header_of, new_chat
from eaglechat.chat.store import ChatStore
from eaglechat.chat.turns import Branch, Question, Reply, TurnId, Turns
from eaglechat.chat.writing.question import QuestionParts, composed, together
from eaglechat.chat.writing.roles import Role, find_role
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.local.speeds import Speeds, setup_of
from eaglechat.links.base import ENGINE_DIED, Lifecycle
from eaglechat.settings.model import Settings
from eaglechat.wire import protocol
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    FinishReason,
    Prefill,
    Round,
    SpeculationOff,
    Window,
)
from eaglechat.wire.stats import DrafterStats, of_the_draft, stats_of
from eaglechat.wire.worker import Died

_FIRST_BY_HAND = 3
"""The draft length when auto is switched off before there was a round."""
STAND_IN = "hi"
"""Stands for the question in `show_prompt` while nothing is typed."""


Severity = Literal["information", "warning", "error"]


News = str | protocol.PairInfo | Died
"""A sentence, an engine's own message, or what the timeline puts into words: the pair that was
loaded, or the end of the engine."""


@dataclass(frozen=True)
class Notice:
    """News after a turn, shown while the chat is open and the turn is on its path."""

    after: TurnId | None
    news: News
    kind: Severity


class View(Protocol):
    """What shows a session."""

    def changed(self) -> None:
        """Something else changed than the rounds of the running reply, and how far its prompt is
        read."""

    def grew(self) -> None:
        """The running reply has another round, or more of its prompt is read."""

    def give_back(self, question: QuestionParts, version_of: TurnId | None) -> None:
        """An unanswered question was taken out of the chat. If it was another version of a
        question, `version_of` is one that remains."""

    def say(self, sentence: str) -> None:
        """Show something that is not part of the chat."""


@dataclass
class Running:
    turn: Reply
    request_id: int = 0
    loading: protocol.Loading | None = None
    prefill: Prefill | None = None
    window: Window | None = None
    is_as_asked: bool = True
    """No control was changed meanwhile."""


class ChatSession:
    """One chat at a time on a pair."""

    def __init__(
        self,
        engine: Engine,
        view: View,
        *,
        pair: Pair,
        settings: Callable[[], Settings],
        store: ChatStore,
        roles_dir: Path,
        speeds: Speeds,
        saved: SavedChat | None = None,
    ) -> None:
        self._roles_dir = roles_dir
        self.role: Role | None = None
        self._engine, self._view, self._speeds = engine, view, speeds
        self._settings, self._store = settings, store
        self.pair = pair
        self.info: protocol.PairInfo | None = None
        """None until the pair is loaded for the first time."""
        self.is_engine_gone, self._is_missed = True, False
        """Whether nothing is loaded, and whether the user was told so."""
        self.controls = first_controls(settings(), pair)
        self._is_greeted = False
        self._of_draft: DrafterStats | None = DrafterStats()
        """Counts of the draft model since it was loaded; None once the user was warned."""
        self._unwatch = engine.watch(self._engine_changed)
        self.open(saved)

    # Opening

    def open(self, saved: SavedChat | None = None) -> None:
        """Begin a new chat, or resume a saved one. The chat before must have been left."""
        self.recorder = ChatRecorder(self._store, saved or new_chat(self.pair))
        """Writes the chat to disk."""
        self.running: Running | None = None
        self.is_stopping = False
        self._deleted: list[Branch] = []
        """What was deleted since the chat was opened, oldest first."""
        self.notices: list[Notice] = []
        """Oldest first."""
        name = self.chat.role if saved else self._settings().generation.role
        found = find_role(self._roles_dir, name) if name else None
        if name and not isinstance(found, Role):
            why = f"cannot be used: {found}" if found else "no longer exists"
            said = f"The role “{name}” {why}. This chat continues without it."
            self.note(said, "warning")
        self.choose_role(found if isinstance(found, Role) else None)
        self._at_opening = self.controls
        self._greet()
        if self.recorder.is_copy:
            self.note(
                "This chat is open in another eaglechat. What you write here goes into a copy, "
                "which is listed separately.",
                "warning",
            )

    def _greet(self) -> None:
        """Say what was loaded, once, in a new chat."""
        if self.info is None or self.turns or self._is_greeted:
            return
        self._is_greeted = True
        self.note(self.info)
        if self.controls.shape == "tree" and self.info.chains_only:
            self.note(f"This pair cannot draft trees: {self.info.chains_only}.")

    @property
    def chat(self) -> SavedChat:
        return self.recorder.chat

    @property
    def turns(self) -> Turns:
        return self.chat.turns

    # Leaving

    def leave(self, written: QuestionParts) -> None:
        """Stop, and write to disk what is missing there. `written` is in the prompt."""
        if self.running is not None:
            self._engine.send(protocol.Cancel(id=self.running.request_id))
            written = together(self._end(), written)
        self.recorder.left(written)

    def close(self) -> None:
        """Stop listening to the engine; after `leave`."""
        self._unwatch()

    # Asking

    def ask(self, written: QuestionParts) -> bool:
        """Ask at the end of the chat. This and the methods below return False if it cannot be done
        now, and tell the view why."""
        if self._refuses():
            return False
        self.chat.unsent = ()
        self._answer(self.turns.ask(composed(written)).id, self.terms)
        return True

    def answer_again(self, id: TurnId) -> bool:
        """Answer a question, or the one before a reply, once more with a new seed."""
        if self._refuses(id):
            return False
        turn = self.turns.find(id)
        question = turn.parent if isinstance(turn, Reply) else id
        terms = self.terms
        sampling = msgspec.structs.replace(terms.sampling, seed=None)
        self._answer(question, msgspec.structs.replace(terms, sampling=sampling))
        return True

    def answer_recorded(self, id: TurnId) -> Recording | None:
        """Write a reply once more, with its own terms, and record the target's candidates; None if
        it cannot be done now. At temperature 0, and if a seed was set, it is the same reply."""
        if self._refuses(id):
            return None
        reply = self.turns.reply(id)
        terms, end = reply.recording.terms, reply.recording.end
        # One that was stopped ends at the same length.
        if end is not None and end.finish_reason is FinishReason.CANCELLED and end.tokens:
            terms = msgspec.structs.replace(terms, max_tokens=end.tokens)
        terms = msgspec.structs.replace(terms, top=protocol.TOP_DEFAULT)
        return self._answer(reply.parent, terms)

    def continue_reply(self, id: TurnId) -> bool:
        if self._refuses(id):
            return False
        if self._tells(self.cannot_continue(id)):
            return False
        reply = self.turns.reply(id)
        recording, before = reply.recording, reply.recording.terms
        # The prompt as it was; sampling and drafting as they are now.
        terms = msgspec.structs.replace(
            self.terms, system_prompt=before.system_prompt, thinking=before.thinking
        )
        if self.can.goes_on_from_text:
            chat = terms.to_chat(self.turns.messages_to(id))
        else:
            chat = terms.to_chat(self.turns.messages_to(reply.parent), recording.ids or ())
        recording.go_on()
        self._send(reply, chat)
        return True

    def cannot_continue(self, id: TurnId) -> str | None:
        """Why this turn cannot be continued; None if it can."""
        reply, can = self.turns.find(id), self.can
        if not isinstance(reply, Reply):
            return "There is no reply to continue yet."
        if self.turns.below(id):
            return "Only the last reply of a chat can be continued."
        recording = reply.recording
        if recording.end is not None and recording.end.finish_reason is FinishReason.STOP:
            return "The reply is complete: there is nothing to continue."
        if recording.terms.target != self.terms.target:
            return "Another model wrote the reply: answer the question again instead."
        if not (can.own or can.goes_on_from_text):
            return f"{refusals.subject(self.hello)} cannot continue a reply."
        is_known = can.goes_on_from_text or recording.ids
        unknown = "The tokens of the reply are not known, so it cannot be continued."
        return None if is_known else unknown

    def edit(self, id: TurnId, written: QuestionParts) -> bool:
        if self._refuses(id):
            return False
        self.chat.unsent = ()
        self._answer(self.turns.edit(id, composed(written)).id, self.terms)
        return True

    def to_compare(self) -> Asked | None:
        """The last question, if there is one, to be answered in several ways; None if that cannot
        be done now. The view is told why."""
        if self._refuses() or self.info is None or self.hello is None:
            return None
        last = next((one for one in reversed(self.turns.path) if isinstance(one, Question)), None)
        off = self.info.speculation_off
        if self._tells(refusals.no_comparison(self.hello) or (off and refusals.off(off))):
            return None
        prompts = {"your last question": self.turns.messages_to(last.id)} if last else {}
        return Asked(prompts, self.terms)

    def stop(self) -> None:
        """Stop what is being written. What was written stays."""
        if self.running is not None and not self.is_stopping:
            self.is_stopping = True
            self._engine.send(protocol.Cancel(id=self.running.request_id))
            self._view.changed()

    def answer_now(self) -> None:
        """End the reasoning of the running reply; the model continues with its answer."""
        recording = self.running.turn.recording if self.running else None
        if recording is None or not recording.has_reasoning or recording.is_answering:
            self._view.say("The model is not thinking now.")
        elif not self.reasoning.can_end:
            self._view.say("This model's chat template has no way to end its thinking.")
        else:
            self._engine.send(protocol.Set(answer_now=True))

    def show_prompt(self, typed: str, then: Callable[[protocol.Rendered], None]) -> None:
        """Ask the engine which prompt the model would read if this were sent; `then` gets it."""
        if self._refuses():
            return
        if not self.can.prompt:
            self._view.say(f"{refusals.subject(self.hello)} does not show prompts.")
            return
        last = self.turns.last
        before = self.turns.messages_to(last.id) if last else ()
        question = protocol.Message(role="user", content=typed or STAND_IN)
        asked = self.terms.to_chat((*before, question))

        def heard(event: protocol.Answer) -> None:
            if isinstance(event, protocol.Rendered):
                then(event)
            elif isinstance(event, protocol.Error):
                self.note(event.message, "error")

        self._engine.request(
            protocol.Render(
                messages=asked.messages, thinking=asked.thinking, max_tokens=asked.max_tokens
            ),
            heard,
        )

    # Branches

    def step(self, id: TurnId, by: int) -> TurnId | None:
        """Choose the sibling of a turn `by` positions later; return it, or None if there is
        none."""
        if self._refuses(id, without_engine=True):
            return None
        siblings = self.turns.siblings(id)
        place = siblings.index(id) + by
        if not 0 <= place < len(siblings):
            which = f"the {'newest' if by > 0 else 'oldest'} of {len(siblings)}"
            only = "There is no other version of this turn yet."
            self._view.say(only if len(siblings) == 1 else f"This is {which}.")
            return None
        self.choose(siblings[place])
        return siblings[place]

    def choose(self, id: TurnId) -> bool:
        """Choose a turn; False if there is none or a reply is being written."""
        if self.turns.is_chosen(id):
            return True
        if self._refuses(id, without_engine=True):
            return False
        self.turns.choose(id)
        self._keep()
        return True

    def delete(self, id: TurnId) -> bool:
        if self._refuses(id, without_engine=True):
            return False
        self._deleted.append(self.turns.delete(id))
        count = len(self._deleted[-1])
        what = "1 turn" if count == 1 else f"{count:,} turns"
        self._view.say(f"{what} deleted. {{chat.undo_delete}} restores it.")
        self._keep()
        return True

    def undo_delete(self) -> TurnId | None:
        """Restore what was deleted last since the chat was opened; return its root, or None."""
        if self._refuses(without_engine=True):
            return None
        if not self._deleted:
            self._view.say("Nothing has been deleted since this chat was opened.")
            return None
        branch = self._deleted.pop()
        self.turns.restore(branch)
        self._keep()
        return branch[0].id

    # Controls

    def change_controls(self, controls: Controls) -> None:
        """Apply controls, to a running reply from its next round on."""
        can, engine = self.can, refusals.subject(self.hello)
        if not_followed(can) & controls.changed_from(self.controls).keys():
            how = "the way it was started; eaglechat cannot change that"
            self._view.say(
                f"{engine} drafts {'only chains, without n-grams' if can.draft_length else how}."
            )
            controls = controls.with_those_of(self.controls, not_followed(can))
        if self.info and (why := self.info.no_drafter(controls.drafter)):
            self._view.say(f"The drafter {controls.drafter} cannot draft: {why}.")
            controls = controls.with_those_of(self.controls, ["drafter"])
        if can.draft_length and not can.own and controls.n_draft_max == protocol.AUTO:
            self._view.say(f"{engine} cannot choose the draft length itself: set one by hand.")
            length = self._length_in_force()
            controls = msgspec.structs.replace(controls, n_draft_max=length)
            if self.controls.n_draft_max == protocol.AUTO:
                # With that length it was started.
                self.controls = msgspec.structs.replace(self.controls, n_draft_max=length)
        change = controls.changed_from(self.controls)
        self.controls = controls
        if can.draft_length and not can.own and STARTED_WITH & change.keys():
            self._view.say(f"{engine} restarts with this before the next reply.")
        elif change and self.running is not None:
            if can.own:
                self.running.is_as_asked = False
            else:
                self._view.say(f"{engine} applies this from the next reply on.")
            self._engine.send(protocol.Set(**change))
        self._view.changed()

    def change_draft_length(self, by: int) -> None:
        """Draft `by` tokens more than in the latest round; fewer if `by` is negative."""
        self._change_length(min(max(self._length_in_force() + by, 0), N_DRAFT_MAX_LIMIT))

    def switch_auto(self) -> None:
        """Switch the automatic draft length on; or off, keeping the length it chose last."""
        is_auto = self.controls.n_draft_max == protocol.AUTO
        self._change_length(self._length_in_force() if is_auto else protocol.AUTO)

    def _change_length(self, length: int | protocol.Auto) -> None:
        self.change_controls(msgspec.structs.replace(self.controls, n_draft_max=length))

    # The role

    @property
    def settings(self) -> Settings:
        """The settings, with those of the role."""
        settings = self._settings()
        return self.role.applied(settings) if self.role else settings

    def choose_role(self, role: Role | None) -> None:
        before, self.role = self.settings, role
        self.chat.role = role.name if role else ""
        self._follow(before, self.settings)

    def follow_settings(self, before: Settings, after: Settings) -> None:
        """Take over what changed between these settings."""
        if self.role is not None:
            before, after = self.role.applied(before), self.role.applied(after)
        self._follow(before, after)

    def _follow(self, before: Settings, after: Settings) -> None:
        old, new = (
            msgspec.structs.asdict(first_controls(one, recommended=self.recommended))
            for one in (before, after)
        )
        changed = {name: new[name] for name in new if new[name] != old[name]}
        self.change_controls(msgspec.structs.replace(self.controls, **changed))

    @property
    def recommended(self) -> protocol.Recommended:
        """What the target's file recommends; nothing if none is loaded."""
        return self.info.sampling if self.info else {}

    def _length_in_force(self) -> int:
        """The draft length that is set, or the one auto chose in the latest round."""
        if self.controls.n_draft_max != protocol.AUTO:
            return self.controls.n_draft_max
        rounds = self.shown.rounds if self.shown else ()
        return rounds[-1].n_draft_max if rounds else _FIRST_BY_HAND

    # What there is to see

    @property
    def shown(self) -> Recording | None:
        """The recording whose numbers are shown: the running one, else that of the last reply."""
        reply = self.running.turn if self.running else self.turns.last_reply
        return reply.recording if reply else None

    @property
    def reasoning(self) -> protocol.Reasoning:
        """What the target's chat template supports of reasoning."""
        return self.info.reasoning if self.info else protocol.NO_REASONING

    @property
    def hello(self) -> protocol.Hello | None:
        """What the engine is and can do; None while none is ready."""
        return self._engine.hello

    @property
    def can(self) -> protocol.Capabilities:
        """What the engine can do: all that eaglechat's own can while none is ready."""
        return self.hello.can if self.hello is not None else protocol.OWN_ENGINE

    @property
    def n_ctx(self) -> int:
        """Length of the context in tokens; 0 while nothing is loaded."""
        return self.info.n_ctx if self.info else 0

    @property
    def n_past(self) -> int:
        """Tokens in the context, 0 if unknown."""
        prefill = self.running.prefill if self.running else None
        n_past = (self.shown.n_past if self.shown else 0) or (prefill.done if prefill else 0)
        # The chat may be from a larger context, of which this one holds the end.
        return min(n_past, self.n_ctx or n_past)

    # The engine

    def loaded(self, pair: Pair, info: protocol.PairInfo) -> None:
        """The pair was loaded, for the first time or again. It may be another than the chat was
        opened for: without its draft, or with the model that a server has."""
        is_first, is_missed = self.info is None, self._is_missed
        self.pair, self.info = pair, info
        self.is_engine_gone = self._is_missed = False
        if is_first:
            # What the model's file recommends is known now; what was turned by hand stays.
            if not self.turns:
                self.chat.header = header_of(pair)
            role, self.role = self.role, None
            by_hand = self.controls.changed_from(self._at_opening)
            self.controls = first_controls(self.settings, pair, self.recommended)
            if not self.can.draft_length:
                # It drafts as it was started to.
                self.controls = msgspec.structs.replace(
                    self.controls, enabled=True, n_draft_max=protocol.AUTO, drafter=protocol.AUTO
                )
            self.choose_role(role)
            self.change_controls(msgspec.structs.replace(self.controls, **by_hand))
        if is_missed:
            self.note("The models are loaded again.")
        self._greet()
        self._view.changed()

    def only_read(self) -> None:
        """The models of the chat are gone."""
        self._is_missed = True
        self.note(
            f"{self.pair.target} no longer exists, so this chat is read-only. "
            "{chat.load_again} loads the models once they are back.",
            "warning",
        )

    def _engine_changed(self, news: Lifecycle) -> None:
        if isinstance(news, Died) and not self.is_engine_gone:
            self.is_engine_gone = self._is_missed = True
            self.note(news, "error")

    # Requests

    def _answer(self, question: TurnId, terms: Terms) -> Recording:
        reply = self.turns.answer(question, Recording(terms))
        self._send(reply, terms.to_chat(self.turns.messages_to(question)))
        return reply.recording

    @property
    def terms(self) -> Terms:
        """Of the next reply: the settings, overridden by the controls."""
        settings, controls = self.settings, self.controls
        sampling = settings.to_sampling(self.recommended)
        target, draft = self.pair.to_load
        engine = self.hello.engine if self.hello is not None else ""
        return Terms(
            pair=self.pair.name,
            target=target,
            draft=draft,
            system_prompt=settings.generation.system_prompt,
            sampling=msgspec.structs.replace(sampling, temperature=controls.temperature),
            speculation=msgspec.convert(controls, protocol.Speculation, from_attributes=True),
            thinking=controls.asks(self.reasoning),
            max_tokens=settings.generation.max_tokens or None,
            top=protocol.TOP_DEFAULT if settings.interface.inspect else 0,
            engine="" if engine == "eaglechat" else engine,
        )

    def _send(self, reply: Reply, chat: protocol.Chat) -> None:
        self.is_stopping = False
        running = self.running = Running(reply)
        self.recorder.running = reply
        self._keep()
        running.request_id = self._engine.request(chat, lambda event: self._heard(running, event))

    def _heard(self, running: Running, event: protocol.Answer) -> None:
        if running is not self.running:
            return
        turn = running.turn
        match event:
            case protocol.Progress():
                self._see(running, event.step)
            case protocol.Done():
                turn.recording.finish(event.end, event.stats)
                self._end()
            case protocol.Error():
                self._end()
                if event.code != ENGINE_DIED:
                    self.note(event.message, "error")

    def _see(self, running: Running, step: protocol.Step) -> None:
        recording = running.turn.recording
        match step:
            case Round():
                before = recording.has_reasoning, recording.is_answering
                recording.add(step)
                if before == (recording.has_reasoning, recording.is_answering):
                    self._view.grew()
                else:
                    self._view.changed()
            case protocol.Settled():
                recording.settle(step.rounds)
                self._view.changed()
            case Window():
                running.window = step
                self._move_window(running, step.first_turn)
            case protocol.Loading():
                running.loading = step
                self._view.grew()
            case Prefill():
                if running.prefill is None and running.window is None:
                    # The engine reports only a window that moved.
                    self._move_window(running, 0)
                running.prefill = step
                self._view.grew()
            case SpeculationOff():
                recording.speculation_stopped = step.reason
                self._view.changed()

    def _move_window(self, running: Running, first_turn: int) -> None:
        path = self.turns.path_to(running.turn.parent)
        questions = [turn.id for turn in path if isinstance(turn, Question)]
        self.chat.first_question = questions[first_turn] if first_turn else None
        self._keep()

    # The end of a reply

    def _end(self) -> QuestionParts:
        """The running request has ended: keep what it wrote, or take it back if that is nothing.
        Return the question that is given back."""
        assert self.running is not None
        running, turn = self.running, self.running.turn
        self.running, self.recorder.running, self.is_stopping = None, None, False
        turn.recording.stand_still()
        self._view.changed()
        end = turn.recording.end
        was_answered = end is not None and end.finish_reason is not FinishReason.CANCELLED
        if was_answered or turn.recording.text or turn.recording.reasoning:
            self.recorder.keep()
            stretch, speculation = turn.recording.stretch, turn.recording.terms.speculation
            # One that was continued may have been asked for in several ways.
            is_of_one = running.is_as_asked and not turn.recording.n_before
            if is_of_one and (gain := stretch.gain) is not None:
                setup = setup_of(self.pair, self._settings().engine, speculation.drafter)
                plain_ms = stretch.ms * gain.speed_up
                self._speeds.note_reply(setup, speculation.n_draft_max, plain_ms, stretch.ms)
            if self._of_draft is not None and self.info is not None:
                new = stats_of(turn.recording.rounds[turn.recording.n_before :])
                self._of_draft += of_the_draft(new.by_drafter)
                if found := refusals.misfit(self._of_draft, self.info):
                    self.note(found, "warning")
                    self._of_draft = None
            return ()
        return self._take_back(turn)

    def _take_back(self, turn: Reply) -> QuestionParts:
        """Take an unanswered question out: two in a row break most chat templates."""
        gone = self.turns.delete(turn.id)[0]
        given_back = gone.parts if isinstance(gone, Question) else ()
        # One who is killed now has it too.
        self.chat.unsent = together(given_back, self.chat.unsent)
        self.recorder.keep()
        self.notices = [
            replace(one, after=self._last_id) if one.after in (turn.id, gone.id) else one
            for one in self.notices
        ]
        if turn.recording.end is not None:
            self.note("Stopped before the first token.")
        if given_back:
            others = self.turns.below(gone.parent)
            self._view.give_back(given_back, others[-1] if others else None)
        return given_back

    def _refuses(self, id: TurnId | None = None, *, without_engine: bool = False) -> bool:
        """Whether nothing can be done now, or not with this turn; tells the view why."""
        reason = None
        if self.is_engine_gone and not without_engine:
            reason = (
                "This needs the models: wait until they are loaded, or load them with "
                "{chat.load_again}."
            )
        elif self.running is not None:
            reason = "A reply is being written: {chat.stop} stops it."
        elif id is not None and id not in self.turns:
            # It was deleted meanwhile.
            reason = "This turn was deleted."
        return self._tells(reason)

    def _tells(self, reason: str | None) -> bool:
        """Tell the view why not, if there is a reason."""
        if reason:
            self._view.say(reason)
        return bool(reason)

    # Telling the view, and the disk

    def _keep(self) -> None:
        self.recorder.keep()
        self._view.changed()

    def note(self, news: News, kind: Severity = "information") -> None:
        """Say it in the transcript. It is no part of the chat, and not written to disk."""
        self.notices.append(Notice(self._last_id, news, kind))
        self._view.changed()

    @property
    def _last_id(self) -> TurnId | None:
        return self.turns.last.id if self.turns.last else None
