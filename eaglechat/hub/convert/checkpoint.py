"""Finds the files of a checkpoint that hold its weights, and the tensors in them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from eaglechat.hub.convert.tensors import StoredTensor, decode_json, read_safetensors
from eaglechat.hub.convert.unpickle import read_bin
from eaglechat.hub.errors import ConversionError
from eaglechat.hub.references import NOT_WEIGHTS


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
    directory, files = (path.parent, [path]) if path.is_file() else (path, _weight_files(path))
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        read = read_safetensors if file.name.endswith(".safetensors") else read_bin
        for tensor in read(file):
            if tensor.name in tensors:
                raise ConversionError(
                    f"{tensor.name} is both in {tensors[tensor.name].file.name} and in {file.name}"
                )
            tensors[tensor.name] = tensor
    return directory, tensors


def _weight_files(directory: Path) -> list[Path]:
    """The files of a directory that hold its weights: those of an index, else those named as usual,
    else all."""
    names = sorted(file.name for file in directory.iterdir() if file.is_file())
    for stem, ending in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        index = f"{stem}{ending}.index.json"
        if index in names:
            content = (directory / index).read_bytes()
            named = sorted(
                set(decode_json(content, _Index, f"{directory}/{index}").weight_map.values())
            )
            if outside := [name for name in named if Path(name).name != name]:
                raise ConversionError(
                    f"{directory}/{index} names a file outside its directory: {outside[0]}"
                )
            if missing := [name for name in named if name not in names]:
                raise ConversionError(
                    f"{directory} lacks {', '.join(missing)}, named in {index}; download it again"
                )
        else:
            ends = [name for name in names if name.endswith(ending)]
            named = [name for name in ends if not NOT_WEIGHTS.search(name)]
            named = [name for name in named if name.startswith(stem)] or named
        if named:
            return [directory / name for name in named]
    raise ConversionError(f"{directory} holds no weights: neither *.safetensors nor *.bin")
