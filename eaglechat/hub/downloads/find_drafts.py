"""Finds drafts for a target on the Hub, and judges each by its header, not by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from eaglechat.engine.drafters.mtp import pairing as mtp
from eaglechat.engine.drafters.pairing import check_headers, kind_of
from eaglechat.gguf.header import GGUFError, GGUFHeader
from eaglechat.gguf.preflight import PreflightError
from eaglechat.hub.catalogue import CatalogueEntry, DraftSource, GGUFSource
from eaglechat.hub.downloads.client import Hub, RemoteRepo, SearchHit
from eaglechat.hub.errors import HubError
from eaglechat.hub.references import ModelFiles, group_models
from eaglechat.wire.protocol import DrafterKind

CHECKPOINT_WEIGHTS = (".safetensors", ".bin")
_DRAFT_NAME = re.compile(r"eagle-?3|dflash|dspark|speculator", re.IGNORECASE)
# Behind a model's name; before it, it names a file of the heads alone.
_MTP_NAME = re.compile(r"[-_.]mtp([-_.]|$)", re.IGNORECASE)
_QUANTIZED = re.compile(r"[-_.]?(GGUF|i1|imatrix)$", re.IGNORECASE)
_NOT_WEIGHTS = re.compile(r"training_args|optimizer|scheduler|rng_state", re.IGNORECASE)
_BESIDE = "beside the target"
_MOST_CANDIDATES = 12
_MOST_BASES = 8
# The Hub searches by name; these are the ways in which publishers name drafts.
_PUBLISHERS_PATTERNS = (
    "{}_eagle3", "{}-eagle3", "EAGLE3-{}", "{}-speculator", "{} eagle3", "{}-DFlash", "{}-DSpark",
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A draft that may fit. `fits` is None if it could not be judged; `problem` says why.

    `files` are the shards of one GGUF, or the files of a checkpoint to convert.
    """

    repo: str
    files: tuple[str, ...]
    is_checkpoint: bool
    found_by: str
    size_bytes: int
    licence: str | None = None
    gated: bool = False
    fits: bool | None = None
    problem: str | None = None
    warning: str | None = None
    note: str = ""
    kind: DrafterKind | None = None
    """None if it was not read, or is no draft."""


@dataclass(frozen=True)
class Target:
    """A target for which drafts are searched; `base_models` are the models it was made from."""

    repo: str
    header: GGUFHeader
    base_models: tuple[str, ...]
    with_heads: ModelFiles | None = None
    """A model of the same repository that has MTP heads, if the target has none."""


def describe_target(hub: Hub, repo: RemoteRepo, model: ModelFiles) -> Target:
    """A target of a repository, with its header. Raises HubError, GGUFError."""
    header = hub.peek_model([repo.file(name) for name in model.files])
    return _target(hub, repo, model, header)


def _target(hub: Hub, repo: RemoteRepo, model: ModelFiles, header: GGUFHeader) -> Target:
    base_models = repo.base_models or _named_bases(header)
    return Target(repo.repo, header, base_models, _with_heads(hub, repo, model, header))


def what_helps(hub: Hub, repo: RemoteRepo, model: ModelFiles, header: GGUFHeader) -> str | None:
    """A sentence on what in a target's repository would draft for it: a draft that fits, else a
    version of it that has MTP heads. Raises HubError, GGUFError."""
    target = _target(hub, repo, model, header)
    found = None
    if target.with_heads is not None:
        found = "a version of it with MTP heads", target.with_heads.first
    for candidate in _candidates(repo, _BESIDE):
        if _judge(hub, target, repo, candidate).fits:
            found = "a draft for it", candidate.files[0]
            break
    if found is None:
        return None
    what, file = found
    return f"Its repository has {what}: `eaglechat pull {repo.repo}/{file}` downloads it."


def _with_heads(
    hub: Hub, repo: RemoteRepo, model: ModelFiles, header: GGUFHeader
) -> ModelFiles | None:
    """Of the models that are named after MTP heads, the header of one is read: one quantised like
    the target, if there is one."""
    named = [other for other in group_models(repo.paths) if _MTP_NAME.search(other.name)]
    if header.n_mtp_heads or not named:
        return None
    quantization = model.name.rpartition("-")[2]
    other = next((other for other in named if other.name.endswith(quantization)), named[0])
    found = hub.peek_model([repo.file(name) for name in other.files])
    return other if mtp.problem(found) is None else None


def find_drafts(
    hub: Hub, target: Target, entries: Iterable[CatalogueEntry] = ()
) -> list[Candidate]:
    """Candidates for a target, those that fit first.

    They are searched in the target's repository, in the catalogue, by base model and by name, in
    this order. A repository that cannot be read becomes a candidate with a `problem`; raises
    HubError if the target's own cannot be read, or a search fails.
    """
    found: dict[tuple[str, tuple[str, ...]], Candidate] = {}
    asked: set[str] = set()
    for repo, found_by in _repos(hub, target, entries):
        if repo in asked or len(found) >= _MOST_CANDIDATES:
            continue
        asked.add(repo)
        try:
            listing = hub.repo(repo)
        except HubError as error:
            if found_by == _BESIDE:
                raise
            found[repo, ()] = Candidate(repo, (), True, found_by, 0, fits=False, problem=str(error))
            continue
        for candidate in _candidates(listing, found_by):
            found[repo, candidate.files] = _judge(hub, target, listing, candidate)
    order = {True: 0, None: 1, False: 2}
    return sorted(found.values(), key=lambda c: (order[c.fits], c.warning is not None))


