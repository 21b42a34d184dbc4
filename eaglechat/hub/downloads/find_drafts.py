"""Finds every way to make a target fast: what it has itself, drafts here, drafts on the Hub,
n-grams, and training one. Each draft is judged by its header, not by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from eaglechat.gguf.header import GGUFError, GGUFHeader
from eaglechat.gguf.pairing import kind_of, kinds, why_no_heads, why_unfit
from eaglechat.gguf.preflight import TARGET_ARCHITECTURES
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads.client import Hub, RemoteFile, RemoteRepo
from eaglechat.hub.errors import ConversionError, HubError, OfflineError
from eaglechat.hub.local.library import drafts_for
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import CataloguePair
from eaglechat.hub.references import (
    DRAFT_NAME,
    MTP_NAME,
    NOT_WEIGHTS,
    ModelFiles,
    ModelSource,
    group_models,
)
from eaglechat.wire.drafters import DrafterKind

CHECKPOINT_WEIGHTS = (".safetensors", ".bin")
NOT_REACHED = (
    "The Hub was not reached, so only what is known on this machine is listed: check the network, "
    "HF_ENDPOINT and HF_HUB_OFFLINE."
)
_QUANTIZED = re.compile(
    r"[-_.]?(GGUF|i1|imatrix|(UD-)?(I?Q\d\w*|B?F16|F32|MXFP4\w*))$", re.IGNORECASE
)
_MOST_CANDIDATES = 12
_TRY = "a smaller model of the family: a bench tells whether it pays"
# The Hub searches by name; these are the ways in which publishers name drafts.
_PUBLISHERS_PATTERNS = (
    "{}_eagle3", "{}-eagle3", "EAGLE3-{}", "{}-speculator", "{} eagle3", "{}-EAGLE4", "{}-DFlash",
    "{}-DSpark",
)  # fmt: skip


Where = Literal[
    "built_in", "here", "beside", "catalogue", "base_model", "name", "with_heads", "n_grams",
    "training",
]  # fmt: skip
"""Where a way to be fast comes from, the one to look at first being first: the target's own file,
this machine, the target's repository, the catalogue, a search by base model or by name, a version
of the target with MTP heads, the chat itself, or training."""


@dataclass(frozen=True)
class Way:
    """A way to make a target fast. `fits` is None if it could not be judged; `problem` says why.

    Of a draft, `files` are the shards of one GGUF, or the files of a checkpoint to convert; of a
    target with heads, its own.
    """

    where: Where
    repo: str = ""
    files: tuple[str, ...] = ()
    path: Path | None = None
    """Of a draft on this machine."""
    name: str = ""
    """What that is called: a blob of Ollama is named by its hash."""
    is_checkpoint: bool = False
    size_bytes: int = 0
    licence: str | None = None
    gated: bool = False
    fits: bool | None = None
    problem: str | None = None
    warning: str | None = None
    note: str = ""
    kind: DrafterKind | None = None
    """None if it was not read, or is no draft."""
    reported: str = ""
    """What the catalogue says of its acceptance or speed, and who measured it; empty if nothing."""
    pair: CatalogueEntry | None = None
    """Of a target with heads that the catalogue has."""

    @property
    def needs_download(self) -> bool:
        return bool(self.repo) and self.path is None


@dataclass(frozen=True)
class Target:
    """A target for which drafts are searched; `base_models` are the models it was made from."""

    name: str
    source: ModelSource
    """What a pair with it is installed from."""
    header: GGUFHeader | None
    """None if it is not here, and the Hub was not reached."""
    base_models: tuple[str, ...] = ()
    repo: str = ""
    """On the Hub; empty if that is not known."""
    path: Path | None = None
    """On this machine."""


@dataclass(frozen=True)
class Found:
    """What is known so far of the ways to make a target fast, the best first."""

    target: Target
    ways: tuple[Way, ...]
    asking: str = ""
    """What the Hub is asked for now; empty at the end."""
    trouble: str = ""
    """Why the search on the Hub ended early, if it did."""


class Judged(NamedTuple):
    """Whether a draft fits a target."""

    problem: str | None
    """Why it cannot be used, or the converter would refuse it; None if it fits."""
    kind: DrafterKind | None = None
    """What drafter it is; None for a whole model, and if it is refused as of no known kind."""
    guessed_layers: tuple[int, ...] = ()
    """The target's layers that the conversion will assume, if config.json does not name them."""


