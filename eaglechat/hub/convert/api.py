"""Converts an EAGLE-3 checkpoint to a GGUF that llama.cpp runs with its target. No torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType

from eaglechat.hub.convert.eagle3.draft import examine, with_tokens
from eaglechat.hub.convert.eagle3.metadata import packed_fields
from eaglechat.hub.convert.eagle3.shared import without_copies
from eaglechat.hub.convert.eagle3.target import read_target
from eaglechat.hub.convert.eagle3.weights import n_parameters, output_tensors, stored_type
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.output.files import (
    DIRECT_TYPES,
    TYPES,
    Progress,
    check_out,
    write_draft,
)
from eaglechat.hub.convert.output.writer import OutputTensor
from eaglechat.hub.convert.source.checkpoint import open_checkpoint
from eaglechat.hub.convert.source.config import read_config


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion made."""

    path: Path
    type: str
    size_bytes: int
    n_parameters: int
    target_layers: tuple[int, ...]
    draft_vocabulary: int
    """Tokens the draft can propose."""
    seconds: float
    notes: tuple[str, ...]
    """What the checkpoint said that was not taken literally, for the user to read."""


def convert(
    checkpoint: Path,
    target: Path,
    out: Path,
    type: str = "q8_0",
    progress: Callable[[Progress], None] = lambda _: None,
) -> ConversionReport:
    """Convert the checkpoint in a directory (or one weights file beside its config.json).

    `progress` is called a few times a second at least; what it raises stops the conversion and
    comes out of here. `out` appears when it is whole, or stays as it was. Raises ConversionError,
    OSError.
    """
    started = time.monotonic()
    if type not in TYPES:
        raise ConversionError(f"{type} is not a type; known are {', '.join(TYPES)}")
    target_header = read_target(target)
    stored = open_checkpoint(checkpoint)
    config = read_config(stored.directory)
    draft = with_tokens(examine(stored.tensors, config, target_header), target_header)
    draft = without_copies(draft, target_header)
    check_out(out)
    parameters = 0

    def contents(kind: Type, file_type: FileType) -> tuple[list[bytes], list[OutputTensor]]:
        nonlocal parameters
        tensors = output_tensors(draft, kind)
        parameters = n_parameters(tensors)
        fields = packed_fields(draft, target_header, stored.directory, file_type, parameters)
        return fields, tensors

    direct = type if type in DIRECT_TYPES else stored_type(draft)
    write_draft(out, type, direct, contents, progress)
    draft_vocabulary = target_header.n_vocab if draft.d2t is None else draft.d2t.size
    return ConversionReport(
        path=out,
        type=type,
        size_bytes=out.stat().st_size,
        n_parameters=parameters,
        target_layers=draft.target_layers,
        draft_vocabulary=draft_vocabulary,
        seconds=time.monotonic() - started,
        notes=draft.notes,
    )
