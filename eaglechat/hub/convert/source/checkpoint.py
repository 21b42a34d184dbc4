"""A checkpoint as a directory: which of its files hold the weights, and the tensors in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec

from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.source import typed_json
from eaglechat.hub.convert.source.tensors import Place, StoredTensor, read_safetensors
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
    directory, names = path.parent, [path.name]
    # Opening a pipe waits for somebody to write into it.
    if not path.is_file() and not path.is_dir():
        raise ConversionError(f"the checkpoint {path} is a device or a pipe, not a file")
    if path.is_dir():
        here = {file.name for file in path.iterdir() if file.is_file()}
        directory, names = path, weight_files(here, lambda name: (path / name).read_bytes(), path)
    files = tuple(directory / name for name in names)
    return Checkpoint(directory, files, read_weights(files))


def read_weights(files: Iterable[Place]) -> dict[str, StoredTensor]:
    """The tensors of all files of a checkpoint. Raises ConversionError for one that is twice."""
    tensors: dict[str, StoredTensor] = {}
    for tensor in chain.from_iterable(map(_read, files)):
        if tensor.name in tensors:
            raise ConversionError(
                f"{tensor.name} is both in {tensors[tensor.name].path.name} and in "
                f"{tensor.path.name}"
            )
        tensors[tensor.name] = tensor
    return tensors


def _read(file: Place) -> list[StoredTensor]:
    return read_safetensors(file) if file.name.endswith(".safetensors") else read_bin(file)


def weight_files(names: Collection[str], read: Callable[[str], bytes], place: object) -> list[str]:
    """Which of the files of a checkpoint hold its weights; `read` gives an index' content.

    `place` is where they are, for the errors. Raises ConversionError, and what `read` raises.
    """
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        index = f"{stem}{suffix}.index.json"
        if index in names:
            return _indexed(index, names, read(index), place)
        files = sorted(name for name in names if name.startswith(stem) and name.endswith(suffix))
        if files:
            return files
    raise ConversionError(
        f"{place} holds no weights: neither model*.safetensors nor pytorch_model*.bin; "
        "if they have another name, give the file instead of the directory"
    )


def _indexed(index: str, names: Collection[str], content: bytes, place: object) -> list[str]:
    listed = set(typed_json.decode(content, _Index, f"{place}/{index}").weight_map.values())
    outside = [name for name in listed if Path(name).name != name]
    if outside:
        raise ConversionError(f"{place}/{index} names a file outside its directory: {outside[0]}")
    missing = sorted(listed - set(names))
    if missing:
        raise ConversionError(
            f"{place} lacks {', '.join(missing)}, named in {index}; download it again"
        )
    return sorted(listed)
