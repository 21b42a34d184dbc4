"""Parses references to models, and chooses the GGUF files of a repository that one means.

Accepted are llama.cpp's form (`user/repo:Q4_K_M`), Ollama's (`hf.co/user/repo`), the address of a
page of the Hub, `hf:user/repo`, and paths. Names that come from a repository or an address become
paths here: none may lead out of its folder, and a cache filled on one system must work on every
other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from msgspec import Meta

from eaglechat.gguf.shards import plain_name, shard_of
from eaglechat.paths import expanded
from eaglechat.wire.drafters import DRAFTERS
from eaglechat.wire.errors import EngineError

DEFAULT_QUANTIZATIONS = ("Q4_K_M", "Q8_0")
"""What a reference without a quantisation means, in this order; else the first file, as in
llama.cpp."""

REVISION = r"^[A-Za-z0-9_](?!.*(\.\.|//|/\.|\./))[A-Za-z0-9._/+-]*(?<![./])\Z"
"""A branch, a tag, a commit or refs/pr/1, without what has a meaning in paths (`..`, `//`)."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\:]")
# Windows opens a device for these names, with any ending.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\Z", re.I)

_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
OLLAMA_HOSTS = ("registry.ollama.ai", "ollama.com", "www.ollama.com")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
NOT_WEIGHTS = re.compile(r"training_args|optimizer|scheduler|rng_state", re.IGNORECASE)
"""Files of a training run that have the endings of weights."""
_BESIDE = re.compile(r"(^|[-_.])(mmproj|imatrix)([-_.]|$)", re.IGNORECASE)
_KINDS = "|".join(one.in_files for one in DRAFTERS.values() if one.in_files)
DRAFT_NAME = re.compile(rf"{_KINDS}|speculator|gemma-4.*assistant|(^|/)mtp-", re.IGNORECASE)
"""How drafts and their repositories are named."""
MTP_NAME = re.compile(r"(^|[-_.])mtp([-_.]|$)", re.IGNORECASE)
"""In a whole model's name, mtp stands further back: its heads are in the same file."""
_FORMS = "write user/repo, user/repo:Q4_K_M, user/repo/file.gguf or a Hub address"


class InvalidReferenceError(EngineError):
    """A reference cannot be understood, or nothing matches it."""

    status = 2


