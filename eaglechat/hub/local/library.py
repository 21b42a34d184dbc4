"""Finds the models on this machine.

They are in the Hugging Face cache, Ollama's store, LM Studio's and llama.cpp's folders, the user's
folders, and the folder of drafts converted here. A model's kind is read from its header, not from
its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from pathlib import Path

from eaglechat import paths
from eaglechat.engine.drafters import pairing
from eaglechat.engine.drafters.pairing import check_headers, kind_of, kinds, offered_kind
from eaglechat.gguf.header import GGUFError, GGUFHeader, printable, read_header
from eaglechat.gguf.preflight import PreflightError
from eaglechat.gguf.shards import plain_name, shard_of, shard_paths
from eaglechat.hub.local import ollama
from eaglechat.hub.local.cache import RepoCache, cache_dir, hops, repo_of
from eaglechat.hub.local.headers import HeaderBook
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import InspectedPair, builtin_pair, pair_of_files
from eaglechat.hub.local.stores import (
    Source,
    checkpoint_in,
    llama_cpp_folder,
    lm_studio_folders,
    name_in_llama_cpp,
    repos_in_llama_cpp,
)
from eaglechat.hub.references import (
    InvalidReferenceError,
    LocalReference,
    choose,
    group_models,
    parse,
)
from eaglechat.wire.protocol import DrafterKind

_MAX_DEPTH = 6
_CHECKPOINT_SIGN = re.compile(r"eagle-?[34]|draft_vocab_size|speculators", re.IGNORECASE)
_NAMED_BY_HASH = re.compile(r"(?:sha256-)?([0-9a-f]{64})")

ReadHeader = Callable[[Sequence[Path]], GGUFHeader]
"""Reads the header of a model's files. Raises GGUFError, OSError."""


class ModelKind(str, Enum):
    """What a model can be used as."""

    TARGET = "target"
    DRAFT = "draft"
    CHECKPOINT = "checkpoint"
    PLAIN = "target without drafts"
    OTHER = "other"
    BROKEN = "broken"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine. `problem` says in one sentence why it cannot be used, if so."""

    name: str
    kind: ModelKind
    source: Source
    path: Path
    """The path to load: the first file, or a checkpoint's folder."""
    files: tuple[Path, ...] = field(repr=False)
    size_bytes: int
    repo: str | None = None
    header: GGUFHeader | None = field(default=None, repr=False)
    problem: str | None = None
    also: tuple[LocalModel, ...] = field(default=(), repr=False)
    """Duplicates. A duplicate that is a link to the same file counts 0 bytes."""

    @property
    def is_target(self) -> bool:
        """Whether it can write replies by itself."""
        return self.kind in (ModelKind.TARGET, ModelKind.PLAIN)

    @property
    def short_name(self) -> str:
        """Its name without the repository and the ending of a file."""
        return self.name.rpartition("/")[2].removesuffix(".gguf")

    @property
    def everywhere(self) -> tuple[LocalModel, ...]:
        """This model and its duplicates."""
        return (self, *self.also)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all its copies."""
        return sum(one.size_bytes for one in self.everywhere)


def scan(folders: Sequence[str | Path] = (), cache: Path | None = None) -> list[LocalModel]:
    """Every model on this machine, each once, and last what cannot be used. `folders` are the
    user's."""
    book = HeaderBook()
    places = [
        (paths.drafts_dir(), Source.CONVERTED),
        *((folder, Source.LM_STUDIO) for folder in lm_studio_folders()),
        (llama_cpp_folder(), Source.LLAMA_CPP),
        *((paths.expanded(own), Source.FOLDER) for own in folders),
    ]
    models = _each_once(
        chain(
            _in_cache(cache or cache_dir(), book.header),
            *(_in_folder(*place, book.header) for place in places),
            _in_ollama(book.header),
            _copies(book.header),
        )
    )
    book.save()
    return sorted(models, key=lambda model: model.kind in (ModelKind.OTHER, ModelKind.BROKEN))


def pair_of_models(target: LocalModel, draft: LocalModel | None = None) -> Pair:
    """A pair of models with their names: a blob of Ollama is named by its hash."""
    names = [model.short_name for model in (target, draft) if model]
    return pair_of_files(target.path, draft.path if draft else None, " + ".join(names))