def judge(hub: Hub, files: Sequence[RemoteFile], target: GGUFHeader) -> Judged:
    """Judge a draft before its download: a GGUF by its header; a checkpoint, of whose files one is
    config.json, by that alone: the conversion finds tensors that do not fit.

    Raises HubError, GGUFError.
    """
    config = next((file for file in files if file.path == "config.json"), None)
    if config is None:
        header = hub.peek(files[0])
        return Judged(why_unfit(target, header), kind_of(header))
    # They import numpy and gguf.
    from eaglechat.hub.convert.config import OtherKindError, parse_config  # noqa: PLC0415
    from eaglechat.hub.convert.draft import check_config  # noqa: PLC0415
    from eaglechat.hub.convert.target import check_target  # noqa: PLC0415

    content = hub.read_small(config)
    try:
        its = parse_config(content, config.name)
        check_target(target)
        layers = check_config(its, target)
    except OtherKindError as error:
        return Judged(str(error), error.kind)
    except ConversionError as error:
        return Judged(str(error))
    return Judged(None, its.kind, () if its.aux_layer_ids else layers)


def find_drafts(
    hub: Hub,
    target: Target,
    catalogue: Sequence[CataloguePair] = (),
    models: Sequence[LocalModel] = (),
    wanted: str = "",
) -> Iterator[Found]:
    """Every way to make a target fast, again before each question to the Hub; the last is complete.

    First what is known here: its own heads, drafts among `models`, those of the catalogue, n-grams,
    training. On the Hub, drafts are searched in the repository `wanted`, the target's own, those of
    the catalogue, by base model and by name, in this order. A repository that cannot be read
    becomes a way with a `problem`. Raises no HubError: `trouble` says what went wrong.
    """
    search = _Search(hub, target, catalogue, models)
    trouble = "" if target.header is not None else NOT_REACHED
    try:
        for asking in search.questions(wanted) if target.header is not None else ():
            yield search.found(asking)
    except OfflineError:
        trouble = NOT_REACHED
    except HubError as error:
        trouble = str(error)
    yield search.found(trouble=trouble)


@dataclass
class _Search:
    """The ways found so far."""

    hub: Hub
    target: Target
    catalogue: Sequence[CataloguePair]
    models: Sequence[LocalModel]

    def __post_init__(self) -> None:
        target = self.target
        known = [
            one
            for one in self.catalogue
            if one.entry.target == target.source
            or (target.repo and one.entry.target.repo == target.repo)
            or one.entry.base_model in target.base_models
        ]
        self._reported = {one.entry.draft.of_hub: one.entry.acceptance for one in known}
        """By the repository of the draft; of a target's own heads, under no name."""
        self._here = [*_ways_here(target, self.models, known)]
        self._remote: dict[tuple[str, tuple[str, ...]], Way] = {}
        """By repository and files; of a repository that was not asked yet, one without files."""
        drafts = [(one.entry.draft, one.draft) for one in known if one.entry.draft]
        for draft in (draft for draft, here in drafts if here is None):
            self._remote[draft.of_hub, ()] = Way(
                "catalogue",
                draft.of_hub,
                is_checkpoint=bool(draft.checkpoint),
                size_bytes=draft.size or 0,
                problem="not judged yet",
            )
        self._drafts = [draft.of_hub for draft, _ in drafts]
        self._asked = {way.repo for way in self._here if way.is_checkpoint}

    def found(self, asking: str = "", trouble: str = "") -> Found:
        ways = [*self._here, *self._remote.values(), *_with_heads_in(self.catalogue, self.target)]
        for place, way in enumerate(ways):
            if way.where == "built_in" or (way.repo and way.where != "with_heads"):
                ways[place] = replace(way, reported=self._reported.get(way.repo, ""))
        return Found(self.target, tuple(sorted(ways, key=_rank)), asking, trouble)

    def questions(self, wanted: str) -> Iterator[str]:
        """Ask the Hub; before each question, what is asked. Raises HubError."""
        places: list[tuple[str, Where]] = [(wanted, "name"), (self.target.repo, "beside")]
        places += [(draft, "catalogue") for draft in self._drafts]
        for repo, where in places:
            if repo:
                yield from self._ask([repo], where)
        for base in self.target.base_models:
            yield f"Searching the Hub for drafts of {base}…"
            hits = self.hub.search(tags=(f"base_model:{base}",), limit=100)
            yield from self._ask(_named_like_drafts(hits), "base_model")
        name = self.target.repo.rpartition("/")[2] or self.target.name
        while (stem := _QUANTIZED.sub("", name)) != name:
            name = stem
        for pattern in _PUBLISHERS_PATTERNS if name else ():
            words = pattern.format(name)
            yield f"Searching the Hub for “{words}”…"
            hits = self.hub.search(words, limit=20)
            yield from self._ask(_named_like_drafts(hits), "name")

    def _ask(self, repos: Sequence[str], where: Where) -> Iterator[str]:
        """Judge the drafts of repositories, and what of the target's own has heads."""
        for repo in repos:
            if repo in self._asked or len(self._remote) >= _MOST_CANDIDATES:
                continue
            self._asked.add(repo)
            yield f"Reading {repo}…"
            self._remote.pop((repo, ()), None)
            try:
                listing = self.hub.repo(repo)
                if where == "beside":
                    bases = self.target.base_models or listing.base_models
                    self.target = replace(self.target, base_models=bases)
                    for way in _with_heads(self.hub, listing, self.target):
                        self._remote[repo, way.files] = way
            except OfflineError:
                raise
            except (HubError, GGUFError) as error:
                if where != "beside":
                    self._remote[repo, ()] = Way(where, repo, fits=False, problem=str(error))
                continue
            here = {(way.repo, way.files) for way in self._here}
            for way in _candidates(listing, where):
                if (repo, way.files) not in here:
                    self._remote[repo, way.files] = self._judged(way, listing)

    def _judged(self, way: Way, listing: RemoteRepo) -> Way:
        """The way with `fits`, `problem`, `warning`, `note` and `kind` set. Raises OfflineError."""
        target = self.target.header
        assert target is not None
        try:
            files = [listing.file(name) for name in way.files]
            problem, kind, guessed = judge(self.hub, files, target)
        except OfflineError:
            raise
        except (HubError, GGUFError) as error:
            return replace(way, problem=str(error))
        if kind is None and not way.is_checkpoint:
            problem = f"{way.files[0]} is a whole language model, not a draft for it"
        if problem is not None:
            return replace(way, fits=False, problem=problem, kind=kind)
        layers = ", ".join(map(str, guessed))
        return replace(
            way,
            fits=True,
            kind=kind,
            note=f"does not say which layers it reads: {layers} are usual" if layers else "",
            warning=_other_fine_tune(listing, self.target),
        )


