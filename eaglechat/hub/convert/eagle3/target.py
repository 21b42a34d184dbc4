"""What a draft takes from its target's GGUF: sizes, and the tokenizer byte for byte."""

from __future__ import annotations

from pathlib import Path

from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE, TARGET_ARCHITECTURES
from eaglechat.hub.convert.errors import ConversionError


def read_target(path: Path) -> GGUFHeader:
    """The header of a target that an EAGLE-3 draft can read from. Raises ConversionError."""
    try:
        target = read_header(path)
    except FileNotFoundError:
        raise ConversionError(f"the target {path} does not exist") from None
    except (OSError, GGUFError) as error:
        raise ConversionError(f"the target cannot be read: {error}") from error
    check_target(target)
    return target


def check_target(target: GGUFHeader) -> None:
    """Raises ConversionError for a target that no EAGLE-3 draft can read from."""
    path = target.path
    if target.architecture == DRAFT_ARCHITECTURE:
        raise ConversionError(f"the target {path} is itself an EAGLE-3 draft")
    if not target.architecture:
        raise ConversionError(
            f"the target {path} names no architecture; of a split model, give the first file"
        )
    if target.architecture not in TARGET_ARCHITECTURES:
        raise ConversionError(
            f"the target {path.name} has the architecture {target.architecture}, whose llama.cpp "
            "graph does not export layer inputs, so no EAGLE-3 draft can read it"
        )
    if not target.n_vocab or not target.n_layers or not target.n_embd:
        raise ConversionError(
            f"the target {path.name} lacks its tokenizer, layer count or hidden size"
        )


def fields_as_stored(header: GGUFHeader, prefix: str) -> list[bytes]:
    """The fields whose keys begin with `prefix`, packed as they stand in the file."""
    fields = []
    with header.path.open("rb") as file:
        for key, (start, end) in header.spans.items():
            if key.startswith(prefix):
                file.seek(start)
                fields.append(file.read(end - start))
    return fields
