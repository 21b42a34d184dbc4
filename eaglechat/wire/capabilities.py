"""What an engine says of itself: what it can do, and what its machine has."""

from __future__ import annotations

import msgspec


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the engine's machine in bytes: RAM, and all GPUs together (0 without a GPU).

    `unified`: the GPU shares the RAM.
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
    """It says how probable the draft found each drafted token."""
    likely: bool = False
    """It reports the target's likeliest tokens, if a request asks for them."""
    times: bool = False
    """It says how long drafting and verifying took in each round."""
    draft_length: bool = False
    """The draft length of each request applies; else that with which it was started."""
    live_draft_length: bool = False
    """`set` changes the draft length of a running reply."""
    restarts: bool = False
    """To change how it drafts, its program starts again before the next reply."""
    auto: bool = False
    """It chooses draft lengths by measurement."""
    plain: bool = False
    """It decodes without a draft when asked to, to compare."""
    bench: bool = False
    """It answers `bench`."""
    prompt: bool = False
    """It shows prompts: it answers `render`."""
    goes_on: bool = False
    """It continues a reply from the tokens that were generated before (`begun`)."""
    goes_on_from_text: bool = False
    """It continues the text of the last message if that is the assistant's."""


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
