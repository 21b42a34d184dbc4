"""Watches downloads and conversions, and announces each pair that is installed or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.dom import DOMNode
from textual.signal import Signal

from eaglechat.hub.desk import HubDesk

if TYPE_CHECKING:
    from eaglechat.hub.downloads.queue import InstallSnapshot


class InstallWatch:
    """Subscribers of `changed` are told when models were installed or deleted."""

    def __init__(
        self, owner: DOMNode, desk: HubDesk, announce: Callable[[InstallSnapshot], None]
    ) -> None:
        """`announce` gets each installation that ended or failed."""
        self.changed: Signal[None] = Signal(owner, "installs")
        self._desk = desk
        self._announce = announce
        self._stages: dict[str, str] = {}

    def look(self) -> None:
        """Announce what has ended or failed since the last look."""
        for install in self._desk.snapshots():
            name, stage = install.name, install.stage.value
            if self._stages.get(name) == stage:
                continue
            self._stages[name] = stage
            if install.pair is not None:
                self._announce(install)
                self.changed.publish(None)
            elif install.error is not None:
                self._announce(install)
