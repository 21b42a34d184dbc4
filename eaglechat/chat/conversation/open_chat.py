"""A chat that is open, without a screen: its turns, its controls, and what there is to see of it.

Who shows it is told once that something changed, looks when it draws, and is told again after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from eaglechat.chat import refusals
from eaglechat.chat.capability_text import no_auto, no_drafting, not_followed, not_yet, restart
from eaglechat.chat.controls import (
    N_DRAFT_MAX,
    Controls,
    differences,
    drafting_as_started,
    first_controls,
    follow_settings,
    length_in_force,
    own_sampling,
    turned,
    without,
)
from eaglechat.chat.conversation.notices import News, NoticeKind, Notices, Opened
from eaglechat.chat.conversation.parties import Engine, View
from eaglechat.chat.conversation.running import Running
from eaglechat.chat.conversation.turns import Comparison, Reply, TurnId, Turns
from eaglechat.chat.history.log import new_log, resumed_log
from eaglechat.chat.history.reading import SavedChat
from eaglechat.chat.history.recorder import ChatRecorder
from eaglechat.chat.misfit import misfit, of_the_draft
from eaglechat.chat.recording import Recording
from eaglechat.chat.writing.roles import Role, find_role
from eaglechat.hub.local.pair import Pair
from eaglechat.links.base import Died, Lifecycle
from eaglechat.settings import Settings
from eaglechat.wire import protocol
from eaglechat.wire.records import Round
from eaglechat.wire.stats import ROLLING_ROUNDS, DrafterStats, RollingStats, stats_of


class OpenChat:
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
        roles_dir: Path,
        saved: SavedChat | None = None,
    ) -> None:
        """Without `info` nothing is loaded: the chat can only be read."""
        self._roles_dir = roles_dir
        self.role: Role | None = None
        self._engine, self._view = engine, view
        self._settings, self._chats_dir = settings, chats_dir
        self.pair, self.info = pair, info
        self.controls = first_controls(settings(), pair, self.recommended)
        if engine.hello is not None and not engine.hello.can.draft_length:
            self.controls = drafting_as_started(self.controls)
        self.is_engine_gone = info is None
        self.version = 0
        """Grows with everything but what a running reply writes."""
        self._is_told = False
        self.notices = Notices()
        self._of_draft: DrafterStats | None = DrafterStats()
        """What came of the draft since it was loaded; None once it was called a misfit."""
        self._unwatch = engine.watch(self._engine_changed)
        self.open(saved)

    # Opening

    def open(self, saved: SavedChat | None = None) -> None:
        """Begin a new chat, or resume a saved one; the one before must have been left."""
        self.turns = saved.turns if saved else Turns()
        self.first_question = saved.first_question if saved else None
        """The oldest question in the context, where older ones have left it."""
        self.unsent = saved.draft if saved else ()
        """What stood in the prompt when the chat was left."""
        self.running: Running | None = None
        self.is_stopping = False
        self._deleted: list[TurnId] = []
        """What was deleted since, oldest first."""
        self.notices.clear()
        self._count_latest()
        if saved is None:
            log = new_log(self._chats_dir, self.pair, self._complain)
        else:
            log = resumed_log(saved, self._complain)
        self._recorder = ChatRecorder(log, self.turns, saved)
        self._open_role(saved.role if saved else self._settings().generation.role)
        if self.info is None:
            self._note(Opened(self.pair, None, self.hello), "warning")
        elif not self.turns:
            self._note(Opened(self.pair, self.info, self.hello))
            if self.controls.shape == "tree" and self.info.chains_only:
                self._note(refusals.stays_with_chains(self.info.chains_only))
        if log.is_copy:
            self._note(refusals.ELSEWHERE, "warning")
        self._touch()

    def look(self) -> None:
        """Whoever shows the session draws it now; `changed` is said again from here on."""
        self._is_told = False

    @property
    def record(self) -> ChatRecorder:
        """What is kept of it: it has a file, can be named and pinned."""
        return self._recorder

    # Controls

    def turn(self, controls: Controls) -> None:
        """Put controls in force, in the running reply from its next round on."""
        if reason := no_drafting(self.hello, differences(self.controls, controls)):
            self._view.say(reason)
            controls = without(not_followed(self.hello), self.controls, controls)
        if reason := no_auto(self.hello, controls):
            self._view.say(reason)
            controls = turned(controls, N_DRAFT_MAX, self._length_in_force())
        change = differences(self.controls, controls)
        self.controls = controls
        if when := restart(self.hello, change):
            self._view.say(when)
        elif change and self.running is not None and isinstance(self.running.turn, Reply):
            if when := not_yet(self.hello):
                self._view.say(when)
            else:
                self.running.turn.recording.changed.update(change)
            self._engine.send(protocol.Set(**change))
        self._touch()

    def draft(self, by: int) -> None:
        """Draft so many tokens more or less than in the latest round."""
        self.turn(turned(self.controls, N_DRAFT_MAX, self._length_in_force() + by))

    def take_own_sampling(self) -> None:
        """Turn the controls of sampling to what the model's file recommends."""
        own = own_sampling(self.controls, self.recommended)
        if own is None:
            self._view.say(refusals.NOTHING_RECOMMENDED)
        else:
            self.turn(own)

    def switch_auto(self) -> None:
        """Leave the draft length to measurement, or take it over as it was chosen last."""
        is_auto = self.controls.n_draft_max == protocol.AUTO
        length = self._length_in_force() if is_auto else protocol.AUTO
        self.turn(turned(self.controls, N_DRAFT_MAX, length))

    # The role

    @property
    def settings(self) -> Settings:
        """Those in force, as the role has them."""
        settings = self._settings()
        return self.role.applied(settings) if self.role else settings

    def choose_role(self, role: Role | None) -> None:
        """Ask in another role from here on."""
        self._take_role(role)

    def _count_latest(self) -> None:
        self.rolling, self.n_past = RollingStats(), 0
        """Over the latest rounds of replies; comparisons are not among them."""
        for round_ in self.turns.latest_rounds(ROLLING_ROUNDS):
            self.rolling.add(round_)
        if reply := self.turns.last_reply:
            n_past = reply.recording.n_past
            # It may have been written in a larger context, of which this one holds the end.
            self.n_past = min(n_past, self.n_ctx) if self.n_ctx else n_past

    def _open_role(self, name: str) -> None:
        found = find_role(self._roles_dir, name) if name else None
        if name and not isinstance(found, Role):
            why = str(found) if found else f"The role “{name}” no longer exists."
            self._note(f"{why} This chat continues without it.", "warning")
        self._take_role(found if isinstance(found, Role) else None)

    def _take_role(self, role: Role | None) -> None:
        before, self.role = self.settings, role
        self._recorder.role = role.name if role else ""
        self.turn(follow_settings(self.controls, before, self.settings, self.recommended))

    def follow_settings(self, before: Settings, after: Settings) -> None:
        """Take over what changed in the settings."""
        if self.role is not None:
            before, after = self.role.applied(before), self.role.applied(after)
        self.turn(follow_settings(self.controls, before, after, self.recommended))

    @property
    def recommended(self) -> protocol.RecommendedSampling | None:
        """What the target's file recommends, while it is loaded."""
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
            self._note(news, "error")
            self._touch()

    def _judge_draft(self, rounds: Sequence[Round]) -> None:
        """Say once of a draft that hardly anything of it is accepted."""
        if self._of_draft is None or self.info is None:
            return
        self._of_draft += of_the_draft(stats_of(rounds).by_drafter)
        if sentence := misfit(self._of_draft, self.info):
            self._note(sentence, "warning")
            self._of_draft = None

    # Saying so

    def _note(self, news: News, kind: NoticeKind = "information") -> None:
        self.version += 1
        self.notices.add(news, self._last_id, kind)

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