RepoName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")]
GGUFName = Annotated[str, Meta(pattern=r"\.gguf\Z")]
Revision = Annotated[str, Meta(pattern=REVISION)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Size = Annotated[int, Meta(ge=1)]


class ModelSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What names a model, in the catalogue or as a user does: a GGUF in `repo` on the Hub, by file
    (of a split one, the first), by quantisation, or the default; a `checkpoint` that is converted
    after its download; or the `path` of a GGUF on this machine. With none of them it is no model,
    and false."""

    repo: RepoName = ""
    checkpoint: RepoName = ""
    path: str = ""
    file: GGUFName | None = None
    quantization: str | None = None
    revision: Revision = "main"
    size: Size | None = None
    """Bytes when the catalogue was written, for display; a download uses the Hub's size."""
    sha256: Sha256 | None = None

    def __post_init__(self) -> None:
        n_places = sum(map(bool, (self.repo, self.checkpoint, self.path)))
        of_file = (self.file, self.quantization, self.sha256)
        if n_places > 1 or (n_places == 0 and any((*of_file, self.size))):
            raise ValueError(
                "needs either repo (a GGUF), checkpoint (to convert) or path (on this machine)"
            )
        if any(of_file) and not self.repo:
            raise ValueError("only a repo has file, quantization or sha256 beside it")
        if self.file and self.quantization:
            raise ValueError("names a file and a quantisation: leave one of them out")

    def __bool__(self) -> bool:
        return bool(self.of_hub or self.path)

    def __str__(self) -> str:
        of_repo = f":{self.quantization}" if self.quantization else ""
        of_repo = f"/{self.file}" if self.file else of_repo
        return self.path or self.checkpoint or self.repo + of_repo

    @property
    def is_open(self) -> bool:
        """Whether it leaves the choice between the models of a repository."""
        return bool(self.repo) and not (self.file or self.quantization)

    @property
    def of_hub(self) -> str:
        """The repository on the Hub; empty for a file on this machine, and for no model."""
        return self.repo or self.checkpoint

    @property
    def local(self) -> Path:
        """Where `path` leads."""
        return expanded(self.path)


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model, in order: several for a split GGUF."""

    files: tuple[str, ...]

    @property
    def first(self) -> str:
        """The file to load."""
        return self.files[0]

    @property
    def name(self) -> str:
        """The file's name without folder, shard number and ending."""
        name = PurePosixPath(self.first).name
        shard = shard_of(name)
        return shard.stem if shard else name[: -len(".gguf")]

    @property
    def is_draft(self) -> bool:
        """Whether the name suggests a draft; only the header can confirm it."""
        return bool(DRAFT_NAME.search(self.name))


def hub_hosts() -> dict[str, str]:
    """Hosts of the Hub, including the mirror that HF_ENDPOINT names, and the path that precedes a
    repository's name in their addresses."""
    try:
        mirror = urlsplit(os.environ.get("HF_ENDPOINT", ""))
    except ValueError:  # what asks the Hub tells it
        mirror = urlsplit("")
    own = {mirror.netloc.lower(): f"{mirror.path.strip('/')}/".lstrip("/")} if mirror.netloc else {}
    return {**own, **dict.fromkeys(_HOSTS, "")}


def parse(text: str) -> ModelSource:
    """A model by its `repo` or its `path`. Raises InvalidReferenceError with the accepted forms."""
    text = text.strip()
    if not text:
        raise InvalidReferenceError(f"The reference is empty: {_FORMS}.")
    hosts = hub_hosts()
    text = re.sub("^hf:(//)?", "hf.co/", text)
    scheme, _, address = re.sub("^(?![a-zA-Z]+://)", "https://", text).partition("://")
    host, _, rest = address.partition("/")
    if host.lower() in OLLAMA_HOSTS:
        raise InvalidReferenceError(
            f"{text} is a model of Ollama: `ollama pull {rest.removeprefix('library/')}` downloads "
            "it, and it is found in Ollama's store."
        )
    if host.lower() in hosts:
        # A page that shows a file of a repository names it behind the path.
        path, _, query = rest.partition("#")[0].partition("?")
        path = unquote(path).strip("/").removeprefix(hosts[host.lower()])
        return _parse_hub("/".join([path, *parse_qs(query).get("show_file_info", ())]), text)
    if "://" in text:
        raise InvalidReferenceError(
            f"{text} is not on the Hugging Face Hub: {_FORMS}; if it is a mirror of the Hub, set "
            f"HF_ENDPOINT to {scheme}://{host}."
        )
    if _is_local(text):
        return ModelSource(path=str(expanded(text)))
    return _parse_hub(text, text)


def _is_local(text: str) -> bool:
    if text.startswith(("/", "./", "../", "~", ".\\", "..\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    # An existing file is preferred to a repository of that name; an existing folder is not.
    with suppress(OSError):  # too long for a name
        if Path(text).is_file():
            return True
    return "/" not in text and text.lower().endswith(".gguf")


def _parse_hub(path: str, text: str) -> ModelSource:
    path, _, quantization = path.strip("/").partition(":")
    if quantization.lower() == "latest":
        quantization = ""
    elif quantization.lower().endswith(".gguf"):
        path, quantization = f"{path}/{quantization}", ""
    parts = path.split("/")
    if parts[:1] in (["datasets"], ["spaces"]):
        raise InvalidReferenceError(f"{text} is a {parts[0][:-1]}, not a model: {_FORMS}.")
    if len(parts) < 2 or not all(_NAME.fullmatch(part) for part in parts[:2]):
        raise InvalidReferenceError(f"{text!r} names no model: {_FORMS}.")
    repo, rest, revision = "/".join(parts[:2]), parts[2:], "main"
    if rest[:1] and rest[0] in ("resolve", "blob", "tree") and len(rest) > 1:
        revision, rest = rest[1], rest[2:]
    if not is_revision(revision):
        raise InvalidReferenceError(f"{text!r} names no revision of {repo}: {_FORMS}.")
    file = "/".join(rest) or None
    if file and not file.lower().endswith(".gguf"):
        raise InvalidReferenceError(f"{file} in {repo} is not a GGUF file: {_FORMS}.")
    if file and quantization:
        raise InvalidReferenceError(
            f"{text!r} names a file and a quantisation: leave one of them out."
        )
    return ModelSource(
        repo=repo, quantization=quantization.upper() or None, file=file, revision=revision
    )


def group_models(files: Iterable[str], *, broken: bool = False) -> list[ModelFiles]:
    """The GGUF models among `files`; a split GGUF is one model. `broken`: also those that cannot be
    loaded, because files are missing."""
    shards: dict[tuple[str, int], dict[int, str]] = {}
    models: list[ModelFiles] = []
    for file in files:
        shard = shard_of(file)
        if shard is not None:
            shards.setdefault((shard.stem, shard.count), {})[shard.number] = file
        elif file.lower().endswith(".gguf"):
            models.append(ModelFiles((file,)))
    for (_, count), found in shards.items():
        if broken or len(found) == count:
            models.append(ModelFiles(tuple(file for _, file in sorted(found.items()))))
    return sorted(models, key=lambda model: model.first)


def whole_models(files: Iterable[str]) -> list[ModelFiles]:
    """The models among `files` that are no projectors, drafts or sidecars, by their names. One with
    mtp inside its name may be either: it counts if there is no other."""
    models = [
        model
        for model in group_models(files)
        if not model.is_draft and not _BESIDE.search(model.name)
    ]
    return [model for model in models if not MTP_NAME.search(model.name)] or models


def choose(reference: ModelSource, files: Sequence[str], *, is_target: bool = False) -> ModelFiles:
    """The model that a reference means among the files of its repository. A target is no draft
    beside it, also where there is nothing else.

    Raises InvalidReferenceError, listing what there is, if none or more than one matches.
    """
    models = group_models(files)
    if not models:
        raise InvalidReferenceError(f"{reference.repo} holds no complete GGUF model.")
    if reference.file:
        for model in models:
            if reference.file in (*model.files, plain_name(model.first)):
                return model
        raise InvalidReferenceError(
            f"{reference.repo} has no complete model {reference.file}; it has {_names(models)}."
        )
    # `user/repo` does not mean a projector or a draft unless there is nothing else.
    plain = whole_models(files)
    if not plain and is_target:
        raise InvalidReferenceError(f"{reference.repo} holds no target, only {_names(models)}.")
    plain = plain or models
    if reference.quantization:
        found = _with_quantization(reference.quantization, plain)
        if not found and len(plain) == 1:
            # A repository of one quantisation may name it, and its file not.
            is_repos = re.search(
                rf"[-_.]{re.escape(reference.quantization)}([-.]|$)", reference.repo, re.IGNORECASE
            )
            found = plain if is_repos else []
        if not found:
            raise InvalidReferenceError(
                f"{reference.repo} has no {reference.quantization}; it has {_names(plain)}."
            )
        if len(found) > 1:
            raise InvalidReferenceError(
                f"{reference} could be {_names(found)}: write {reference.repo}/ and the file."
            )
        return found[0]
    for quantization in DEFAULT_QUANTIZATIONS:
        found = _with_quantization(quantization, plain)
        if found:
            return found[0]
    return plain[0]


def _with_quantization(quantization: str, models: list[ModelFiles]) -> list[ModelFiles]:
    """Models whose name ends in the quantisation, else those that have it as a word of their name,
    else as their folder; UD-Q4_K_M matches Q4_K_M if no exact one does."""
    word = rf"(?:^|[-_.]){re.escape(quantization)}"
    dynamic = re.compile(rf"[-_.]UD[-_.]{re.escape(quantization)}", re.IGNORECASE)
    names = {model: model.name for model in models}
    folders = {model: PurePosixPath(model.first).parent.name for model in models}
    for pattern, named in (
        (rf"{word}$", names),
        (rf"{word}(?=[-.])", names),
        (rf"{word}$", folders),
    ):
        found = [m for m in models if re.search(pattern, named[m], re.IGNORECASE)]
        if found:
            return [model for model in found if not dynamic.search(named[model])] or found
    return []


def _names(models: Sequence[ModelFiles]) -> str:
    shown = [model.first for model in models[:8]]
    more = f" and {len(models) - 8} more" if len(models) > 8 else ""
    return ", ".join(shown) + more


def is_safe_path(path: str) -> bool:
    """Whether a path in a repository stays inside the repository's folder, on Windows too."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not _UNSAFE.search(path) and all(map(_is_safe_part, parts))


def is_revision(text: str) -> bool:
    return re.search(REVISION, text) is not None and is_safe_path(text)


def _is_safe_part(part: str) -> bool:
    """Neither `..` nor the root, nor a name that Windows takes for a device or shortens."""
    stem = part.partition(".")[0].rstrip(" ")
    return part[-1] not in ". /" and not _DEVICE.match(stem)
