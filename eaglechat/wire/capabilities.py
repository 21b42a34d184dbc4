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

    own: bool = False
    """It is eaglechat's own. Only that reports the text of rejected tokens, probabilities, the
    target's likeliest tokens and the times within a round; chooses draft lengths by measurement;
    takes changes in the middle of a reply; and continues one from its tokens."""
    origins: bool = False
    """It says where each token came from, and so what was drafted and accepted."""
    draft_length: bool = False
    """The draft length of each request applies; else that with which it was started."""
    restarts: bool = False
    """To change how it drafts, its program starts again before the next reply."""
    plain: bool = False
    """It decodes without a draft when asked to, to compare."""
    prompt: bool = False
    """It shows prompts: it answers `render`."""
    goes_on_from_text: bool = False
    """It continues the text of the last message if that is the assistant's."""


OWN_ENGINE = Capabilities(own=True, origins=True, draft_length=True, plain=True, prompt=True)