def targets(models: Sequence[LocalModel]) -> list[tuple[LocalModel, InspectedPair]]:
    """The targets among `models`, each with the first draft that fits it, or alone."""
    drafts = [model for model in models if model.kind is ModelKind.DRAFT]
    found = []
    for model in models:
        if model.is_target:
            draft = next(iter(fitting(model, drafts)), None)
            pair = pair_of_models(model, draft)
            found.append(
                (model, InspectedPair(pair, model.header, draft.header if draft else None, None))
            )
    return found


def built_in_drafts() -> list[LocalModel]:
    """The built-in draft, which `scan` leaves out because it cannot be deleted."""
    draft = builtin_pair().draft
    return look_at([draft]) if draft is not None else []


def look_at(places: Sequence[Path]) -> list[LocalModel]:
    """The models in these folders, and these files, each once."""
    return _each_once(
        chain.from_iterable(
            _in_folder(place, Source.FOLDER, _read) if place.is_dir() else [_file(place)]
            for place in places
        )
    )


def _read(files: Sequence[Path]) -> GGUFHeader:
    return read_header(files[0])


def _file(path: Path) -> LocalModel:
    try:
        files = tuple(shard_paths(path))
    except OSError:
        files = ()
    return _recognise(plain_name(path.name), files or (path,), Source.FOLDER, None, _read)


def _each_once(models: Iterable[LocalModel]) -> list[LocalModel]:
    """The models, those of the same file or the same hash together; the first name counts."""
    identified = [(model, *_identity(model)) for model in models]
    # A file has one hash, and may have other names that do not tell it.
    hashes = {file: sha256 for _, file, sha256 in identified if sha256 is not None}
    found: dict[object, list[LocalModel]] = {}
    seen = set[object]()
    for model, file, _ in identified:
        same = found.setdefault(hashes.get(file, file), [])
        same.append(replace(model, size_bytes=0) if file in seen else model)
        seen.add(file)
    return [replace(first, also=tuple(others)) for first, *others in found.values()]


def _identity(model: LocalModel) -> tuple[object, str | None]:
    """What identifies a model's first file, and its hash if a blob on the way to it is named so."""
    real = Path(os.path.realpath(model.path))
    blobs = (hop.name for hop in hops(model.path) if hop.parent.name == "blobs")
    named = next(filter(None, map(_NAMED_BY_HASH.fullmatch, blobs)), None)
    sha256 = named[1] if named and len(model.files) == 1 else None
    try:
        stat = real.stat()
    except OSError:
        return real, sha256
    return (stat.st_dev, stat.st_ino) if stat.st_ino else real, sha256


def fitting(target: LocalModel, models: Sequence[LocalModel]) -> list[LocalModel]:
    """The drafts among `models` that fit a target, by their headers."""
    return [model for model in models if why_unfit(target, model) is None]


def why_unfit(target: LocalModel, draft: LocalModel) -> str | None:
    """Why a model is no draft for a target, by their headers; None if it is one."""
    if target.header is None or draft.header is None or draft.kind is not ModelKind.DRAFT:
        return "it is not a draft"
    return pairing.why_unfit(target.header, draft.header)


def draft_models(target: LocalModel, models: Sequence[LocalModel]) -> list[LocalModel]:
    """The whole models that may draft for a target, the smallest first."""
    if target.header is None:
        return []
    may_draft = [
        model
        for model in models
        if model.is_target and model.header and offered_kind(target.header, model.header)
    ]
    return sorted(may_draft, key=lambda model: model.size_bytes)


def drafters_of(model: LocalModel, models: Sequence[LocalModel]) -> tuple[DrafterKind, ...]:
    """What drafts for a target, besides n-grams: its own file, and the drafts among `models` that
    fit it. Of a draft, its kind. Empty for all other files."""
    if model.header is None:
        return ()
    if model.is_target:
        drafts = [kind_of(draft.header) for draft in fitting(model, models) if draft.header]
        own = kinds(model.header, None)
        return tuple(dict.fromkeys(kind for kind in (*own, *drafts) if kind is not None))
    kind = kind_of(model.header)
    return (kind,) if kind is not None else ()