def _repos(
    hub: Hub, target: Target, entries: Iterable[CatalogueEntry]
) -> Iterator[tuple[str, str]]:
    yield target.repo, _BESIDE
    for entry in entries:
        if entry.target.repo == target.repo or entry.base_model in target.base_models:
            yield entry.draft.repo or entry.draft.checkpoint or "", "in the catalogue"
    for base in target.base_models:
        yield from _named_like_drafts(
            hub.search(tags=(f"base_model:{base}",), limit=100), "for the same base model"
        )
    stem = _QUANTIZED.sub("", target.repo.rpartition("/")[2])
    for pattern in _PUBLISHERS_PATTERNS:
        hits = hub.search(pattern.format(stem), limit=20)
        yield from _named_like_drafts(hits, "by its name")


def _named_like_drafts(hits: list[SearchHit], found_by: str) -> Iterator[tuple[str, str]]:
    for hit in hits:
        if _DRAFT_NAME.search(hit.repo) or any(_DRAFT_NAME.search(tag) for tag in hit.tags):
            yield hit.repo, found_by


def _candidates(listing: RemoteRepo, found_by: str) -> Iterator[Candidate]:
    """The GGUFs of a repository that may be drafts; if it has none, its checkpoint."""
    beside = found_by == _BESIDE
    ggufs = [
        model
        for model in group_models(listing.paths)
        if not beside or model.is_draft or _DRAFT_NAME.search(model.name)
    ]
    files = [model.files for model in ggufs] or ([] if beside else [checkpoint_files(listing)])
    for names in files:
        if names:
            yield Candidate(
                repo=listing.repo,
                files=names,
                is_checkpoint=not ggufs,
                found_by=found_by,
                size_bytes=sum(listing.file(name).size for name in names),
                licence=listing.licence,
                gated=listing.gated,
            )


def checkpoint_files(listing: RemoteRepo) -> tuple[str, ...]:
    """The files of a checkpoint that a conversion needs: config.json and one set of weights."""
    top = [path for path in listing.paths if "/" not in path and not _NOT_WEIGHTS.search(path)]
    for ending in CHECKPOINT_WEIGHTS:
        weights = [path for path in top if path.endswith(ending)]
        if weights and "config.json" in top:
            index = [path for path in top if path.endswith(f"{ending}.index.json")]
            return ("config.json", *sorted(index), *sorted(weights))
    return ()


def _judge(hub: Hub, target: Target, listing: RemoteRepo, candidate: Candidate) -> Candidate:
    """The candidate with `fits`, `problem`, `warning` and `note` set."""
    note = ""
    kind: DrafterKind | None = None
    try:
        if candidate.is_checkpoint:
            # Imported here, because it imports numpy and gguf.
            from eaglechat.hub.downloads.remote_checkpoint import judge_checkpoint  # noqa: PLC0415

            files = [listing.file(name) for name in candidate.files]
            problem, layers, kind = judge_checkpoint(hub, files, target.header)
            if layers:
                note = (
                    f"does not say which layers it reads: {', '.join(map(str, layers))} are usual"
                )
        else:
            header = hub.peek(listing.file(candidate.files[0]))
            problem, kind = judge_gguf(header, target.header), kind_of(header)
    except (HubError, GGUFError) as error:
        return replace(candidate, problem=str(error))
    warning = None if problem else _other_fine_tune(target, listing)
    fits = problem is None
    return replace(candidate, fits=fits, problem=problem, warning=warning, note=note, kind=kind)


def as_entry(target: Target, model: ModelFiles, candidate: Candidate) -> CatalogueEntry:
    """The catalogue entry for a target and a draft found for it."""
    publisher = candidate.repo.partition("/")[0]
    name = re.sub(r"[^a-z0-9._-]+", "-", f"{model.name}-{publisher}".lower()).strip("-._")
    draft = (
        DraftSource(checkpoint=candidate.repo)
        if candidate.is_checkpoint
        else DraftSource(repo=candidate.repo, file=candidate.files[0])
    )
    return CatalogueEntry(
        name=name,
        title=f"{model.name} with {candidate.repo}",
        target=GGUFSource(repo=target.repo, file=model.first),
        draft=draft,
        architecture=target.header.architecture,
        note=candidate.warning or candidate.note,
    )


def judge_gguf(draft: GGUFHeader, target: GGUFHeader) -> str | None:
    """Why a GGUF is no draft for a target; None if it fits."""
    try:
        check_headers(target, draft)
    except PreflightError as error:
        return str(error)
    return None


def _other_fine_tune(target: Target, draft: RemoteRepo) -> str | None:
    """A warning if target and draft both name their base model, and these differ."""
    wanted = {name.lower() for name in (*target.base_models, target.repo)}
    named = [name for name in draft.base_models if not _DRAFT_NAME.search(name)]
    if not target.base_models or not named or wanted & {name.lower() for name in named}:
        return None
    return (
        f"it was trained for {', '.join(named)}, the target is {target.base_models[0]}: fewer of "
        "its tokens will be accepted"
    )


def _named_bases(header: GGUFHeader) -> tuple[str, ...]:
    """The base models that a GGUF's metadata names by their addresses on the Hub."""
    count = min(header.number("general.base_model.count"), _MOST_BASES)
    urls = [header.text(f"general.base_model.{i}.repo_url") for i in range(count)]
    return tuple(url.split("huggingface.co/", 1)[1] for url in urls if "huggingface.co/" in url)
