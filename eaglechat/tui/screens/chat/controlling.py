"""The chat screen's controls of speculation and sampling, and the bench that measures them."""

from __future__ import annotations

from typing import Any

from textual import on

from eaglechat.chat.capability_text import no_bench
from eaglechat.chat.controls import (
    ENABLED,
    N_DRAFT_MAX,
    NGRAM,
    SHAPE,
    Control,
    Controls,
    control_named,
    turned,
)
from eaglechat.chat.refusals import stays_with_chains
from eaglechat.tui.navigation import OpenBench
from eaglechat.tui.screens.chat.base import ChatBase
from eaglechat.tui.texts import wording
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.wire import protocol


class Controlling(ChatBase):
    """Turns controls, by key, palette and panel."""

    @property
    def controls(self) -> Controls:
        return self.session.controls

    @on(SpeculationPanel.Turned)
    def _turned(self, event: SpeculationPanel.Turned) -> None:
        self._turn(event.turned, event.value)

    def action_control(self, name: str, value: Any) -> None:
        self._turn(control_named(name), value)

    def _turn(self, control: Control, value: Any) -> None:
        self.session.change_controls(turned(self.controls, control, value))
        info = self.session.info
        if control is SHAPE and value != "chain" and info and info.chains_only:
            self.notify(stays_with_chains(info.chains_only), markup=False)

    def action_draft_length(self, step: int) -> None:
        self.session.change_draft_length(step)

    def action_auto_length(self) -> None:
        self.session.switch_auto()

    def action_own_sampling(self) -> None:
        self.session.take_own_sampling()

    def action_toggle_ngram(self) -> None:
        self.session.change_controls(turned(self.controls, NGRAM, not self.controls.ngram))
        # A terminal that is too small for the panel has no other place that says so.
        self.notify(f"n-grams are {'on' if self.controls.ngram else 'off'}.")

    def action_next_shape(self) -> None:
        words = SHAPE.words
        shape = words[(words.index(self.controls.shape) + 1) % len(words)]
        self._turn(SHAPE, shape)
        self.notify(f"Drafts are {wording.DRAFT_SHAPES[shape]}.")

    def action_toggle_speculation(self) -> None:
        self.session.change_controls(turned(self.controls, ENABLED, not self.controls.enabled))

    def _keep_length(self, n_draft_max: int | protocol.Auto) -> None:
        self.session.change_controls(turned(self.controls, N_DRAFT_MAX, n_draft_max))

    def action_bench(self) -> None:
        session = self.session
        reason = wording.cannot_bench(
            session.info,
            ngram=self.controls.ngram,
            is_writing=session.running is not None,
            is_engine_gone=session.is_engine_gone,
        )
        reason = reason or no_bench(session.hello)
        if reason is not None or session.info is None:
            self.notify(reason or "", markup=False)
        else:
            self.go(OpenBench(session.pair, session.info, self.controls, self._keep_length))
