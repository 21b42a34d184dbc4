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
    """A manifest that names no GGUF; the text is one sentence that says why. `kind` is OTHER for a
    model that is whole, but in a form that only Ollama runs."""

    def __init__(self, why: str, kind: ModelKind = ModelKind.BROKEN) -> None:
        super().__init__(why)
        self.kind = kind


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
        found: dict[str, LocalModel] = {}
        for root in (store / "manifests-v2", store / "manifests"):
            closed: list[OSError] = []
            for folder, folders, files in os.walk(root, onerror=closed.append):
                folders.sort()
                if len(Path(folder).relative_to(root).parts) == 3:
                    folders.clear()
                    for path in (Path(folder, file) for file in sorted(files)):
                        if path.is_file():
                            model = _model(store, root, path)
                            found.setdefault(model.name, model)
            for error in closed:
                if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    # Of a store that is closed as a whole, it is told once.
                    place = store if error.filename == str(root) else Path(error.filename)
                    problem = f"Ollama's store cannot be read: {error.strerror or error}."
                    found.setdefault(
                        str(place), _listed(str(place), place, ModelKind.BROKEN, problem)
                    )
        yield from found.values()


def _model(store: Path, root: Path, path: Path) -> LocalModel:
    """The model of a manifest, whose path is its own if the manifest names no weights."""
    host, space, model, tag = path.relative_to(root).parts
    parts = [host, space, model]
    if host in OLLAMA_HOSTS:
        parts = [model] if space == "library" else [space, model]
    name, kind = f"{'/'.join(parts)}:{tag}", ModelKind.BROKEN
    problem = f"Its weights are not in Ollama's store; `ollama pull {name}` fetches them."
    repo = f"{space}/{model}" if host in hub_hosts() else None
    try:
        blob = store / "blobs" / f"sha256-{weights(store, path)}"
        if blob.is_file():
            return _listed(name, blob, ModelKind.UNREAD, None, repo)
    except OSError as error:
        problem = f"It cannot be read: {error.strerror or error}."
    except ManifestError as error:
        problem, kind = str(error), error.kind
    return _listed(name, path, kind, problem, repo)


def _listed(
    name: str, path: Path, kind: ModelKind, problem: str | None, repo: str | None = None
) -> LocalModel:
    size = 0 if problem else size_of([path])
    said = printable(problem) if problem else None
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
    of_model = [layer.digest for layer in layers if layer.media_type == _MODEL]
    only_ollama = (
        (
            any(layer.media_type == _ADAPTER for layer in layers),
            "It has an adapter, which only Ollama applies.",
        ),
        (not of_model, "Its manifest names no GGUF: it runs in the cloud, or has another format."),
        (len(of_model) > 1, "Its weights are in several files, which only Ollama reads."),
    )
    for is_so, why in only_ollama:
        if is_so:
            raise ManifestError(why, ModelKind.OTHER)
    digest = _DIGEST.fullmatch(of_model[0])
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
