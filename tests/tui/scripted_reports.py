"""What the scripted engine says of its models, and of its rounds as far as it can."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eaglechat.wire import protocol
from eaglechat.wire.protocol import Capabilities
from eaglechat.wire.records import (
    DraftToken,
    Likely,
    Round,
    RoundTimings,
    Token,
)

WRONG_GUESS = " umbrella"


WRONG_ID = 48_000


def pair_info(target: str, draft: str | None, speculation_off: str | None) -> protocol.PairInfo:
    model = protocol.ModelInfo(
        path=target,
        name="Scripted",
        architecture="llama",
        quantization="Q4_1",
        size_bytes=98_000_000,
        n_layers=30,
        n_embd=576,
        n_vocab=49152,
        n_ctx_train=8192,
    )
    draft_model = msgspec.structs.replace(
        model, path=draft or "", architecture="eagle3", quantization="Q8_0", size_bytes=12_000_000
    )
    drafter = protocol.DrafterInfo(kind="eagle3", file=draft_model, layers=(2, 15, 27))
    return protocol.PairInfo(
        target=model,
        drafters=(drafter,) if draft else (),
        n_ctx=8192,
        n_threads=2,
        devices=(),
        load_ms=400.0,
        speculation_off=speculation_off,
    )


def as_reported(round_: Round, can: Capabilities) -> Round:
    """A round as an engine tells it that can do no more than this."""
    drafted = tuple(
        DraftToken(
            token.id if can.own or i < round_.n_accepted else None,
            token.text if can.own or i < round_.n_accepted else None,
            token.probability if can.own else None,
            token.parent,
            token.drafter,
        )
        for i, token in enumerate(round_.drafted)
    )
    timings = round_.timings
    if not can.own:
        timings = RoundTimings(None, None, None, None, timings.total_ms)
    return replace(round_, drafted=drafted, timings=timings)


def likely(token: Token) -> tuple[Likely, ...]:
    """The token itself, the wrong guess, and one that the filters leave out."""
    return (
        Likely(token.id or 0, token.text, 0.62, 0.75),
        Likely(WRONG_ID, WRONG_GUESS, 0.21, 0.25),
        Likely(WRONG_ID + 1, " parasol", 0.04, 0.0),
    )