def _in_cache(cache: Path, read: ReadHeader) -> Iterator[LocalModel]:
    for folder in sorted(cache.glob("models--*")):
        repo = repo_of(folder)
        for snapshot in sorted(folder.glob("snapshots/*"), key=_modified, reverse=True):
            for files in _models_under(snapshot):
                name = plain_name(f"{repo}/{files[0].relative_to(snapshot).as_posix()}")
                yield _recognise(name, files, Source.HUGGING_FACE, repo, read)
            checkpoint = _checkpoint(snapshot, repo)
            if checkpoint:
                yield checkpoint
        for left in RepoCache(cache, repo).unfinished():
            percent = 100 * left.bytes_done // max(left.bytes_total, 1)
            is_downloading = RepoCache(cache, repo).is_downloading(left.partial)
            yield LocalModel(
                name=f"{repo}/{left.path}",
                kind=ModelKind.UNFINISHED,
                source=Source.HUGGING_FACE,
                path=left.partial,
                files=left.files,
                size_bytes=left.bytes_done,
                repo=repo,
                problem=f"It is being downloaded: {percent}% is here."
                if is_downloading
                else f"Its download stopped at {percent}%; pulling it resumes.",
            )


def _in_ollama(read: ReadHeader) -> Iterator[LocalModel]:
    def order(model: ollama.OllamaModel) -> tuple[bool, str]:
        # A name that says which one it is comes before `latest`, which stands for it.
        return model.name.endswith(":latest"), model.name

    for one in sorted(ollama.models(), key=order):
        if one.problem is None:
            yield _recognise(one.name, (one.blob,), Source.OLLAMA, one.repo, read)
        else:
            name, files = printable(one.name), (one.blob,)
            kind = ModelKind.OTHER if one.is_whole else ModelKind.BROKEN
            yield LocalModel(
                name, kind, Source.OLLAMA, one.blob, files, 0, one.repo, None,
                printable(one.problem),
            )  # fmt: skip


def _copies(read: ReadHeader) -> Iterator[LocalModel]:
    """The F16 copies of targets, which only their pairs load."""
    problem = "A copy of a target that verifies drafts faster; it is written again when needed."
    for model in _in_folder(paths.reencoded_dir(), Source.CONVERTED, read):
        yield replace(model, kind=ModelKind.OTHER, problem=problem)


def _in_folder(folder: Path, source: Source, read: ReadHeader) -> Iterator[LocalModel]:
    repos = repos_in_llama_cpp(folder) if source is Source.LLAMA_CPP else []
    for files in _models_under(folder):
        relative = Path(plain_name(files[0].relative_to(folder).as_posix()))
        repo = None
        name = relative.as_posix() if len(relative.parts) > 1 else relative.stem
        if source is Source.LM_STUDIO and len(relative.parts) > 2:
            repo = "/".join(relative.parts[:2])
        elif source is Source.LLAMA_CPP and len(relative.parts) == 1:
            name, repo = name_in_llama_cpp(relative.name, repos)
        yield _recognise(name, files, source, repo, read)


def _models_under(folder: Path) -> Iterator[tuple[Path, ...]]:
    """The files of each model, the one to load first; of an incomplete split model, those there.

    Folders are searched _MAX_DEPTH levels deep, because links may form a circle.
    """
    names = [path.relative_to(folder).as_posix() for path in _ggufs(folder, _MAX_DEPTH)]
    models = [model.files for model in group_models(names)]
    complete = {name for files in models for name in files}
    incomplete: dict[object, list[str]] = {}
    for name in names:
        if name not in complete:
            shard = shard_of(name)
            model = (shard.stem, shard.count) if shard and shard.is_possible else name
            incomplete.setdefault(model, []).append(name)
    for files in (*models, *map(tuple, incomplete.values())):
        yield tuple(folder / file for file in files)


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


