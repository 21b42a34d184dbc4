"""Finds the files of a checkpoint that hold its weights, and the tensors in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from eaglechat.hub.convert.tensors import (
    CheckpointFile,
    StoredTensor,
    decode_json,
    read_safetensors,
)
from eaglechat.hub.convert.unpickle import read_bin
from eaglechat.hub.errors import ConversionError


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def open_checkpoint(path: Path) -> tuple[Path, dict[str, StoredTensor]]:
    """The directory of a checkpoint, and its tensors by their names in the files.

    `path` is the directory or one weights file. In a directory, safetensors files are preferred to
    `.bin` files; a file with any other ending is read as one of torch.save.
    Raises ConversionError, OSError.
    """
    if not path.exists():
        raise ConversionError(f"the checkpoint {path} does not exist")
    # Opening a pipe would wait until someone writes to it.
    if not path.is_file() and not path.is_dir():
        raise ConversionError(f"the checkpoint {path} is a device or a pipe, not a file")
    if path.is_file():
        return path.parent, read_weights([path])
    present = {file.name for file in path.iterdir() if file.is_file()}
    names = weight_files(present, lambda name: (path / name).read_bytes(), path)
    return path, read_weights(path / name for name in names)


def read_weights(files: Iterable[CheckpointFile]) -> dict[str, StoredTensor]:
    """The tensors of all files. Raises ConversionError if two files hold the same one, OSError."""
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        read = read_safetensors if file.name.endswith(".safetensors") else read_bin
        for tensor in read(file):
            if tensor.name in tensors:
                raise ConversionError(
                    f"{tensor.name} is both in {tensors[tensor.name].file.name} and in {file.name}"
                )
            tensors[tensor.name] = tensor
    return tensors


def weight_files(names: Collection[str], read: Callable[[str], bytes], place: object) -> list[str]:
    """Those of the files `names` that hold weights; `read` returns the content of an index file.

    `place` names their directory or repository in errors.
    Raises ConversionError, and what `read` raises.
    """
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        index = f"{stem}{suffix}.index.json"
        if index in names:
            weight_map = decode_json(read(index), _Index, f"{place}/{index}").weight_map
            listed = sorted(set(weight_map.values()))
            outside = [name for name in listed if Path(name).name != name]
            if outside:
                raise ConversionError(
                    f"{place}/{index} names a file outside its directory: {outside[0]}"
                )
            missing = [name for name in listed if name not in names]
            if missing:
                raise ConversionError(
                    f"{place} lacks {', '.join(missing)}, named in {index}; download it again"
                )
            return listed
        files = sorted(name for name in names if name.startswith(stem) and name.endswith(suffix))
        if files:
            return files
    raise ConversionError(
        f"{place} holds no weights: neither model*.safetensors nor pytorch_model*.bin; "
        "if they have another name, give the file instead of the directory"
    )
