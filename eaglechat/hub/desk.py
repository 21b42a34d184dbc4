"""Where an interface asks everything of the Hub and of what is on the disk.

Nothing of huggingface_hub is imported before the first question: the menu is painted before that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from eaglechat import paths
from eaglechat.hub.catalogue.facts import FactBook, Facts

if TYPE_CHECKING:
    from eaglechat.hub.catalogue.entries import CatalogueProblem, Entry
    from eaglechat.hub.catalogue.references import ModelFiles
    from eaglechat.hub.downloads.client import Hub, RemoteRepo
    from eaglechat.hub.downloads.drafts import Candidate, Target
    from eaglechat.hub.downloads.install import Plan
    from eaglechat.hub.downloads.installs import Installs, InstallSnapshot
    from eaglechat.hub.local.installed import Status
    from eaglechat.hub.local.library import Model
    from eaglechat.hub.local.removal import Removal


class HubDesk:
    """The methods may wait for the disk or the network: call them from a worker.

    `known_facts` and `installs` answer at once.
    """

    def __init__(self, connect: Callable[[], Hub] | None = None) -> None:
        self._connect = connect
        self._lock = threading.RLock()
        self._facts = FactBook(paths.state_dir() / "hub-facts.json")
        self._hub: Hub | None = None
        self._installs: Installs | None = None

    @property
    def hub(self) -> Hub:
        from eaglechat.hub.downloads.client import Hub

        with self._lock:
            if self._hub is None:
                self._hub = self._connect() if self._connect else Hub()
            return self._hub

    @property
    def endpoint(self) -> str:
        """The Hub's address, where a licence is accepted."""
        return self.hub.endpoint

    def catalogue(self) -> tuple[list[tuple[Entry, Status]], list[CatalogueProblem]]:
        """The pairs of the catalogue with what is here of them, and what was left out of it."""
        from eaglechat.hub.catalogue import entries as catalogue
        from eaglechat.hub.local import installed

        entries, problems = catalogue.load()
        return [(entry, installed.status(entry)) for entry in entries], problems

    def unfinished(self) -> list[tuple[Entry, Status]]:
        """Pairs an earlier session left half-way; what is on its way now is not among them."""
        from eaglechat.hub.local import journal
        from eaglechat.hub.local.installed import State

        moving = {install.entry.name for install in self.snapshots()}
        wanted = set(journal.begun()) - moving
        return [
            (entry, status)
            for entry, status in self.catalogue()[0]
            if entry.name in wanted and status.state is not State.INSTALLED
        ]

    def known_facts(self, entry: Entry, n_ctx: int, *, however_old: bool = False) -> Facts | None:
        return self._facts.find(entry, n_ctx, however_old=however_old)

    def ask_facts(self, entry: Entry, n_ctx: int) -> Facts:
        """Ask the Hub about a pair. Raises HubError, InvalidReferenceError."""
        from eaglechat.gguf.header import GGUFError
        from eaglechat.hub.downloads import install
        from eaglechat.hub.errors import GatedError

        plan = install.plan(self.hub, entry)
        try:
            memory = install.memory_of(self.hub, plan, n_ctx)
        except (GGUFError, GatedError):
            # The header of a gated file is behind the gate; sizes and licence are not.
            memory = None
        facts = Facts(
            bytes_total=plan.bytes_total,
            gated=plan.gated,
            licences=plan.licences,
            memory=memory,
        )
        if memory is not None:
            self._facts.keep(entry, n_ctx, facts)
        return facts

    def plan(self, entry: Entry) -> Plan:
        """Exact files and sizes of a pair that can be had.

        Raises HubError, InvalidReferenceError, GGUFError.
        """
        from eaglechat.hub.downloads import install

        plan = install.plan(self.hub, entry)
        install.check_draft(self.hub, plan)
        return plan

    def find_drafts(self, repo: RemoteRepo, model: ModelFiles) -> tuple[Target, list[Candidate]]:
        """A target's header, and drafts for it. Raises HubError, GGUFError."""
        from eaglechat.hub.downloads import drafts

        target = drafts.describe_target(self.hub, repo, model)
        entries = [entry for entry, _ in self.catalogue()[0]]
        return target, drafts.find_drafts(self.hub, target, entries)

    def pair_up(self, target: Target, model: ModelFiles, candidate: Candidate) -> Entry:
        """A pair to install: the catalogue's if it is that one, else under a name not taken."""
        from eaglechat.hub.downloads import drafts

        found = drafts.as_entry(target, model, candidate)
        taken = {entry.name: entry for entry, _ in self.catalogue()[0]}
        for entry in taken.values():
            if (entry.target, entry.draft) == (found.target, found.draft):
                return entry
        names = (found.name, *(f"{found.name}-{number}" for number in range(2, len(taken) + 3)))
        return msgspec.structs.replace(found, name=next(n for n in names if n not in taken))

    def free_bytes(self) -> int:
        """Free space where downloads go."""
        from eaglechat.hub.local import cache, library

        return cache.free_bytes(library.cache_dir())

    def start(self, plan: Plan) -> None:
        """Download and convert a pair in the background; a found one joins the user's catalogue.

        Raises HubError, OSError.
        """
        from eaglechat.hub.catalogue import entries as catalogue
        from eaglechat.hub.downloads import install
        from eaglechat.hub.downloads.installs import Installs
        from eaglechat.hub.downloads.queue import Queue

        install.check_access(self.hub, plan)
        with self._lock:
            if self._installs is None:
                self._installs = Installs(Queue(self.hub))
        self._installs.start(plan)
        if all(entry.name != plan.entry.name for entry, _ in self.catalogue()[0]):
            catalogue.remember(plan.entry)

    @property
    def installs(self) -> Installs | None:
        """What is on its way, once something is."""
        return self._installs

    def snapshots(self) -> list[InstallSnapshot]:
        return self._installs.snapshots() if self._installs else []

    def models(self, folders: Sequence[str | Path]) -> list[Model]:
        """Every model on this machine."""
        from eaglechat.hub.local import library

        return library.scan(folders)

    def plan_removal(self, model: Model) -> Removal:
        from eaglechat.hub.local import removal

        return removal.plan([model])

    def remove(self, planned: Removal) -> None:
        """Raises OSError."""
        from eaglechat.hub.local import removal

        removal.execute(planned)

    def close(self) -> None:
        """Stop all downloads; what has arrived stays."""
        if self._installs is not None:
            self._installs.close()
