"""What an engine says of itself: what it can do, and what its machine has."""

from __future__ import annotations

import msgspec


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's machine, in bytes: RAM, and its GPUs together; 0 where there is none.

    `unified` is a GPU that shares the RAM.
    """

    ram: int
    ram_available: int
    gpu: int = 0
    unified: bool = False


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine reports and what it can be asked, beyond the text of a reply."""

    origins: bool = False
    """It says where each token came from, and so what was drafted and accepted."""
    draft_text: bool = False
    """It says what was drafted and rejected; else it counts those tokens only."""
    probabilities: bool = False
    """It says how sure the draft was of each token."""
    likely: bool = False
    """It says what the target held likely, where a request asks for it."""
    times: bool = False
    """It says what drafting and verifying took in each round."""
    draft_length: bool = False
    """It drafts as a request asks it to; else as it was started to."""
    live_draft_length: bool = False
    """`set` turns the draft length of a running reply."""
    restarts: bool = False
    """Its program starts again for a change of the drafting, before the next reply."""
    auto: bool = False
    """It chooses draft lengths by measurement."""
    plain: bool = False
    """It decodes without a draft when asked to, to compare."""
    bench: bool = False
    """It answers `bench`."""
    prompt: bool = False
    """It shows prompts: it answers `render`."""
    goes_on: bool = False
    """It goes on with a reply that has begun, from its tokens."""
    goes_on_from_text: bool = False
    """It goes on with the last message where that is the assistant's, from its text."""


EVERYTHING = Capabilities(
    origins=True,
    draft_text=True,
    probabilities=True,
    likely=True,
    times=True,
    draft_length=True,
    live_draft_length=True,
    auto=True,
    plain=True,
    bench=True,
    prompt=True,
    goes_on=True,
)
