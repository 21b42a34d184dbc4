"""A desk without a Hub and a disk: it answers what a test put on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eaglechat.gguf.memory import MemoryNeed
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.desk import HubDesk
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.downloads.download import FileSnapshot, FileState
from eaglechat.hub.downloads.install import Facts, Plan
from eaglechat.hub.downloads.queue import Install, Stage
from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.fit import Machine
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import CataloguePair, Pair
from eaglechat.hub.references import ModelSource
from eaglechat.settings.config_file import Problem

MB = 1_000_000


def entry(
    name: str, megabytes: int | None = None, *, converts: bool = False, **more: str
) -> CatalogueEntry:
    """A pair of this size, or of unknown size."""
    size, nothing = (None, None) if megabytes is None else (megabytes * MB, 0)
    target = ModelSource(repo=f"org/{name}-GGUF", quantization="Q4_K_M", size=size)
    draft = (
        ModelSource(checkpoint=f"lab/{name}_eagle3", size=nothing)
        if converts
        else ModelSource(repo=f"lab/{name}-eagle3-GGUF", quantization="Q8_0", size=nothing)
    )
    return CatalogueEntry(
        name=name, target=target, draft=draft, **{"licence": "apache-2.0", **more}
    )


class ScriptedDesk(HubDesk):
    """`plans` are plans or errors by the pair's name."""

    endpoint = "https://hub.test"

    def __init__(self) -> None:
        self.pairs: list[CataloguePair] = []
        self.plans: dict[str, Plan | HubError] = {}
        self.headers = Facts(MemoryNeed(6000 * MB, 0, 0, 0, 0), ())
        """What those of each pair say."""
        self.moving: list[Install] = []
        self.started: list[str] = []
        self.on_disk: list[LocalModel] = []
        self.downloads = None

    @property
    def hub(self) -> Hub:
        raise OfflineError("no Hub here")

    def offer(
        self,
        entry: CatalogueEntry,
        pair: Pair | None = None,
        *,
        bytes_here: int = 0,
    ) -> None:
        """A pair of the catalogue: installed if it has a `pair`, else partly here or available."""
        state = "installed" if pair is not None else "partly" if bytes_here else "available"
        files = (pair.target, pair.draft) if pair is not None else (None, None)
        self.pairs.append(
            CataloguePair(
                entry.name, state, pair, bytes_here, entry=entry, target=files[0], draft=files[1]
            )
        )

    def install(self, name: str, pair: Pair) -> None:
        """What is on its way has arrived."""
        self.pairs = [
            replace(one, state="installed", pair=pair, bytes_here=0) if one.name == name else one
            for one in self.pairs
        ]

    def catalogue(self) -> tuple[list[CataloguePair], list[Problem]]:
        return list(self.pairs), []

    def plan(self, entry: CatalogueEntry, machine: Machine, n_ctx: int) -> Plan:
        given = self.plans.get(entry.name, OfflineError("no Hub here"))
        if isinstance(given, HubError):
            raise given
        return given

    def facts(self, plan: Plan, n_ctx: int) -> Facts:
        return self.headers

    def free_bytes(self) -> int:
        return 500_000 * MB

    def start(self, plan: Plan) -> None:
        self.started.append(plan.entry.name)

    def snapshots(self) -> list[Install]:
        return self.moving

    def models(self, folders: Sequence[str | Path]) -> list[LocalModel]:
        return self.on_disk

    def close(self) -> None:
        self.moving = []


class Halting:
    """Stands for `Downloads`: records what it was asked, and pauses and resumes the rows."""

    def __init__(self, desk: ScriptedDesk) -> None:
        self.asked: list[tuple[str, str]] = []
        self._desk = desk

    def pause(self, name: str) -> None:
        self._ask("pause", name, "paused")

    def resume(self, name: str) -> None:
        self._ask("resume", name, "downloading")

    def cancel(self, name: str) -> None:
        self.asked.append(("cancel", name))

    def _ask(self, action: str, name: str, stage: Stage) -> None:
        self.asked.append((action, name))
        self._desk.moving = [
            replace(install, stage=stage) if install.name == name else install
            for install in self._desk.moving
        ]


def on_its_way(pair: CatalogueEntry) -> Install:
    """A download in mid-air, of fixed numbers."""

    def file(name: str, megabytes: float, of: float, state: FileState) -> FileSnapshot:
        speed = 12.5 * MB if state == "downloading" else None
        done = int(megabytes * MB)
        return FileSnapshot(
            remote=RemoteFile(pair.target.repo, name, "0" * 40, int(of * MB), None),
            state=state,
            bytes_done=done,
            speed=speed,
            note="",
            path=None,
        )

    files = (
        file("Qwen3-4B-Q4_K_M.gguf", 1124.0, 2497, "downloading"),
        file("config.json", 0.306, 0.306, "done"),
        file("model.safetensors", 301.5, 437, "downloading"),
    )
    return Install(pair.name, files)
