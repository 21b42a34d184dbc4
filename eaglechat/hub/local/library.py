"""Finds the models on this machine, and is the only place that knows where their files are.

They are in the Hugging Face cache, Ollama's store, the user's folders, the folder of drafts
converted here, LM Studio's folder (PUBLISHER/REPOSITORY/FILE) and llama.cpp's
(PUBLISHER_REPOSITORY_FILE, before it used the Hugging Face cache). `files_here` finds them, `scan`
reads them too: a model's kind is told by its header, not by its name. `locate` and `find` answer
which of them a reference to the Hub, or a user's words, mean.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import platformdirs

from eaglechat import paths
from eaglechat.gguf import pairing
from eaglechat.gguf.header import GGUFError, GGUFHeader, printable, read_header
from eaglechat.gguf.pairing import kind_of, kinds, offered_kind
from eaglechat.gguf.preflight import PreflightError
from eaglechat.gguf.shards import plain_name, shard_of, shard_paths
from eaglechat.hub.local import ollama
from eaglechat.hub.local.cache import RepoCache, cache_dir, hops, record_of, repo_of
from eaglechat.hub.local.headers import HeaderBook
from eaglechat.hub.local.model import LocalModel, ModelKind, Source, size_of
from eaglechat.hub.local.pairs import BUILTIN_DRAFT, InspectedPair, Pair, pair_of_files
from eaglechat.hub.references import (
    InvalidReferenceError,
    ModelSource,
    choose,
    group_models,
    parse,
)
from eaglechat.wire.drafters import DrafterKind

_MAX_DEPTH = 6
_CHECKPOINT_SIGN = re.compile(r"eagle-?[34]|draft_vocab_size|speculators", re.IGNORECASE)
_COPY = "A copy of a target that verifies drafts faster; it is written again when needed."
NO_HASHES: Mapping[str, str] = {}


def files_here(folders: Sequence[str | Path] = (), cache: Path | None = None) -> list[LocalModel]:
    """Every copy of every model on this machine, by its files alone: no header is read. `folders`
    are the user's."""
    places = [
        (paths.drafts_dir(), Source.CONVERTED),
        *((folder, Source.LM_STUDIO) for folder in _lm_studio_folders()),
        (_llama_cpp_folder(), Source.LLAMA_CPP),
        *((paths.expanded(own), Source.FOLDER) for own in folders),
    ]
    found = [*_in_cache(cache or cache_dir())]
    for place in places:
        found += _in_folder(*place)
    # A name that says which one it is comes before `latest`, which stands for it.
    found += sorted(ollama.models(), key=lambda one: (one.name.endswith(":latest"), one.name))
    copies = _in_folder(paths.reencoded_dir(), Source.CONVERTED)
    return [*found, *(replace(copy, problem=_COPY) for copy in copies)]


def scan(folders: Sequence[str | Path] = (), cache: Path | None = None) -> list[LocalModel]:
    """Every model on this machine, each once, and last what cannot be used. `folders` are the
    user's."""
    book = HeaderBook()
    found = files_here(folders, cache)
    models = _each_once(read(one, book) for one in found if _is_for_drafting(one))
    book.save()
    return sorted(models, key=lambda model: model.kind in (ModelKind.OTHER, ModelKind.BROKEN))


def look_at(path: Path) -> LocalModel:
    """The model in a file, wherever it is."""
    files: tuple[Path, ...] = ()
    with suppress(OSError):
        files = tuple(shard_paths(path))
    files, name = files or (path,), printable(plain_name(path.name))
    size = size_of(files)
    return read(LocalModel(name, ModelKind.UNREAD, Source.FOLDER, files[0], files, size))


def built_in_draft() -> LocalModel:
    """It is left out by `scan`, because it cannot be deleted."""
    return look_at(BUILTIN_DRAFT)


