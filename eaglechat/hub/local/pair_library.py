"""The pairs that a user has loaded, and what was chosen and measured for each."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from eaglechat.hub import catalogue
from eaglechat.hub.local import pairs
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.local.speeds import Speeds
from eaglechat.state_file import StateFile
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import Auto, DraftLength

MOST_RECENT = 12


class NotInstalledError(EngineError):
    """A pair of the catalogue is not, or not completely, on this machine."""

    def __init__(self, name: str, state: str) -> None:
        how = "only partly on this machine" if state == "partly" else "not on this machine"
        super().__init__(
            f"{name} is {how}: `eaglechat pull {name}` or the menu of `eaglechat` downloads it"
        )


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """An element of recent-pairs.json, which has a name, or of draft-lengths.json: the draft length
    that the user chose for two files."""

    target: str
    draft: str | None = None
    name: str = ""
    n_draft_max: DraftLength | Auto | None = None

    @property
    def pair(self) -> Pair:
        draft = Path(self.draft) if self.draft else None
        return Pair(self.name, Path(self.target), draft, "recent")


def _by_files(lengths: list[_Kept]) -> dict[tuple[str, str | None], int | Auto | None]:
    return {kept.pair.to_load: kept.n_draft_max for kept in lengths}


class PairLibrary:
    """The built-in pair, the recent pairs, the draft length the user chose for each pair, and what
    was measured of each (`speeds`).

    They are files in `state_dir`; `problem` says in one sentence why recent pairs or lengths could
    not be read or written, if so.
    """

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir
        self._recent_file = self._file("recent-pairs.json", "The list of recent pairs")
        self._lengths_file = self._file("draft-lengths.json", "The draft lengths of the pairs")
        self.problem: str | None = None
        self.speeds = Speeds(state_dir)
        self._lengths = _by_files(self._lengths_file.read([]))
        # Last: if both cannot be read, the problem of this one is told, which is written sooner.
        self._recent = self._recent_file.read([])

    def read_measured(self) -> None:
        """Read the lengths and the speeds again: another eaglechat may have changed them."""
        # With the lock: a change from another thread is not overtaken by what was read before.
        with self._lengths_file.changing([]) as lengths:
            self._lengths = _by_files(lengths)
        self.speeds.read()

    def pairs(self) -> list[Pair]:
        """The built-in pair first, then the recent ones, latest first."""
        return [pairs.builtin_pair(), *(kept.pair for kept in self._recent)]

    def find(self, name: str) -> Pair | None:
        """The pair with this name: built-in, installed from the catalogue, or recent.

        Raises NotInstalledError for a pair of the catalogue that is not on this machine.
        """
        if name == pairs.BUILTIN_NAME:
            return pairs.builtin_pair()
        entry = next((entry for entry in catalogue.load()[0] if entry.name == name), None)
        if entry is None:
            return next((kept.pair for kept in self._recent if kept.name == name), None)
        # Imports huggingface_hub, which the first paint of the menu does not wait for.
        from eaglechat.hub.local import installed  # noqa: PLC0415

        offered = installed.status(entry)
        if offered.pair is None:
            raise NotInstalledError(entry.name, offered.state)
        return offered.pair

    def resolve(self, name: str, target: Path, draft: Path | None) -> Pair:
        """A saved chat's pair: the installed pair with this name, else the pair of its files."""
        with suppress(NotInstalledError):
            found = self.find(name)
            if found is not None and found.source != "recent":
                return found
        return pairs.pair_of_files(target, draft, name)

    def remember(self, pair: Pair) -> None:
        """Make a pair that was loaded the most recent one."""
        if pair.source not in ("built-in", "server"):
            self._change_recent(pair, [_Kept(*pair.to_load, name=pair.name)])

    def forget(self, pair: Pair) -> None:
        """Remove a pair from the recent ones; its files stay."""
        self._change_recent(pair, [])

    def _change_recent(self, pair: Pair, instead: list[_Kept]) -> None:
        """Put what is given first instead of a pair, where it was. Others may be there meanwhile,
        from another eaglechat."""
        with self._recent_file.changing([]) as recent:
            self.problem = None
            others = [kept for kept in recent if kept.pair.to_load != pair.to_load]
            recent[:] = [*instead, *others][:MOST_RECENT]
            self._recent = recent

    def as_kept(self, pair: Pair) -> Pair:
        """The pair with the draft length that the user chose for its files, if any."""
        kept = self.kept_length(pair)
        return pair if kept is None else replace(pair, n_draft_max=kept)

    def kept_length(self, pair: Pair) -> int | Auto | None:
        """The draft length that the user chose for the pair's files, or None."""
        return self._lengths.get(pair.to_load)

    def keep_length(self, pair: Pair, n_draft_max: int | Auto | None) -> None:
        """Save a draft length for the pair's files; None deletes it."""
        with self._lengths_file.changing([]) as lengths:
            self.problem = None
            lengths[:] = [kept for kept in lengths if kept.pair.to_load != pair.to_load]
            if n_draft_max is not None:
                lengths.append(_Kept(*pair.to_load, n_draft_max=n_draft_max))
            self._lengths = _by_files(lengths)

    def _file(self, name: str, holds: str) -> StateFile[list[_Kept]]:
        def complain(problem: str) -> None:
            self.problem = f"{holds} {problem}"

        return StateFile(name, list[_Kept], self._folder, complain)
