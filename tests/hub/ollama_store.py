"""Makes stores as Ollama writes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODEL = "application/vnd.ollama.image.model"


def put_blob(store: Path, data: bytes) -> str:
    """Store bytes; their digest."""
    sha256 = hashlib.sha256(data).hexdigest()
    blob = store / "blobs" / f"sha256-{sha256}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    return f"sha256:{sha256}"


def layer(digest: str, media_type: str = MODEL) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": 1}


def manifest(*layers: dict[str, Any]) -> bytes:
    others = [layer("sha256:" + "0" * 64, "application/vnd.ollama.image.license")]
    return json.dumps({"schemaVersion": 2, "config": {}, "layers": [*layers, *others]}).encode()


def put_manifest(store: Path, name: str, data: bytes, folder: str = "manifests") -> Path:
    """`name` is HOST/NAMESPACE/MODEL/TAG, or the last two of Ollama's own library."""
    parts: Sequence[str] = name.split("/")
    whole = ["registry.ollama.ai", "library", *parts] if len(parts) == 2 else parts
    path = store.joinpath(folder, *whole)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def put(store: Path, name: str, data: bytes) -> Path:
    """A model of one file; its blob."""
    digest = put_blob(store, data)
    put_manifest(store, name, manifest(layer(digest)))
    return store / "blobs" / digest.replace(":", "-")
