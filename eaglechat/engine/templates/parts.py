"""What the loop needs to know of the parts of one reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eaglechat.wire.part_stream import PartStream


@dataclass(frozen=True)
class ReplyParts:
    """How the tokens of a reply are read."""

    stream: PartStream
    written: Callable[[int], bytes]
    """The bytes a token writes, markers among the control tokens spelled out."""
    closing: tuple[int, ...] = ()
    """The tokens that end the reasoning and begin the answer; empty where nothing can."""
    begun: tuple[int, ...] = ()
    """The tokens with which the reply begins: they are in the prompt, and were read before."""