def _each_once(models: Iterable[LocalModel]) -> list[LocalModel]:
    """The models, those of the same file or the same hash together; the first name counts."""
    placed = [(model, model.place) for model in models]
    # A file has one hash, and may have other names that do not tell it.
    hashes = {place: model.sha256 for model, place in placed if model.sha256 is not None}
    found: dict[object, list[LocalModel]] = {}
    seen = set[object]()
    for model, place in placed:
        same = found.setdefault(hashes.get(place, place), [])
        same.append(replace(model, size_bytes=0) if place in seen else model)
        seen.add(place)
    return [replace(first, also=tuple(others)) for first, *others in found.values()]


# Where the files are


def _in_cache(cache: Path) -> Iterator[LocalModel]:
    for folder in sorted(cache.glob("models--*")):
        repo = repo_of(folder)
        for snapshot in sorted(folder.glob("snapshots/*"), key=_modified, reverse=True):
            for files in _models_under(snapshot):
                yield _unread(snapshot, files, Source.HUGGING_FACE, repo, snapshot.name)
            if checkpoint := _checkpoint_in(snapshot):
                yield LocalModel(
                    repo, ModelKind.CHECKPOINT, Source.HUGGING_FACE, snapshot, checkpoint,
                    size_of(checkpoint), repo, commit=snapshot.name,
                )  # fmt: skip
        for partial, left in RepoCache(cache, repo).unfinished().items():
            done = min(size_of([partial]), left.size)
            percent = 100 * done // max(left.size, 1)
            yield LocalModel(
                name=f"{repo}/{left.path}",
                kind=ModelKind.UNFINISHED,
                source=Source.HUGGING_FACE,
                path=partial,
                files=(partial, record_of(partial)),
                size_bytes=done,
                repo=repo,
                problem=f"Its download stopped at {percent}%; pulling it resumes.",
                in_repo=(left.path,),
            )


def _in_folder(folder: Path, source: Source) -> Iterator[LocalModel]:
    for files in _models_under(folder):
        inside, repo = files[0].relative_to(folder).parts, None
        if source is Source.LM_STUDIO and len(inside) > 2:
            repo = "/".join(inside[:2])
        elif source is Source.LLAMA_CPP and len(inside) == 1:
            repo = _repo_in_llama_cpp(folder, files[0].name)
        yield _unread(folder, files, source, repo)


def _unread(
    folder: Path, files: tuple[Path, ...], source: Source, repo: str | None, commit: str = ""
) -> LocalModel:
    inside = [file.relative_to(folder).as_posix() for file in files]
    if repo is not None and source is not Source.HUGGING_FACE:
        before = _llama_cpp_prefix(repo) if source is Source.LLAMA_CPP else f"{repo}/"
        inside = [name.removeprefix(before) for name in inside]
    name = plain_name(inside[0])
    if repo is not None:
        name = f"{repo}/{name}"
    elif "/" not in name:
        name = Path(name).stem
    size = size_of(files)
    return LocalModel(
        printable(name), ModelKind.UNREAD, source, files[0], files, size, repo,
        in_repo=tuple(inside), commit=commit,
    )  # fmt: skip


