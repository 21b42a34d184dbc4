"""Converts an EAGLE-3 checkpoint to a GGUF draft that llama.cpp runs with its target. No torch.

`convert` reads the checkpoint (`checkpoint.py`), checks it against its target
(`config.py`, `draft.py`, `target.py`), and writes the GGUF (`draft_gguf.py`, `writer.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from eaglechat.hub.convert.checkpoint import open_checkpoint
from eaglechat.hub.convert.config import DraftConfig, read_config
from eaglechat.hub.convert.draft import examine
from eaglechat.hub.convert.draft_gguf import fields_of, output_tensors
from eaglechat.hub.convert.target import read_target, without_copies
from eaglechat.hub.convert.writer import (
    TYPES,
    OnProgress,
    check_out,
    fields_as_stored,
    write_draft,
)
from eaglechat.hub.errors import ConversionError

__all__ = [
    "TYPES",
    "ConversionError",
    "ConversionReport",
    "convert",
]


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion wrote."""

    path: Path
    n_parameters: int
    target_layers: tuple[int, ...]
    draft_vocabulary: int
    """The number of tokens the draft can propose."""
    notes: tuple[str, ...]
    """What in the checkpoint was not taken literally, in sentences for the user."""


def convert(
    checkpoint: Path,
    target: Path,
    out: Path,
    type: str = "q8_0",
    progress: OnProgress = lambda done, total: None,
) -> ConversionReport:
    """Convert the checkpoint in a directory, or one weights file beside its config.json.

    `type` is one of TYPES. `out` appears when it is complete; otherwise what was there stays.
    Raises ConversionError, OSError.
    """
    header = read_target(target)
    directory, stored = open_checkpoint(checkpoint)
    config = read_config(directory)
    draft = without_copies(examine(stored, config, header), header)
    check_out(out)
    kind, file_type = TYPES[type]
    tensors = output_tensors(draft, kind)
    n_parameters = sum(prod(tensor.shape) for tensor in tensors)
    fields = fields_of(draft, header, directory, file_type, n_parameters)
    write_draft(out, fields, tensors, progress, copied=fields_as_stored(header, "tokenizer."))
    return ConversionReport(
        path=out,
        n_parameters=n_parameters,
        target_layers=draft.target_layers,
        draft_vocabulary=header.n_vocab if draft.d2t is None else draft.d2t.size,
        notes=(*draft.notes, *_about_norms(config)),
    )


def _about_norms(config: DraftConfig) -> Iterator[str]:
    if not config.norm_output and not config.fc_norm:
        return
    if config.norm_output and "LlamaForCausalLMEagle3" in config.architectures:
        yield (
            "norm_output is read as EAGLE-3.1's; SpecForge before September 2026 wrote it for "
            "plain EAGLE-3: if hardly any guess but the first is accepted, take it out of "
            "config.json and convert again"
        )
    name = "EAGLE-4" if config.kind == "eagle4" else "EAGLE-3.1"
    yield (
        f"an {name} draft, whose norms llama.cpp does not have: eaglechat's engine runs it, other "
        "programs guess badly with it"
    )
