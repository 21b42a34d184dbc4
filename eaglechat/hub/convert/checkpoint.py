"""Finds the files of a checkpoint that hold its weights, and the tensors in them."""

from __future__ import annotations

from pathlib import Path

from eaglechat.hub.convert.tensors import StoredTensor, read_safetensors
from eaglechat.hub.convert.unpickle import read_bin
from eaglechat.hub.errors import ConversionError
from eaglechat.hub.references import NOT_WEIGHTS


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
    """The files of a directory that hold its weights: those named as usual, else all."""
    files = sorted(file for file in directory.iterdir() if file.is_file())
    for stem, ending in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        weights = [file for file in files if file.name.endswith(ending)]
        weights = [file for file in weights if not NOT_WEIGHTS.search(file.name)]
        if weights:
            return [file for file in weights if file.name.startswith(stem)] or weights
    raise ConversionError(f"{directory} holds no weights: neither *.safetensors nor *.bin")