def _lm_studio_folders() -> list[Path]:
    home = Path.home()
    folders = [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        settings = json.loads((home / ".lmstudio" / "settings.json").read_text(encoding="utf-8"))
        folders.insert(0, Path(settings["downloadsFolder"]))
    return folders


def _llama_cpp_folder() -> Path:
    usual = platformdirs.user_cache_path("llama.cpp", appauthor=False, opinion=False)
    return Path(os.environ.get("LLAMA_CACHE") or usual)


def _llama_cpp_prefix(repo: str) -> str:
    """How the names of a repository's files begin in llama.cpp's folder."""
    return repo.replace("/", "_") + "_"


def _repo_in_llama_cpp(folder: Path, file: str) -> str | None:
    """The repository of a file in llama.cpp's folder, of those that have a manifest there,
    `manifest=OWNER=REPOSITORY=TAG.json`; None if it is of none."""
    names = (path.name.split("=") for path in folder.glob("manifest=*=*=*.json"))
    # One name may begin with another.
    repos = sorted({f"{parts[1]}/{parts[2]}" for parts in names}, key=len, reverse=True)
    return next((repo for repo in repos if file.startswith(_llama_cpp_prefix(repo))), None)


def _checkpoint_in(folder: Path) -> tuple[Path, ...]:
    """The files of a checkpoint of which the folder has the weights, config.json first; empty
    without one."""
    config = folder / "config.json"
    weights = [path for ending in (".safetensors", ".bin") for path in folder.glob(f"*{ending}")]
    if not weights or not config.exists():
        return ()
    return (config, *sorted(weights), *sorted(folder.glob("*.index.json")))


def _models_under(folder: Path) -> Iterator[tuple[Path, ...]]:
    """The files of each model, the one to load first; of an incomplete split model, those there.

    Folders are searched _MAX_DEPTH levels deep, because links may form a circle.
    """
    names = (path.relative_to(folder).as_posix() for path in _ggufs(folder, _MAX_DEPTH))
    for model in group_models(names, broken=True):
        yield tuple(folder / file for file in model.files)


def _ggufs(folder: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return
    for entry in entries:
        try:
            is_file, is_folder = entry.is_file(), entry.is_dir()
        except OSError:
            continue
        if entry.name.lower().endswith(".gguf") and is_file:
            yield Path(entry.path)
        elif depth and is_folder and not entry.name.startswith("."):
            yield from _ggufs(Path(entry.path), depth - 1)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


# What they are


def read(model: LocalModel, book: HeaderBook | None = None) -> LocalModel:
    """The model with its header and its kind, if those were not known; of a download, whether it
    goes on now."""
    if model.kind is ModelKind.UNFINISHED and RepoCache.of(model.path).is_downloading(model.path):
        return replace(model, problem="It is being downloaded.")
    if model.kind is not ModelKind.UNREAD:
        return model
    try:
        header = book.header(model.files) if book else read_header(model.path)
    except (OSError, GGUFError) as error:
        return replace(model, kind=ModelKind.BROKEN, problem=_sentence(error))
    kind, problem = (ModelKind.OTHER, model.problem) if model.problem else _kind(header)
    return replace(model, kind=kind, header=header, problem=problem)


def _kind(header: GGUFHeader) -> tuple[ModelKind, str | None]:
    if kind_of(header) is not None:
        return ModelKind.DRAFT, None
    if (why := pairing.why_unfit(header, None)) is not None:
        return ModelKind.OTHER, _sentence(PreflightError(why))
    if pairing.takes_drafts(header):
        return ModelKind.TARGET, None
    reason = f"No draft runs with models of architecture {header.architecture}."
    return ModelKind.PLAIN, reason


def _sentence(error: Exception) -> str:
    text = str((isinstance(error, OSError) and error.strerror) or error)
    return f"{text[:1].upper()}{text[1:]}."


def _is_for_drafting(model: LocalModel) -> bool:
    """False for a checkpoint whose config.json is not a draft's."""
    if model.kind is not ModelKind.CHECKPOINT:
        return True
    try:
        config = model.files[0].read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return _CHECKPOINT_SIGN.search(config) is not None


# Which go together


def pair_of_models(target: LocalModel, draft: LocalModel | None = None) -> Pair:
    """A pair of models with their names: a blob of Ollama is named by its hash."""
    names = [model.short_name for model in (target, draft) if model]
    return pair_of_files(target.path, draft.path if draft else None, " + ".join(names))


def targets(models: Sequence[LocalModel]) -> list[tuple[LocalModel, InspectedPair]]:
    """The targets among `models`, each with the first draft that fits it, or alone."""
    drafts = [one for one in models if one.kind is ModelKind.DRAFT]
    found = []
    for model in models:
        if model.is_target and model.header is not None:
            draft, _ = next(drafts_for(model.header, drafts), (None, None))
            header = draft.header if draft else None
            pair = InspectedPair(pair_of_models(model, draft), model.header, header, None)
            found.append((model, pair))
    return found


def drafts_for(
    target: GGUFHeader, models: Iterable[LocalModel]
) -> Iterator[tuple[LocalModel, DrafterKind]]:
    """Of these models, the drafts that fit a target and the whole models that may draft for it,
    each with the kind of drafter that it is."""
    for model in models:
        its = model.header if model.is_target or model.kind is ModelKind.DRAFT else None
        kind = offered_kind(target, its) if its is not None else None
        if kind is not None and pairing.why_unfit(target, its) is None:
            yield model, kind


def drafters_of(model: LocalModel, models: Iterable[LocalModel]) -> tuple[DrafterKind, ...]:
    """What drafts for a target, besides n-grams: its own file, and the drafts among `models` that
    fit it. Of a draft, its kind. Empty for all other files."""
    if model.header is None:
        return ()
    if not model.is_target:
        own = kind_of(model.header)
        return (own,) if own is not None else ()
    drafts = (one for one in models if one.kind is ModelKind.DRAFT)
    fitting = (kind for _, kind in drafts_for(model.header, drafts))
    return tuple(dict.fromkeys((*kinds(model.header, None), *fitting)))


# What a reference means


def locate(
    here: Iterable[LocalModel],
    reference: ModelSource,
    hashes: Mapping[str, str] = NO_HASHES,
    *,
    is_target: bool = False,
) -> LocalModel | None:
    """The copy of a model of the Hub: in the newest commit of which the Hugging Face cache has all
    its files, else where another program has it. `hashes` are the known SHA-256 of the repository's
    files, by their path in it: a file that has one, in any commit of the cache or in Ollama's
    store, will do."""
    copies = _whole(here)
    its = [one for one in copies if one.repo == reference.repo]
    cached = [one for one in its if one.source is Source.HUGGING_FACE]
    hashed = [*cached, *(one for one in copies if one.source is Source.OLLAMA)]
    others = [one for one in its if one.source in (Source.LM_STUDIO, Source.LLAMA_CPP)]
    for group in (*by_commit(cached, reference.revision), _by_hash(hashed, hashes), others):
        files: dict[str, LocalModel] = {}
        for one in group:
            for name in one.in_repo:
                files.setdefault(name, one)
        with suppress(InvalidReferenceError):
            return files[choose(reference, list(files), is_target=is_target).first]
    return None


def find_file(
    here: Iterable[LocalModel], repo: str, path: str, size: int, sha256: str | None
) -> Path | None:
    """A file of a repository that another program has, of this size. A shard of a split
    model is found only beside the others."""
    others = [one for one in _whole(here) if one.source is not Source.HUGGING_FACE]
    hashed = _by_hash(others, {path: sha256} if sha256 and shard_of(path) is None else NO_HASHES)
    named = (one for one in others if one.repo == repo)
    for one in (*hashed, *named):
        for name, file in zip(one.in_repo, one.files, strict=False):
            if name == path and size_of([file]) == size:
                return file
    return None


def _whole(here: Iterable[LocalModel]) -> list[LocalModel]:
    """The copies of GGUF models of which no shard is missing."""
    others = (ModelKind.CHECKPOINT, ModelKind.UNFINISHED)
    copies = (one for model in here for one in model.everywhere)
    return [one for one in copies if one.kind not in others and one.is_whole]


def _by_hash(copies: Iterable[LocalModel], hashes: Mapping[str, str]) -> list[LocalModel]:
    """The copies that have these hashes, as the files that `hashes` names."""
    known = {one.sha256: one for one in copies} if hashes else {}
    found = ((path, known.get(sha256)) for path, sha256 in hashes.items())
    return [replace(one, in_repo=(path,)) for path, one in found if one is not None]


def by_commit(cached: Sequence[LocalModel], revision: str) -> list[list[LocalModel]]:
    """The models of each commit of a revision of their repository. A branch moves on, but what was
    fetched of it earlier is still usable: its commit comes first, then all others, the newest
    first."""
    commits: dict[str, list[LocalModel]] = {}
    for one in cached:
        commits.setdefault(one.commit, []).append(one)
    commit = RepoCache.of(cached[0].files[0]).commit(revision) if cached else None
    latest = [commits.pop(commit)] if commit in commits else []
    return latest if commit == revision else [*latest, *commits.values()]


# What a user's words mean


def find(models: Sequence[LocalModel], text: str) -> list[LocalModel]:
    """The models that `text` may mean: a listed name, a path, a file name, a Hub reference or a
    name of Ollama. Copies of the same bytes are one model."""
    return list({id(model): model for model, _ in _meant(models, text)}.values())


def told_apart(models: Sequence[LocalModel]) -> str:
    """The names of models; of those that have one name, such as two versions of a file, the
    paths."""
    names = [model.name for model in models]
    return ", ".join(str(one.path) if names.count(one.name) > 1 else one.name for one in models)


def copies(models: Sequence[LocalModel], text: str) -> list[LocalModel]:
    """As `find`, but the very copies that are meant, each with the others as its duplicates. Two
    commits of a repository have one blob, and are one copy."""
    found = {}
    for model, one in _meant(models, text):
        is_cached = one.source is Source.HUGGING_FACE
        blob = RepoCache.of(one.path).blob_of(one.path) if is_cached else None
        found[one.name, blob or next(hops(one.path))] = copy_of(model, one)
    return [*found.values()]


def copy_of(model: LocalModel, one: LocalModel) -> LocalModel:
    """One of a model's copies, with the others as its duplicates."""
    others = tuple(replace(other, also=()) for other in model.everywhere if other is not one)
    return replace(one, also=others)


def _meant(models: Sequence[LocalModel], text: str) -> list[tuple[LocalModel, LocalModel]]:
    """The copies that `text` may mean, each behind its model: by its exact name or path, else by a
    name of Ollama, else by the name of its file, else by its repository."""
    everything = [(model, one) for model in models for one in model.everywhere]
    place, lower = next(hops(paths.expanded(text.strip() or "."))), text.strip().lower()
    tagged = ollama.tagged(lower)
    by_reference = {id(one) for one in _by_reference([one for _, one in everything], text, tagged)}
    meant: list[Callable[[LocalModel], bool]] = [
        lambda one: (
            one.name == text or place in (next(hops(file)) for file in (one.path, *one.files))
        ),
        lambda one: one.name.lower() == lower or _ollama_name(one) == tagged,
        lambda one: lower in (one.path.name.lower(), one.path.stem.lower()),
        lambda one: id(one) in by_reference,
    ]
    stages = ([pair for pair in everything if is_meant(pair[1])] for is_meant in meant)
    return next(filter(None, stages), [])


def _by_reference(models: Sequence[LocalModel], text: str, tagged: str) -> list[LocalModel]:
    """The models in the repository that `text` refers to; those of Ollama have a tag of it."""
    try:
        reference = parse(text)
    except InvalidReferenceError:
        return []
    repo, of_hub = reference.repo.lower(), f"hf.co/{tagged.removeprefix('hf.co/')}"
    in_repo = [one for one in models if repo and (one.repo or "").lower() == repo]
    files = {one.name[len(repo) + 1 :]: one for one in in_repo if one.source is not Source.OLLAMA}
    found = list(files.values())
    if reference.file or reference.quantization:
        try:
            found = [files[choose(reference, list(files)).first]]
        except (InvalidReferenceError, KeyError):
            found = []
    return [*found, *(one for one in in_repo if _ollama_name(one) == of_hub)]


def _ollama_name(model: LocalModel) -> str:
    """What `ollama.tagged` makes of a model's name there; empty for a model that is not there."""
    return ollama.tagged(model.name) if model.source is Source.OLLAMA else ""
