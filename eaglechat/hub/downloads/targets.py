"""From what a user names to a target for which drafts can be searched, and from a draft to its
targets; and the search by words, which finds both."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.downloads.client import Hub, RemoteRepo
from eaglechat.hub.downloads.find_drafts import (
    Target,
    Way,
    checkpoint_files,
    is_named_like_draft,
)
from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.local import library
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import CataloguePair
from eaglechat.hub.references import (
    DRAFT_NAME,
    InvalidReferenceError,
    ModelFiles,
    ModelSource,
    choose,
    group_models,
    parse,
)

ChooseFiles = Callable[[ModelSource, RemoteRepo, Hub], ModelFiles]
Catalogue = Sequence[CataloguePair]

_MOST_BASES = 8
_MOST_HITS = 40


def named(
    hub: Hub,
    text: str,
    catalogue: Catalogue,
    models: Sequence[LocalModel],
    choose_files: ChooseFiles = lambda reference, listing, _hub: choose(reference, listing.paths),
) -> Target:
    """The target that `text` names: a pair of the catalogue, a model on this machine, or a
    reference to the Hub, of whose files `choose_files` says which. Raises HubError, GGUFError,
    InvalidReferenceError."""
    for offer in catalogue:
        if offer.name == text:
            return of_entry(hub, offer, catalogue, models)
    here = [model for model in library.find(models, text) if model.is_target]
    if here:
        return of_model(here[0], catalogue)
    reference = parse(text)
    if reference.path:
        return of_file(reference.local, catalogue, models)
    cached = library.locate(models or library.files_here(cache=hub.cache_dir), reference)
    if cached is not None:
        return of_model(library.read(cached), catalogue)
    listing = hub.repo(reference.repo, reference.revision)
    return of_repo(hub, listing, choose_files(reference, listing, hub), reference.revision)


def of_file(path: Path, catalogue: Catalogue, models: Sequence[LocalModel]) -> Target:
    """A file on this machine. Raises InvalidReferenceError if it is no target."""
    real = Path(os.path.realpath(path))
    same = (
        model
        for model in models
        if real in {Path(os.path.realpath(one.path)) for one in model.everywhere}
    )
    return of_model(next(same, None) or library.look_at(path), catalogue)


def of_model(model: LocalModel, catalogue: Catalogue) -> Target:
    """Raises InvalidReferenceError if the model is no target."""
    if model.header is None or not model.is_target:
        why = model.problem or "It is a draft: name its target."
        raise InvalidReferenceError(f"{model.name} takes no drafts: {why[:1].lower()}{why[1:]}")
    places = {one.path for one in model.everywhere}
    mine = [offer.entry for offer in catalogue if offer.target in places]
    declared = (entry.base_model for entry in mine)
    bases = dict.fromkeys([*filter(None, declared), *_named_bases(model.header)])
    source = ModelSource(path=str(Path(model.path).absolute()))
    if model.repo is not None and model.commit:
        # In the Hub's cache. At its commit, the Hub does not have another file by this name.
        source = ModelSource(repo=model.repo, file=model.in_repo[0], revision=model.commit)
    return Target(
        name=model.short_name,
        source=mine[0].target if mine else source,
        header=model.header,
        base_models=tuple(bases),
        repo=model.repo or (mine[0].target.repo if mine else ""),
        path=model.path,
    )


def of_entry(
    hub: Hub, offer: CataloguePair, catalogue: Catalogue, models: Sequence[LocalModel]
) -> Target:
    """A catalogue pair's target. Raises HubError, GGUFError, InvalidReferenceError."""
    if offer.target is not None:
        return of_file(offer.target, catalogue, models)
    entry = offer.entry
    if entry.target.path:
        raise InvalidReferenceError(f"The target of {entry.name} has gone: {entry.target.path}.")
    bases = (entry.base_model,) if entry.base_model else ()
    try:
        listing = hub.repo(entry.target.repo, entry.target.revision)
    except OfflineError:
        return Target(entry.title or entry.name, entry.target, None, bases, entry.target.repo)
    found = of_repo(hub, listing, choose(entry.target, listing.paths))
    bases = tuple(dict.fromkeys((*bases, *found.base_models)))
    return replace(found, source=entry.target, base_models=bases)


