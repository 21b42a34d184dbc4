"""Judges a draft on the Hub before its download: a GGUF by its header, a checkpoint by its
config.json alone, of which tensors that do not fit are found by the conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eaglechat.engine.drafters.pairing import kind_of, why_unfit
from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.errors import ConversionError
from eaglechat.wire.drafters import DrafterKind


class Judged(NamedTuple):
    """Whether a draft fits a target."""

    problem: str | None
    """Why it cannot be used, or the converter would refuse it; None if it fits."""
    kind: DrafterKind | None = None
    """What drafter it is; None for a whole model, and if it is refused as of no known kind."""
    guessed_layers: tuple[int, ...] = ()
    """The target's layers that the conversion will assume, if config.json does not name them."""


def judge(hub: Hub, files: Sequence[RemoteFile], target: GGUFHeader) -> Judged:
    """Judge a draft: the files of a GGUF, or of a checkpoint, of which one is config.json.

    Raises HubError, GGUFError.
    """
    config = next((file for file in files if file.path == "config.json"), None)
    if config is not None:
        return _judge_config(config.name, hub.read_small(config), target)
    header = hub.peek(files[0])
    return Judged(why_unfit(target, header), kind_of(header))


def _judge_config(name: str, content: bytes, target: GGUFHeader) -> Judged:
    # They import numpy and gguf.
    from eaglechat.hub.convert.config import OtherKindError, parse_config  # noqa: PLC0415
    from eaglechat.hub.convert.draft import check_config, check_target  # noqa: PLC0415

    try:
        config = parse_config(content, name)
        check_target(target)
        layers = check_config(config, target)
    except OtherKindError as error:
        return Judged(str(error), error.kind)
    except ConversionError as error:
        return Judged(str(error))
    return Judged(None, config.kind, () if config.aux_layer_ids else layers)
