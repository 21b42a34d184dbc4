"""What the screens of the app share of the Hub: its client, downloads, the catalogue, models here.

huggingface_hub is imported with the first question, so that the menu is painted before that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat.hub import catalogue

if TYPE_CHECKING:
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.client import Hub
    from eaglechat.hub.downloads.install import Facts, Plan
    from eaglechat.hub.downloads.queue import Downloads, Install
    from eaglechat.hub.fit import Machine
    from eaglechat.hub.local.model import LocalModel
    from eaglechat.hub.local.pairs import CataloguePair, InspectedPair
    from eaglechat.settings.config_file import Problem


class HubDesk:
    """Methods may wait for the disk or the network: call them from a worker thread.

    Only `downloads` and `snapshots` return at once.
    """

    def __init__(self, connect: Callable[[], Hub] | None = None) -> None:
        self._connect = connect
        self._lock = threading.RLock()
        self.downloads: Downloads | None = None
        """None until the first download of this session."""

    @cached_property
    def hub(self) -> Hub:
        from eaglechat.hub.downloads.client import Hub

        return self._connect() if self._connect else Hub()

    @property
    def endpoint(self) -> str:
        """The Hub's address, where a licence is accepted."""
        return self.hub.endpoint

    def catalogue(self) -> tuple[list[CataloguePair], list[Problem]]:
        """The catalogue's pairs with what of each is on this machine, and its invalid entries."""
        from eaglechat.hub.local import installed, library

        entries, problems = catalogue.load()
        return installed.statuses(entries, library.files_here()), problems

    def facts(self, plan: Plan, n_ctx: int) -> Facts | None:
        """What the headers on the Hub say of a pair; None if they cannot be read. Raises
        HubError."""
        from eaglechat.hub.downloads import install

        return install.facts_of(self.hub, plan, n_ctx)

    def plan(self, entry: CatalogueEntry, machine: Machine, n_ctx: int) -> Plan:
        """The files and sizes of a pair that can be installed; of a target without a file, in the
        quantisation that suits the machine.

        Raises HubError, InvalidReferenceError, GGUFError.
        """
        from eaglechat.hub.downloads import install

        plan = install.plan(self.hub, entry, machine, n_ctx)
        install.check_draft(self.hub, plan)
        return plan

    def free_bytes(self) -> int:
        from eaglechat.hub.local import cache

        return cache.free_bytes(self.hub.cache_dir)

    def start(self, plan: Plan) -> None:
        """Install a pair in the background; a new pair is added to the user's catalogue.

        Raises HubError, OSError.
        """
        from eaglechat.hub.downloads import install

        install.check_access(self.hub, plan)
        catalogue.remember(plan.entry)
        self.queue().install(plan)

    def queue(self) -> Downloads:
        from eaglechat.hub.downloads.queue import Downloads

        with self._lock:
            if self.downloads is None:
                self.downloads = Downloads(self.hub)
            return self.downloads

    def snapshots(self) -> list[Install]:
        return self.downloads.snapshots() if self.downloads else []

    def models(self, folders: Sequence[str | Path]) -> list[LocalModel]:
        from eaglechat.hub.local import library

        return library.scan(folders)

    def targets(self, folders: Sequence[str | Path]) -> list[tuple[LocalModel, InspectedPair]]:
        """The targets on this machine, each with a draft that fits it, such as the built-in one."""
        from eaglechat.hub.local import library

        return library.targets([*self.models(folders), library.built_in_draft()])

    def close(self) -> None:
        """Stop all downloads; what was downloaded stays."""
        if self.downloads is not None:
            self.downloads.close()
