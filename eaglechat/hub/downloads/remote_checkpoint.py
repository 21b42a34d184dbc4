"""Judges a checkpoint on the Hub before its download, by its config.json alone.

Tensors that do not fit are found by the conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.convert.config import OtherKindError, parse_config
from eaglechat.hub.convert.draft import check_config, check_target
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.errors import ConversionError
from eaglechat.wire.protocol import DrafterKind


class Judged(NamedTuple):
    """The outcome of the converter's checks."""

    problem: str | None
    """Why the converter would refuse the checkpoint; None if it would not."""
    guessed_layers: tuple[int, ...] = ()
    """The target's layers that the conversion will assume, if config.json does not name them."""
    kind: DrafterKind | None = None
    """What drafter it is; None if it is refused and is not known to be of another kind."""


def judge_checkpoint(hub: Hub, files: Sequence[RemoteFile], target: GGUFHeader) -> Judged:
    """Judge the checkpoint of these files, of which one is config.json. Raises HubError."""
    file = next(file for file in files if file.path == "config.json")
    try:
        config = parse_config(hub.read_small(file), file.name)
        check_target(target)
        layers = check_config(config, target)
    except OtherKindError as error:
        return Judged(str(error), kind=error.kind)
    except ConversionError as error:
        return Judged(str(error))
    return Judged(None, () if config.aux_layer_ids else layers, config.kind)
