"""The pairs that a user has loaded, and what was chosen and measured for each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from eaglechat.hub import catalogue
from eaglechat.hub.local import pairs
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.speeds import Speeds
from eaglechat.paths import changing, write_atomically
from eaglechat.wire.protocol import Auto, DraftLength

MOST_RECENT = 12


class NotInstalledError(Exception):
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


class PairLibrary:
    """The built-in pair, the recent pairs, the draft length the user chose for each pair, and what
    was measured of each (`speeds`).

    They are files in `state_dir`; `problem` says in one sentence why recent pairs or lengths could
    not be read or written, if so.
    """

    def __init__(self, state_dir: Path) -> None:
        self._recent_file = state_dir / "recent-pairs.json"
        self._lengths_file = state_dir / "draft-lengths.json"
        self.problem: str | None = None
        self.speeds = Speeds(state_dir)
        self._recent = self._read_recent()

    def pairs(self) -> list[Pair]:
        """The built-in pair first, then the recent ones, latest first."""
        return [pairs.builtin_pair(), *self._recent]

    def find(self, name: str) -> Pair | None:
        """The pair with this name: built-in, installed from the catalogue, or recent.

        Raises NotInstalledError for a pair of the catalogue that is not on this machine.
        """
        if name == pairs.BUILTIN_NAME:
            return pairs.builtin_pair()
        entry = next((entry for entry in catalogue.load()[0] if entry.name == name), None)
        if entry is None:
            return next((pair for pair in self._recent if pair.name == name), None)
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
            self._change_recent(pair, [replace(pair, source="recent")])

    def forget(self, pair: Pair) -> None:
        """Remove a pair from the recent ones; its files stay."""
        self._change_recent(pair, [])

    def _read_recent(self) -> list[Pair]:
        why = "The list of recent pairs cannot be read"
        return [
            Pair(kept.name, Path(kept.target), Path(kept.draft) if kept.draft else None, "recent")
            for kept in self._load(self._recent_file, why)
        ]

    def _change_recent(self, pair: Pair, instead: list[Pair]) -> None:
        """Put what is given first instead of a pair, where it was. Others may be there meanwhile,
        from another eaglechat."""
        with changing(self._recent_file):
            others = [known for known in self._read_recent() if _files(known) != _files(pair)]
            self._recent = [*instead, *others][:MOST_RECENT]
            recents = [_Kept(*_files(known), name=known.name) for known in self._recent]
            self._save(self._recent_file, recents, "The list of recent pairs cannot be written")

    def as_kept(self, pair: Pair) -> Pair:
        """The pair with the draft length that the user chose for its files, if any."""
        kept = self.kept_length(pair)
        return pair if kept is None else replace(pair, n_draft_max=kept)

    def kept_length(self, pair: Pair) -> int | Auto | None:
        """The draft length that the user chose for the pair's files, or None."""
        lengths = {(kept.target, kept.draft): kept.n_draft_max for kept in self._kept_lengths()}
        return lengths.get(_files(pair))

    def keep_length(self, pair: Pair, n_draft_max: int | Auto | None) -> None:
        """Save a draft length for the pair's files; None deletes it."""
        files = _files(pair)
        with changing(self._lengths_file):
            lengths = [kept for kept in self._kept_lengths() if (kept.target, kept.draft) != files]
            if n_draft_max is not None:
                lengths.append(_Kept(*files, n_draft_max=n_draft_max))
            self._save(self._lengths_file, lengths, "The draft length of the pair cannot be saved")

    def _kept_lengths(self) -> list[_Kept]:
        return self._load(self._lengths_file, "The pairs' draft lengths cannot be read")

    def _load(self, file: Path, problem: str) -> list[_Kept]:
        try:
            return msgspec.json.decode(file.read_bytes(), type=list[_Kept])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            self.problem = f"{problem} ({file}: {error})."
            return []

    def _save(self, file: Path, elements: Sequence[_Kept], problem: str) -> None:
        self.problem = None
        try:
            write_atomically(file, msgspec.json.format(msgspec.json.encode(elements)))
        except OSError as error:
            self.problem = f"{problem} ({error})."


def _files(pair: Pair) -> tuple[str, str | None]:
    """The paths of a pair's files, by which it is known again."""
    return str(pair.target), str(pair.draft) if pair.draft else None
