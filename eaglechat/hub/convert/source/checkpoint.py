"""A checkpoint as a directory: which of its files hold the weights, and the tensors in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.source import typed_json
from eaglechat.hub.convert.source.tensors import StoredTensor, read_safetensors
from eaglechat.hub.convert.source.unpickle import read_bin


@dataclass(frozen=True)
class Checkpoint:
    """The directory with config.json, and every tensor by its name in the files."""

    directory: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, StoredTensor]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def open_checkpoint(path: Path) -> Checkpoint:
    """Find the weights in a directory, or take the one file that is named.

    Safetensors come before `.bin` where a directory has both; a file with another ending is taken
    for one of torch.save. Raises ConversionError, OSError.
    """
    if not path.exists():
        raise ConversionError(f"the checkpoint {path} does not exist")
    directory = path if path.is_dir() else path.parent
    files = _weight_files(path) if path.is_dir() else [path]
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for tensor in read_safetensors(file) if file.suffix == ".safetensors" else read_bin(file):
            if tensor.name in tensors:
                raise ConversionError(
                    f"{tensor.name} is both in {tensors[tensor.name].path.name} and in {file.name}"
                )
            tensors[tensor.name] = tensor
    return Checkpoint(directory, tuple(files), tensors)


def _weight_files(directory: Path) -> list[Path]:
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        index = directory / f"{stem}{suffix}.index.json"
        if index.exists():
            return _indexed(index)
        files = sorted(directory.glob(f"{stem}*{suffix}"))
        if files:
            return files
    raise ConversionError(
        f"{directory} holds no weights: neither model*.safetensors nor pytorch_model*.bin; "
        "if they have another name, give the file instead of the directory"
    )


def _indexed(index: Path) -> list[Path]:
    names = set(typed_json.decode(index.read_bytes(), _Index, str(index)).weight_map.values())
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ConversionError(f"{index} names a file outside its directory: {outside[0]}")
    files = [index.parent / name for name in sorted(names)]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise ConversionError(
            f"{index.parent} lacks {', '.join(missing)}, named in {index.name}; download it again"
        )
    return files