def _size(path: Path) -> int:
    """A file's size in bytes; 0 if it is gone or its link is broken."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _recognise(
    name: str, files: tuple[Path, ...], source: Source, repo: str | None, read: ReadHeader
) -> LocalModel:
    name, size, header, problem = printable(name), sum(map(_size, files)), None, None
    try:
        header = read(files)
    except (OSError, GGUFError) as error:
        kind, problem = ModelKind.BROKEN, _sentence(error)
    else:
        kind, problem = _kind(header)
    return LocalModel(name, kind, source, files[0], files, size, repo, header, problem)


def _kind(header: GGUFHeader) -> tuple[ModelKind, str | None]:
    if kind_of(header) is not None:
        return ModelKind.DRAFT, None
    try:
        check_headers(header, None)
    except PreflightError as error:
        return ModelKind.OTHER, _sentence(error)
    if pairing.takes_drafts(header):
        return ModelKind.TARGET, None
    reason = f"No draft runs with models of architecture {header.architecture}."
    return ModelKind.PLAIN, reason


def _sentence(error: Exception) -> str:
    text = str((isinstance(error, OSError) and error.strerror) or error)
    return f"{text[:1].upper()}{text[1:]}."


def _checkpoint(snapshot: Path, repo: str) -> LocalModel | None:
    """The draft checkpoint in a folder, recognised by its config.json."""
    files = checkpoint_in(snapshot)
    try:
        text = files[0].read_text(encoding="utf-8", errors="replace") if files else ""
    except OSError:
        return None
    if not _CHECKPOINT_SIGN.search(text):
        return None
    size = sum(map(_size, files))
    return LocalModel(repo, ModelKind.CHECKPOINT, Source.HUGGING_FACE, snapshot, files, size, repo)


def find(models: Sequence[LocalModel], text: str) -> list[LocalModel]:
    """The models that `text` may mean: a listed name, a path, a file name, a Hub reference or a
    name of Ollama. Copies of the same bytes are one model."""
    return list({id(model): model for model, _ in _meant(models, text)}.values())


def copies(models: Sequence[LocalModel], text: str) -> list[LocalModel]:
    """As `find`, but the very copies that are meant, each with the others as its duplicates."""
    found = {(one.name, _own_path(one)): (model, one) for model, one in _meant(models, text)}
    return [copy_of(model, one) for model, one in found.values()]


def copy_of(model: LocalModel, one: LocalModel) -> LocalModel:
    """One of a model's copies, with the others as its duplicates."""
    others = tuple(replace(other, also=()) for other in model.everywhere if other is not one)
    return replace(one, also=others)


def _own_path(model: LocalModel) -> Path:
    """The path of a model's first file; two commits of a repository have one blob."""
    is_cached = model.source is Source.HUGGING_FACE
    blob = RepoCache.of(model.path).blob_of(model.path) if is_cached else None
    return blob or next(hops(model.path))


def _meant(models: Sequence[LocalModel], text: str) -> list[tuple[LocalModel, LocalModel]]:
    """The copies that `text` may mean, each behind its model: by its exact name or path, else by a
    name of Ollama, else by the name of its file, else by its repository."""
    everything = [(model, one) for model in models for one in model.everywhere]
    place, lower = next(hops(paths.expanded(text.strip() or "."))), text.strip().lower()
    tagged = ollama.tagged(lower)
    by_reference = {id(one) for one in _by_reference([one for _, one in everything], text, tagged)}
    meant: list[Callable[[LocalModel], bool]] = [
        lambda one: one.name == text or place in (next(hops(file)) for file in _paths(one)),
        lambda one: one.name.lower() == lower or _ollama_name(one) == tagged,
        lambda one: lower in (one.path.name.lower(), one.path.stem.lower()),
        lambda one: id(one) in by_reference,
    ]
    stages = ([pair for pair in everything if is_meant(pair[1])] for is_meant in meant)
    return next(filter(None, stages), [])


def _paths(model: LocalModel) -> tuple[Path, ...]:
    return (model.path, *model.files)


def _by_reference(models: Sequence[LocalModel], text: str, tagged: str) -> list[LocalModel]:
    """The models in the repository that `text` refers to; those of Ollama have a tag of it."""
    try:
        reference = parse(text)
    except InvalidReferenceError:
        return []
    if isinstance(reference, LocalReference):
        return []
    repo, of_hub = reference.repo.lower(), f"hf.co/{tagged.removeprefix('hf.co/')}"
    in_repo = [one for one in models if (one.repo or "").lower() == repo]
    of_ollama = [one for one in in_repo if one.source is Source.OLLAMA]
    files = {one.name[len(repo) + 1 :]: one for one in in_repo if one.source is not Source.OLLAMA}
    found = list(files.values())
    if reference.file or reference.quantization:
        try:
            found = [files[choose(reference, list(files)).first]]
        except (InvalidReferenceError, KeyError):
            found = []
    return [*found, *(one for one in of_ollama if _ollama_name(one) == of_hub)]


def _ollama_name(model: LocalModel) -> str:
    """What `ollama.tagged` makes of a model's name there; empty for a model that is not there."""
    return ollama.tagged(model.name) if model.source is Source.OLLAMA else ""
