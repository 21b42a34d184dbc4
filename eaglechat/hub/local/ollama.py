"""Ollama's stores, which are read and never written.

manifests/HOST/NAMESPACE/MODEL/TAG is JSON that lists a model's layers; blobs/sha256-HASH has the
bytes of each. Newer releases keep manifests-v2/ beside it: its files are links to blobs, and a
manifest may list others instead of layers.
Source: manifest/ and types/model/name.go of github.com/ollama/ollama.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from eaglechat.gguf.header import printable
from eaglechat.hub.local.model import LocalModel, ModelKind, Source, size_of
from eaglechat.hub.references import OLLAMA_HOSTS, hub_hosts

_MODEL = "application/vnd.ollama.image.model"
_ADAPTER = "application/vnd.ollama.image.adapter"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})", re.IGNORECASE)
_LARGEST_MANIFEST = 4 << 20
"""Bytes. A manifest has a kilobyte, or a layer per tensor in formats other than GGUF."""


class ManifestError(ValueError):
    """A manifest that names no GGUF; the text is one sentence that says why."""

    kind = ModelKind.BROKEN


class OnlyOllamaError(ManifestError):
    """A model that is whole, but in a form that only Ollama runs."""

    kind = ModelKind.OTHER


class _Part(msgspec.Struct, frozen=True):
    digest: str = ""
    media_type: str = msgspec.field(default="", name="mediaType")


class _Manifest(msgspec.Struct, frozen=True):
    layers: list[_Part] | None = None
    manifests: list[_Part] | None = None


def stores() -> list[Path]:
    """The folders in which Ollama keeps models: that of OLLAMA_MODELS, or those of the user and of
    the services that installers set up."""
    own = os.environ.get("OLLAMA_MODELS")
    if own:
        return [Path(own)]
    return [
        Path.home() / ".ollama" / "models",
        Path("/usr/share/ollama/.ollama/models"),
        Path("/var/lib/ollama"),
    ]


def tagged(text: str) -> str:
    """What `ollama list` calls the model of this name, in lower case: the host and the library of
    Ollama are left out, and a name without a tag means the latest."""
    name = re.sub(r"^hf:(//)?", "hf.co/", text.lower()).rpartition("://")[2]
    host, _, rest = name.partition("/")
    if rest and host in OLLAMA_HOSTS:
        name = rest
    elif rest and host in hub_hosts():
        name = f"hf.co/{rest}"
    name = name.removeprefix("library/").removesuffix(":")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def models() -> Iterator[LocalModel]:
    """The models of all stores by their names in `ollama list`, unread, and what of the stores
    cannot be used. A name is given once."""
    for store in stores():
        named: set[str] = set()
        for root in (store / "manifests-v2", store / "manifests"):
            for path in _files(root, depth=4):
                model = path if isinstance(path, LocalModel) else _model(store, root, path)
                if model.path == root:
                    # Of a store that is closed as a whole, it is told once.
                    model = replace(model, name=str(store))
                if model.name not in named:
                    named.add(model.name)
                    yield model


def _files(folder: Path, depth: int) -> Iterator[Path | LocalModel]:
    """The files exactly `depth` folders deep, without following links to folders."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        problem = f"Ollama's store cannot be read: {error.strerror or error}."
        yield _of_store(str(folder), folder, ModelKind.BROKEN, problem=problem)
        return
    for entry in entries:
        try:
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), depth - 1)
            elif depth == 1 and entry.is_file():
                yield Path(entry.path)
        except OSError:  # a link that leads in a circle
            continue


def _model(store: Path, root: Path, path: Path) -> LocalModel:
    """The model of a manifest, whose path is its own if the manifest names no weights."""
    host, space, model, tag = path.relative_to(root).parts
    repo = f"{space}/{model}" if host in hub_hosts() else None
    parts = [host, space, model]
    if host in OLLAMA_HOSTS:
        parts = [model] if space == "library" else [space, model]
    name, kind = f"{'/'.join(parts)}:{tag}", ModelKind.BROKEN
    try:
        blob = store / "blobs" / f"sha256-{weights(store, path)}"
        is_here = blob.is_file()
        problem = f"Its weights are not in Ollama's store; `ollama pull {name}` fetches them."
    except OSError as error:
        is_here, problem = False, f"It cannot be read: {error.strerror or error}."
    except ManifestError as error:
        is_here, problem, kind = False, str(error), error.kind
    if is_here:
        return _of_store(name, blob, ModelKind.UNREAD, repo)
    return _of_store(name, path, kind, repo, problem)


def _of_store(
    name: str, path: Path, kind: ModelKind, repo: str | None = None, problem: str | None = None
) -> LocalModel:
    size = size_of([path]) if kind is ModelKind.UNREAD else 0
    said = printable(problem) if problem is not None else None
    return LocalModel(printable(name), kind, Source.OLLAMA, path, (path,), size, repo, problem=said)


def weights(store: Path, manifest: Path) -> str:
    """The hash of the GGUF that a manifest names. Raises ManifestError, OSError."""
    read = _read(manifest)
    layers = read.layers or []
    if not layers:
        for listed in read.manifests or []:
            digest = _DIGEST.fullmatch(listed.digest)
            if digest:
                blob = store / "blobs" / f"sha256-{digest[1].lower()}"
                layers = _read(blob).layers or []
            if any(layer.media_type == _MODEL for layer in layers):
                break
    of_model = [layer for layer in layers if layer.media_type == _MODEL]
    if any(layer.media_type == _ADAPTER for layer in layers):
        raise OnlyOllamaError("It has an adapter, which only Ollama applies.")
    if len(of_model) != 1:
        raise OnlyOllamaError(
            "Its weights are in several files, which only Ollama reads."
            if of_model
            else "Its manifest names no GGUF: it runs in the cloud, or has another format."
        )
    digest = _DIGEST.fullmatch(of_model[0].digest)
    if digest is None:
        raise ManifestError("Its manifest names its weights by something that is no SHA-256.")
    return digest[1].lower()


def _read(path: Path) -> _Manifest:
    with path.open("rb") as file:
        data = file.read(_LARGEST_MANIFEST + 1)
    if len(data) > _LARGEST_MANIFEST:
        raise ManifestError(f"Its manifest is larger than {_LARGEST_MANIFEST >> 20} MiB.")
    try:
        return msgspec.json.decode(data, type=_Manifest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ManifestError(f"Its manifest is not what Ollama writes ({error}).") from None
