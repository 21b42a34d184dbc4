"""Judges a checkpoint on the Hub before its download, by the converter's own rules: its
configuration and the headers of its safetensors are a few kilobytes."""

from __future__ import annotations

from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.convert.eagle3.draft import check_config, examine
from eaglechat.hub.convert.eagle3.target import check_target
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.source.checkpoint import by_name, weight_files
from eaglechat.hub.convert.source.config import parse_config
from eaglechat.hub.convert.source.tensors import StoredTensor, header_end, parse_safetensors
from eaglechat.hub.downloads.client import Hub, RemoteFile, RemoteRepo

_FIRST_BYTES = 64 << 10
_MOST_INDEX_BYTES = 8 << 20


def why_not(hub: Hub, listing: RemoteRepo, target: GGUFHeader) -> str | None:
    """Why the converter would refuse the checkpoint of a repository for a target; None if not.

    Of files of torch.save only the configuration is judged. Raises HubError.
    """

    def content(name: str) -> bytes:
        return hub.read_small(listing.file(name), _MOST_INDEX_BYTES)

    names = [path for path in listing.paths if "/" not in path]
    try:
        check_target(target)
        config = parse_config(content("config.json"), f"{listing.repo}/config.json")
        check_config(config, target)
        files = [listing.file(name) for name in weight_files(names, content, listing.repo)]
        if all(file.path.endswith(".safetensors") for file in files):
            stored = (tensor for file in files for tensor in _tensors(hub, file))
            examine(by_name(stored), config, target)
    except ConversionError as error:
        return str(error)
    return None


def _tensors(hub: Hub, file: RemoteFile) -> list[StoredTensor]:
    """The tensors of a safetensors file. Raises HubError, ConversionError."""
    path = Path(file.path)
    beginning = hub.read_range(file, 0, _FIRST_BYTES)
    end = header_end(beginning, path)
    if end > len(beginning):
        beginning += hub.read_range(file, len(beginning), end)
    return parse_safetensors(beginning, path, file.size)
