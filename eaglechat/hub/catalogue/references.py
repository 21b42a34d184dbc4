"""References to models as people write them, and the choice among a repository's GGUF files.

The forms are those of llama.cpp (`user/repo:Q4_K_M`), Ollama (`hf.co/user/repo`), a browser's
address bar, and paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from eaglechat.gguf.shards import shard_of
from eaglechat.hub.catalogue.names import is_revision
from eaglechat.paths import expanded

DEFAULT_QUANTIZATIONS = ("Q4_K_M", "Q8_0")
"""What is taken when a reference names none, best first; then the first file, as llama.cpp."""

_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SIDECAR = re.compile(r"(^|[-_.])(eagle-?3|mmproj|mtp|imatrix)([-_.]|$)", re.IGNORECASE)
_EAGLE3 = re.compile(r"eagle-?3", re.IGNORECASE)
_FORMS = "write user/repo, user/repo:Q4_K_M, user/repo/file.gguf or a Hub address"


class InvalidReferenceError(ValueError):
    """The reference cannot be followed; the text is one sentence that says why."""


@dataclass(frozen=True)
class LocalReference:
    """A file on this machine."""

    path: Path


@dataclass(frozen=True)
class HubReference:
    """A model in a repository on the Hub: by file, by quantisation, or the default one."""

    repo: str
    quantization: str | None = None
    file: str | None = None
    revision: str = "main"

    def __str__(self) -> str:
        if self.file:
            return f"{self.repo}/{self.file}"
        return f"{self.repo}:{self.quantization}" if self.quantization else self.repo


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model in a listing, in order: several for a split GGUF."""

    files: tuple[str, ...]

    @property
    def first(self) -> str:
        """The file a loader is pointed at."""
        return self.files[0]

    @property
    def name(self) -> str:
        """The file's name without folder, shard number and ending."""
        name = PurePosixPath(self.first).name
        shard = shard_of(name)
        return shard.stem if shard else name[: -len(".gguf")]

    @property
    def is_eagle3(self) -> bool:
        """Whether the name says it is a draft; only its header can tell."""
        return bool(_EAGLE3.search(self.name))


def _hosts() -> dict[str, str]:
    """Hosts whose addresses name models, and the path before a model's name there: those of the
    Hub, and of the mirror that HF_ENDPOINT names."""
    mirror = urlsplit(os.environ.get("HF_ENDPOINT", ""))
    own = {mirror.netloc.lower(): f"{mirror.path.strip('/')}/".lstrip("/")} if mirror.netloc else {}
    return {**own, **dict.fromkeys(_HOSTS, "")}


def parse(text: str) -> LocalReference | HubReference:
    """Read a reference. Raises InvalidReferenceError with the forms that are understood."""
    text = text.strip()
    if not text:
        raise InvalidReferenceError(f"The reference is empty: {_FORMS}.")
    if "://" in text:
        return _parse_url(text)
    host, _, rest = text.partition("/")
    if host.lower() in _hosts():
        return _parse_hub(rest.removeprefix(_hosts()[host.lower()]), text)
    if _is_local(text):
        return LocalReference(expanded(text))
    return _parse_hub(text, text)


def _is_local(text: str) -> bool:
    if text.startswith(("/", "./", "../", "~", ".\\", "..\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    # A file that is there wins over a repository's name; a folder called user/repo does not.
    return _is_file(text) or ("/" not in text and text.lower().endswith(".gguf"))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # too long for a name
        return False


def _parse_url(text: str) -> HubReference:
    address = urlsplit(text)
    before = _hosts().get(address.netloc.lower())
    if before is None:
        raise InvalidReferenceError(f"{text} is not on the Hugging Face Hub: {_FORMS}.")
    return _parse_hub(unquote(address.path).lstrip("/").removeprefix(before), text)


def _parse_hub(path: str, text: str) -> HubReference:
    path, _, quantization = path.strip("/").partition(":")
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
    return HubReference(repo, quantization.upper() or None, file, revision)


def group_models(files: Iterable[str]) -> list[ModelFiles]:
    """The models among the files of a listing; a split GGUF is one, if all its files are there.

    A split model with files missing is left out: it cannot be loaded.
    """
    shards: dict[tuple[str, int], dict[int, str]] = {}
    models: list[ModelFiles] = []
    for file in files:
        shard = shard_of(file)
        if shard is None and file.lower().endswith(".gguf"):
            models.append(ModelFiles((file,)))
        elif shard is not None and shard.is_possible:
            shards.setdefault((shard.stem, shard.count), {})[shard.number] = file
    for (_, count), found in shards.items():
        if len(found) == count:
            models.append(ModelFiles(tuple(file for _, file in sorted(found.items()))))
    return sorted(models, key=lambda model: model.first)


def choose(reference: HubReference, files: Sequence[str]) -> ModelFiles:
    """The model a reference means among the files of its repository.

    Raises InvalidReferenceError where nothing or more than one fits, listing what there is.
    """
    models = group_models(files)
    if not models:
        raise InvalidReferenceError(f"{reference.repo} holds no complete GGUF model.")
    if reference.file:
        return _by_file(reference, models)
    # Projectors and drafts beside a target are not what `user/repo` means, unless nothing else is.
    plain = [model for model in models if not _SIDECAR.search(model.name)] or models
    if reference.quantization:
        return _by_quantization(reference, reference.quantization, plain)
    for quantization in DEFAULT_QUANTIZATIONS:
        found = _with_quantization(quantization, plain)
        if found:
            return found[0]
    return plain[0]


def _by_file(reference: HubReference, models: list[ModelFiles]) -> ModelFiles:
    for model in models:
        if reference.file in model.files:
            return model
    raise InvalidReferenceError(
        f"{reference.repo} has no complete model {reference.file}; it has {_names(models)}."
    )


def _by_quantization(
    reference: HubReference, quantization: str, models: list[ModelFiles]
) -> ModelFiles:
    found = _with_quantization(quantization, models)
    if not found:
        raise InvalidReferenceError(
            f"{reference.repo} has no {quantization}; it has {_names(models)}."
        )
    if len(found) > 1:
        raise InvalidReferenceError(
            f"{reference} could be {_names(found)}: write {reference.repo}/ and the file."
        )
    return found[0]


def _with_quantization(quantization: str, models: list[ModelFiles]) -> list[ModelFiles]:
    """Models whose name ends in the quantisation; an exact tag wins over one like UD-Q4_K_M."""
    ending = re.compile(rf"(?:^|[-_.]){re.escape(quantization)}$", re.IGNORECASE)
    found = [model for model in models if ending.search(model.name)]
    dynamic = re.compile(rf"[-_.]UD[-_.]{re.escape(quantization)}$", re.IGNORECASE)
    return [model for model in found if not dynamic.search(model.name)] or found


def _names(models: Sequence[ModelFiles]) -> str:
    shown = [model.first for model in models[:8]]
    more = f" and {len(models) - 8} more" if len(models) > 8 else ""
    return ", ".join(shown) + more
