"""The one object through which the app uses the Hub and the models on this machine.

huggingface_hub is imported with the first question, so that the menu is painted before that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat.hub import catalogue
from eaglechat.hub.facts import FactBook, Facts
from eaglechat.hub.fit import Machine, Quantisation

if TYPE_CHECKING:
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.client import Hub, RemoteRepo
    from eaglechat.hub.downloads.find_drafts import Found, Target, Way
    from eaglechat.hub.downloads.install import Plan
    from eaglechat.hub.downloads.queue import Downloads, Install
    from eaglechat.hub.local.model import LocalModel
    from eaglechat.hub.local.pairs import CataloguePair, InspectedPair
    from eaglechat.hub.references import ModelFiles
    from eaglechat.settings import Problem


class HubDesk:
    """Methods may wait for the disk or the network: call them from a worker thread.

    Only `known_facts`, `downloads` and `snapshots` return at once.
    """

    def __init__(self, connect: Callable[[], Hub] | None = None) -> None:
        self._connect = connect
        self.machine: Callable[[], Machine] = lambda: None
        """How much memory there is, by which the quantisation of a target is chosen."""
        self._lock = threading.RLock()
        self._facts = FactBook()
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

    def unfinished(self) -> list[CataloguePair]:
        """Pairs whose installation was begun in an earlier session and is not under way now."""
        from eaglechat.hub.local.installed import begun_pairs

        wanted = set(begun_pairs()) - {install.name for install in self.snapshots()}
        return [
            offer
            for offer in (self.catalogue()[0] if wanted else ())
            if offer.name in wanted and offer.state != "installed"
        ]

    def known_facts(
        self, entry: CatalogueEntry, n_ctx: int, *, however_old: bool = False
    ) -> Facts | None:
        return self._facts.find(entry, n_ctx, however_old=however_old)

    def ask_facts(self, entry: CatalogueEntry, n_ctx: int, plan: Plan | None = None) -> Facts:
        """Ask the Hub about a pair, and save the answer. Raises HubError, InvalidReferenceError."""
        from eaglechat.hub.downloads import install

        plan = plan or install.plan(self.hub, entry, machine=self.machine(), n_ctx=n_ctx)
        facts = install.facts_of(self.hub, plan, n_ctx)
        if facts.memory is not None:
            self._facts.keep(entry, n_ctx, facts)
        return facts

    def plan(self, entry: CatalogueEntry, n_ctx: int = 0) -> Plan:
        """The files and sizes of a pair that can be installed.

        Raises HubError, InvalidReferenceError, GGUFError.
        """
        from eaglechat.hub.downloads import install

        plan = install.plan(self.hub, entry, machine=self.machine(), n_ctx=n_ctx)
        install.check_draft(self.hub, plan)
        return plan

    def search(self, words: str) -> list[RemoteRepo]:
        """Targets and drafts. Raises HubError, InvalidReferenceError."""
        from eaglechat.hub.downloads import targets

        return targets.search(self.hub, words)

    def targets_of(self, draft: RemoteRepo) -> tuple[list[str], list[RemoteRepo]] | None:
        """For what a repository's draft was made; None if it has targets. Raises HubError."""
        from eaglechat.hub.downloads import targets

        if not targets.is_draft(draft):
            return None
        return targets.of_draft(self.hub, draft, self.catalogue()[0])

    def weigh(
        self, repo: RemoteRepo, models: Sequence[ModelFiles], n_ctx: int
    ) -> list[Quantisation]:
        """What each of a repository's targets needs. Raises HubError, GGUFError."""
        from eaglechat.hub.downloads import quantisations

        return quantisations.weigh(self.hub, repo, models, n_ctx)

    def find_drafts(
        self,
        of: Path | CatalogueEntry | tuple[RemoteRepo, ModelFiles],
        folders: Sequence[str | Path],
        wanted: str = "",
    ) -> Iterator[Found]:
        """Every way to make a target fast, again after each answer of the Hub: a file here, that of
        a pair, or a model on the Hub. `wanted` is a draft's repository to look at first.

        Raises HubError, GGUFError, InvalidReferenceError.
        """
        from eaglechat.hub.downloads import find_drafts, targets
        from eaglechat.hub.local.library import built_in_drafts

        catalogue, models = self.catalogue()[0], [*self.models(folders), *built_in_drafts()]
        if isinstance(of, Path):
            target = targets.of_file(of, catalogue, models)
        elif isinstance(of, tuple):
            target = targets.of_repo(self.hub, *of)
        else:
            offer = next(offer for offer in catalogue if offer.name == of.name)
            target = targets.of_entry(self.hub, offer, catalogue, models)
        return find_drafts.find_drafts(self.hub, target, catalogue, models, wanted)

    def pair_up(self, target: Target, way: Way) -> CatalogueEntry:
        """The pair to install."""
        from eaglechat.hub.downloads import find_drafts

        return find_drafts.pair_up(target, way, self.catalogue()[0])

    def free_bytes(self) -> int:
        """Free disk space for downloads."""
        from eaglechat.hub.local import cache

        return cache.free_bytes(self.hub.cache_dir)

    def start(self, plan: Plan) -> None:
        """Install a pair in the background; a new pair is added to the user's catalogue.

        Raises HubError, OSError.
        """
        from eaglechat.hub.downloads import install

        install.check_access(self.hub, plan)
        catalogue.remember(plan.entry)
        self._queue().install(plan)

    def _queue(self) -> Downloads:
        from eaglechat.hub.downloads.queue import Downloads

        with self._lock:
            if self.downloads is None:
                self.downloads = Downloads(self.hub)
            return self.downloads

    def newer(self, models: Sequence[LocalModel]) -> set[str]:
        """The names of the models of which the Hub has another version. Raises OfflineError."""
        from eaglechat.hub.downloads import newer

        return newer.newer(self.hub, models)

    def get_newer(self, model: LocalModel) -> None:
        """Download the Hub's version of a model in the background; the one here stays. Raises
        HubError."""
        from eaglechat.hub.downloads import newer

        self._queue().fetch(model.name, newer.files(self.hub, model))

    def snapshots(self) -> list[Install]:
        return self.downloads.snapshots() if self.downloads else []

    def models(self, folders: Sequence[str | Path]) -> list[LocalModel]:
        """Every model on this machine."""
        from eaglechat.hub.local import library

        return library.scan(folders)

    def targets(self, folders: Sequence[str | Path]) -> list[tuple[LocalModel, InspectedPair]]:
        """The targets on this machine, each with a draft that fits it, such as the built-in one."""
        from eaglechat.hub.local import library

        return library.targets([*self.models(folders), *library.built_in_drafts()])

    def close(self) -> None:
        """Stop all downloads; what was downloaded stays."""
        if self.downloads is not None:
            self.downloads.close()
