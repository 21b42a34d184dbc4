"""The panel of a chat with its controls, and the figures around the transcript."""

from __future__ import annotations

import time
from typing import Any

from textual import on
from textual.geometry import Size
from textual.timer import Timer

from eaglechat.chat.controls import (
    CONTROLS,
    ENABLED,
    N_DRAFT_MAX,
    NGRAM,
    SHAPE,
    Control,
    Controls,
    control_named,
    turned,
)
from eaglechat.chat.refusals import chains_only, not_yet
from eaglechat.chat.session import ChatSession, Severity
from eaglechat.hub.local.pair import Pair
from eaglechat.settings.model import PanelPlace
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import TitleBar
from eaglechat.tui.screens.prompt_screen import PromptScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.tui.widgets.status_line import StatusLine
from eaglechat.tui.widgets.transcript.token_styles import Legend
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.words import wording
from eaglechat.words.numbers import in_force, numbers_of, without_effect
from eaglechat.words.timeline import progress

NUMBERS_EVERY_S = 0.25
"""While a reply is written, the figures are drawn with a frame of its text, so often at most."""
PANEL_FROM: dict[PanelPlace, tuple[int, int]] = {"beside": (100, 34), "below": (80, 34)}
"""The least width and height, in cells, of a terminal that has room for the panel there."""


class PanelScreen(PromptScreen[None]):
    """A chat as far as its panel is concerned, which lies beside the transcript, below it, or in a
    small terminal over it."""

    services: Services
    session: ChatSession
    """Set when the screen is mounted."""
    pair: Pair
    _numbers_at = 0.0
    """The time at which the figures were drawn last."""
    _late_numbers: Timer | None = None

    @property
    def transcript(self) -> Transcript:
        return self.query_one("#transcript", Transcript)

    def say(self, sentence: str, severity: Severity = "information") -> None:
        if severity == "error":
            sentence = wording.sentence(sentence)
        self.notify(with_keys(sentence), severity=severity)

    def _fit(self, size: Size) -> None:
        """Put the panel where the settings want it if a terminal of this size has room there."""
        place = self.services.settings.current.interface.panel
        width, height = PANEL_FROM[place]
        is_folded = size.width < width or size.height < height
        self.set_class(is_folded, "-folded")
        # In both it is as wide as the screen.
        self.set_class(is_folded or place == "below", "-panel-flat")
        self.set_class(not is_folded and place == "below", "-panel-below")

    def _follow_numbers(self) -> None:
        """Draw the figures with this frame; if they are too new, with one that follows. If none
        follows, they are drawn a little later."""
        wait = self._numbers_at + NUMBERS_EVERY_S - time.monotonic()
        if wait <= 0:
            self.show_numbers()
        elif self._late_numbers is None:
            self._late_numbers = self.set_timer(wait + NUMBERS_EVERY_S, self.show_numbers)

    def show_numbers(self) -> None:
        """Bring the panel, the status line, the legend and the titles up to date at once."""
        self._numbers_at = time.monotonic()
        if self._late_numbers is not None:
            self._late_numbers.stop()
            self._late_numbers = None
        session = self.session
        numbers = numbers_of(session)
        is_flat = self.has_class("-panel-flat")
        self.query_one("#panel", SpeculationPanel).show(numbers, is_close=is_flat)
        self.query_one("#status", StatusLine).show(numbers)
        is_told = wording.not_reported(session.hello, "own") is None
        self.query_one(Legend).are_rejected_known = is_told
        unreported = numbers.unreported
        self.query_one(Legend).no_origins = f"origins {unreported}" if unreported else ""
        doing, state = None, "ready"
        if session.running is not None:
            state = doing = "stopping…" if session.is_stopping else progress(session.running)
        elif session.info is None:
            state = with_keys("read-only: {chat.load_again} loads the models")
        elif session.is_engine_gone:
            state = with_keys("engine stopped: {chat.load_again}")
        subject = wording.pair_in_short(session.info, self.pair.name)
        if session.role:
            subject += f" · role {session.role.name}"
        if not self._shows_panel:
            state += f"   ctx {numbers.room}"
        if session.recorder.is_behind:
            state = f"not saved   {state}"
        self.query_one(TitleBar).show(subject=subject, state=state)
        self.services.away.follow(doing, self.pair.name)

    def action_toggle_panel(self) -> None:
        if self._is_covered:
            self._uncovered()
            return
        self.toggle_class("-panel-open" if self.has_class("-folded") else "-panel-hidden")
        self.show_numbers()
        self.refresh_bindings()

    @property
    def _is_covered(self) -> bool:
        """Whether the panel lies over the transcript."""
        return self.has_class("-folded") and self.has_class("-panel-open")

    @property
    def _shows_panel(self) -> bool:
        is_away = self.has_class("-folded") or self.has_class("-panel-hidden")
        return self._is_covered or not is_away

    def _uncovered(self) -> Transcript:
        """The transcript, for a command that moves in it: a panel that lies over it is closed."""
        if self._is_covered:
            self.remove_class("-panel-open")
            if self.focused is not self.prompt:
                self.prompt.take_focus()
            self.show_numbers()
            self.refresh_bindings()
        return self.transcript

    # Controls

    @property
    def controls(self) -> Controls:
        return self.session.controls

    @on(SpeculationPanel.Turned)
    def _turned(self, event: SpeculationPanel.Turned) -> None:
        self._turn(event.turned, event.value)

    def action_control(self, name: str, value: Any) -> None:
        self._turn(control_named(name), value)

    def _turn(self, control: Control, value: Any) -> None:
        session, wanted = self.session, turned(self.controls, control, value)
        session.change_controls(wanted)
        if getattr(self.controls, control.name) != getattr(wanted, control.name):
            return  # The session has said why not.
        numbers = numbers_of(session)
        if control is SHAPE and value != "chain" and (why := chains_only(session.info)):
            self.say(why)
        elif control.name in numbers.without_effect:
            self.say(without_effect(control, only_ngrams=numbers.only_ngrams))
        elif not self._has_in_sight(control):
            is_live = session.running is not None and not_yet(session.hello) is None
            since = "round" if is_live and control in CONTROLS else "reply"
            self.say(in_force(control, self.controls, since))

    def _has_in_sight(self, control: Control) -> bool:
        """Whether the panel or the status line shows what a control is."""
        is_in_line = control in (ENABLED, N_DRAFT_MAX) and self.query_one(StatusLine).display
        return is_in_line or self.query_one(SpeculationPanel).has_in_sight(control)

    def action_draft_length(self, step: int) -> None:
        self.session.change_draft_length(step)

    def action_auto_length(self) -> None:
        self.session.switch_auto()

    def action_toggle_ngram(self) -> None:
        self._turn(NGRAM, not self.controls.ngram)

    def action_toggle_speculation(self) -> None:
        self._turn(ENABLED, not self.controls.enabled)