def _with_heads(hub: Hub, repo: RemoteRepo, target: Target) -> Iterator[Way]:
    """The version of a target in its repository that has MTP heads, if the target has none. Of the
    models that are named after heads, the header of one is read: one quantised like the target, if
    there is one. Raises HubError, GGUFError."""
    others = (other for other in group_models(repo.paths) if not other.is_draft)
    named = [other for other in others if MTP_NAME.search(other.name)]
    if not named or (target.header is not None and target.header.n_mtp_heads):
        return
    quantization = target.name.rpartition("-")[2]
    other = next((other for other in named if other.name.endswith(quantization)), named[0])
    if why_no_heads(hub.peek_model([repo.file(name) for name in other.files])) is None:
        yield replace(_way("with_heads", repo, other.files), fits=True, kind="mtp")


def _with_heads_in(catalogue: Sequence[CataloguePair], target: Target) -> Iterator[Way]:
    """The catalogue's pairs of the target's model with MTP heads, if the target has none."""
    if target.header is None or target.header.n_mtp_heads:
        return
    for entry in (one.entry for one in catalogue):
        has_heads = entry.drafter == "mtp" and not entry.draft
        if has_heads and entry.target.repo and entry.base_model in target.base_models:
            yield Way(
                "with_heads",
                entry.target.repo,
                size_bytes=entry.size or 0,
                licence=entry.licence or None,
                fits=True,
                kind="mtp",
                reported=entry.acceptance,
                pair=entry,
            )


def _other_fine_tune(draft: RemoteRepo, target: Target) -> str | None:
    """A warning if target and draft both name their base model, and these differ."""
    bases = target.base_models
    wanted = {name.lower() for name in (*bases, target.repo)}
    named = [name for name in draft.base_models if not DRAFT_NAME.search(name)]
    if not bases or not named or wanted & {name.lower() for name in named}:
        return None
    return (
        f"it was trained for {', '.join(named)}, the target is {bases[0]}: fewer of its tokens "
        "will be accepted"
    )