def of_repo(hub: Hub, repo: RemoteRepo, model: ModelFiles, revision: str = "main") -> Target:
    """A model of a repository, with its header. Raises HubError, GGUFError."""
    header = hub.peek_model([repo.file(name) for name in model.files])
    bases = repo.base_models or _named_bases(header)
    source = ModelSource(repo=repo.repo, file=model.first, revision=revision)
    return Target(model.name, source, header, bases, repo.repo)


def _named_bases(header: GGUFHeader) -> tuple[str, ...]:
    """The base models that a GGUF's metadata names by their addresses on the Hub."""
    count = min(header.number("general.base_model.count"), _MOST_BASES)
    urls = [header.text(f"general.base_model.{i}.repo_url") for i in range(count)]
    return tuple(url.split("huggingface.co/", 1)[1] for url in urls if "huggingface.co/" in url)


def search(hub: Hub, words: str) -> list[RemoteRepo]:
    """Targets and drafts: GGUF repositories with these words in their names, those of an author,
    and checkpoints that are named like drafts. A reference or an address finds its repository.

    Raises HubError, InvalidReferenceError.
    """
    words = words.strip()
    unknown = None
    try:
        reference = parse(words)
        if reference.repo:
            repo = hub.repo(reference.repo, reference.revision)
            return [repo]
    except OfflineError:
        raise
    except (HubError, InvalidReferenceError) as error:
        if "://" in words:
            raise
        # What is typed may be the beginning of a name.
        unknown = error if isinstance(error, HubError) else None
    found = hub.search(words, tags=("gguf",))
    drafts = hub.search(words if DRAFT_NAME.search(words) else f"{words} eagle3", limit=_MOST_HITS)
    if words and len(words.split()) == 1:
        # A word may be an author, whose repositories need not have it in their names.
        drafts += hub.search(author=words.strip("/"), limit=_MOST_HITS)
    found += [hit for hit in drafts if is_named_like_draft(hit) or "gguf" in hit.tags]
    if unknown is not None and not found:
        raise unknown
    return list({hit.repo: hit for hit in found}.values())


def draft_of(listing: RemoteRepo, reference: ModelSource) -> Way:
    """The draft that a reference means in its repository: a GGUF, or the checkpoint if there is
    none. Raises InvalidReferenceError."""
    is_checkpoint = not group_models(listing.paths) and bool(checkpoint_files(listing))
    files = () if is_checkpoint else choose(reference, listing.paths).files
    return Way("name", listing.repo, files, is_checkpoint=is_checkpoint)


def is_draft(repo: RemoteRepo) -> bool:
    """Whether a repository has drafts and no targets, by the names of its files."""
    ggufs = group_models(repo.paths)
    if ggufs:
        return all(model.is_draft or is_named_like_draft(repo) for model in ggufs)
    return bool(checkpoint_files(repo))


def of_draft(
    hub: Hub, draft: RemoteRepo, catalogue: Catalogue
) -> tuple[list[str], list[RemoteRepo]]:
    """The models that a draft was made for, and repositories with targets: those that the catalogue
    pairs it with, then GGUFs of these models, most downloaded first. Raises HubError."""
    made_for = dict.fromkeys(base for base in draft.base_models if not DRAFT_NAME.search(base))
    hits = {}
    for entry in (offer.entry for offer in catalogue):
        if draft.repo in (entry.draft.repo, entry.draft.checkpoint) and entry.target.repo:
            hits[entry.target.repo] = RemoteRepo(entry.target.repo, licence=entry.licence)
            made_for |= {entry.base_model: None} if entry.base_model else {}
    for base in made_for:
        for hit in hub.search(tags=("gguf", f"base_model:{base}")):
            if not is_named_like_draft(hit):
                hits[hit.repo] = hit
    return list(made_for), list(hits.values())