def _ways_here(
    target: Target, models: Sequence[LocalModel], known: Sequence[CataloguePair]
) -> Iterator[Way]:
    """What needs no Hub; of a draft that was converted for a pair that is `known`, with the
    checkpoint it was converted from."""
    header = target.header
    if header is not None:
        for kind in kinds(header, None):
            yield Way("built_in", fits=True, kind=kind)
        checkpoints = {one.draft: one.entry.draft.checkpoint for one in known}
        for model, drafts in drafts_for(header, models):
            checkpoint = checkpoints.get(model.path, "")
            yield Way(
                "here",
                repo=checkpoint or model.repo or "",
                files=model.in_repo,
                path=model.path,
                name=model.short_name,
                is_checkpoint=bool(checkpoint),
                size_bytes=model.size_bytes,
                fits=True,
                kind=drafts,
                note=_TRY if drafts == "model" else "",
            )
        reads = header.architecture in TARGET_ARCHITECTURES
        problem = None if reads else f"no draft reads the layers of {header.architecture} models"
        yield Way("training", fits=reads, problem=problem, kind="eagle3")
    yield Way("n_grams", fits=True)


def _rank(way: Way) -> tuple[int, bool, bool, int]:
    """Those that fit come first, and among them those that are ready."""
    fits = {True: 0, None: 1, False: 2}[way.fits]
    is_general = way.where in ("n_grams", "training")
    is_behind = way.warning is not None or way.kind == "model"
    return fits, is_general, is_behind, get_args(Where).index(way.where)


def is_named_like_draft(hit: RemoteRepo) -> bool:
    return any(DRAFT_NAME.search(text) for text in (hit.repo, *hit.tags))


def _named_like_drafts(hits: Sequence[RemoteRepo]) -> list[str]:
    return [hit.repo for hit in hits if is_named_like_draft(hit)]


def _candidates(listing: RemoteRepo, where: Where) -> Iterator[Way]:
    """The GGUFs of a repository that may be drafts; if it has none, its checkpoint."""
    beside = where == "beside"
    ggufs = [model for model in group_models(listing.paths) if not beside or model.is_draft]
    files = [model.files for model in ggufs] or ([] if beside else [checkpoint_files(listing)])
    for names in filter(None, files):
        yield replace(_way(where, listing, names), is_checkpoint=not ggufs)


def _way(where: Where, listing: RemoteRepo, files: tuple[str, ...]) -> Way:
    return Way(
        where,
        repo=listing.repo,
        files=files,
        size_bytes=sum(listing.file(name).size for name in files),
        licence=listing.licence,
        gated=listing.gated,
    )


def checkpoint_files(listing: RemoteRepo) -> tuple[str, ...]:
    """The files of a checkpoint that a conversion needs: config.json and one set of weights."""
    top = [path for path in listing.paths if "/" not in path and not NOT_WEIGHTS.search(path)]
    for ending in CHECKPOINT_WEIGHTS:
        weights = [path for path in top if path.endswith(ending)]
        if weights and "config.json" in top:
            return ("config.json", *sorted(weights))
    return ()


def pair_up(target: Target, way: Way, catalogue: Sequence[CataloguePair]) -> CatalogueEntry:
    """The pair to install: the catalogue's if it has these files, else one with a new name."""
    if way.pair is not None:
        return way.pair
    draft = ModelSource()
    if way.where == "with_heads":
        source = ModelSource(repo=way.repo, file=way.files[0])
        target = replace(target, name=ModelFiles(way.files).name, source=source, path=None)
    elif way.repo and way.is_checkpoint:
        draft = ModelSource(checkpoint=way.repo)
    elif way.repo:
        draft = ModelSource(repo=way.repo, file=way.files[0])
    for offer in catalogue:
        entry = offer.entry
        has_target = _file_of(entry.target) == _file_of(target.source) or (
            target.path is not None and offer.target == target.path
        )
        if has_target and _file_of(entry.draft) == _file_of(draft):
            return entry
    publisher = way.repo.partition("/")[0]
    name = re.sub(r"[^a-z0-9._-]+", "-", f"{target.name}-{publisher}".lower()).strip("-._")
    taken = {offer.name for offer in catalogue}
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    return CatalogueEntry(
        name=next(name for name in names if name not in taken),
        title=f"{target.name} with {way.repo}" if draft else target.name,
        target=target.source,
        draft=draft,
        drafter=way.kind,
        architecture=target.header.architecture if target.header is not None else None,
        acceptance=way.reported,
        note=way.warning or way.note,
    )


def _file_of(source: ModelSource) -> tuple[str | None, ...]:
    """What a source names, at whatever revision."""
    return source.path, source.repo, source.checkpoint, source.file, source.quantization
