"""The simulated pairs that auto is tested on, and the ways in which a calibration can be wrong.

Each pair is a kind of machine and text the controller must find its answer for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from eaglechat.engine.auto.calibration import (
    CALIBRATED_DRAFT,
    CALIBRATED_WIDTHS,
    NOT_CALIBRATED,
    Calibration,
)
from eaglechat.engine.auto.controller import CHAIN, TREE, Arm, Controller
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from tests.engine.auto.simulated_pair import Fixed, Reply, Simulated, fixed_ms, write

TOKENS, REPLIES = 600, 3
WRONG = 1.6


def curve(**ms_at: float) -> Callable[[int, int], float]:
    """Verify times by width, interpolated between w1=.., w2=.., w4=.. and extrapolated beyond."""
    points = sorted((int(name[1:]), ms) for name, ms in ms_at.items())

    def at(width: int) -> float:
        (x0, y0), (x1, y1) = points[-2:]
        for left, right in pairwise(points):
            if left[0] <= width <= right[0]:
                (x0, y0), (x1, y1) = left, right
        return y0 + (width - x0) * (y1 - y0) / (x1 - x0)

    by_width = [at(width) for width in range(N_DRAFT_MAX_LIMIT + 2)]
    return lambda width, _n_past: by_width[width]


def steady(rate: float) -> Callable[[int, int], float]:
    """The first draft token is accepted at `rate`, each further one 3% less often."""
    return lambda _position, depth: rate * 0.97**depth


# Milliseconds of the built-in target on two cores, as Q4_1 and expanded to BF16.
Q4_1 = curve(w1=4.6, w2=9.8, w4=16.4, w8=23.5, w16=40.0)
BF16 = curve(w1=7.3, w2=8.9, w4=11.2, w8=14.1, w16=17.0)


# Of the same target as Q4_0, whose kernels take four rows at a time; the draft is dear beside it.
Q4_0 = curve(w1=15.0, w2=23.0, w4=26.0, w8=46.0)


# Milliseconds of SmolLM2-135M's passes on two cores, by rows: kernels take four or eight at a time.
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
STEPS = {
    kind: curve(**{f"w{rows}": at for rows, at in zip(_ROWS, ms, strict=True)})
    for kind, ms in {
        "Q4_0": (5.6, 8.8, 10.9, 10.7, 14.4, 16.5, 18.4, 15.4, 19.3, 20.4, 21.7),
        "Q4_K_M": (7.1, 10.7, 12.9, 14.4, 18.8, 20.5, 22.9, 20.8, 24.7, 26.5, 31.1),
        "Q8_0": (7.2, 14.4, 18.1, 20.9, 24.6, 26.0, 27.6, 25.2, 29.0, 30.6, 30.5),
        "F16": (8.5, 12.7, 13.6, 15.0, 17.0, 17.0, 19.3, 23.1, 23.3, 28.0, 30.6),
    }.items()
}


def edits(position: int) -> int:
    """In each 80 tokens of text, the first 60 are copied."""
    return max(0, 60 - position % 80)


def gpu(width: int, _n_past: int) -> float:
    return 8.0 + 0.05 * width


def mixture_of_experts(width: int, _n_past: int) -> float:
    """Each further token of a batch loads experts that those before it did not, but ever fewer."""
    return 20.0 * (1.0 + 1.1 * (1.0 - 0.75 ** (width - 1)))


def step_at_nine(width: int, _n_past: int) -> float:
    return 10.0 + 0.1 * width + (12.0 if width >= 9 else 0.0)


BLOCK = Simulated(
    gpu,
    steady(0.8),
    draft_base=1.5,
    draft_step=0.02,
    longest=7,
    in_one_pass=True,
    shape="chain",
)
"""Of a block's eight rows the first is the last token's."""
HOPELESS = (0.02, 0.01, 0.01)

PAIRS = {
    "quantised on a CPU": Simulated(Q4_1, steady(0.5)),
    "quantised, good draft": Simulated(Q4_1, steady(0.75)),
    "bf16, weak draft": Simulated(BF16, steady(0.45)),
    "bf16, fair draft": Simulated(BF16, steady(0.6)),
    "bf16, good draft": Simulated(BF16, steady(0.75)),
    "gpu": Simulated(gpu, steady(0.8), draft_step=0.5),
    "gpu, excellent draft": Simulated(gpu, steady(0.92), draft_step=0.5),
    "gpu, fair draft": Simulated(gpu, steady(0.6), draft_step=0.5),
    "experts, weak draft": Simulated(mixture_of_experts, steady(0.4), draft_step=1.0),
    "experts, good draft": Simulated(mixture_of_experts, steady(0.8), draft_step=1.0),
    "step at width 9": Simulated(step_at_nine, steady(0.85)),
    "acceptance collapses with context": Simulated(
        lambda width, n_past: BF16(width, n_past) * (1.0 + n_past / 4000.0),
        lambda position, _depth: 0.8 if position < 200 else 0.45 if position < 400 else 0.1,
    ),
    "useless draft": Simulated(BF16, steady(0.01), siblings=HOPELESS),
    "useless draft on a gpu": Simulated(gpu, steady(0.01), draft_step=0.5, siblings=HOPELESS),
    "useless from the middle": Simulated(
        BF16, lambda position, _depth: 0.75 if position < 300 else 0.01, siblings=HOPELESS
    ),
    "a neighbour that comes and goes": Simulated(
        lambda width, n_past: BF16(width, n_past) * (1.7 if n_past // 90 % 3 == 1 else 1.0),
        steady(0.6),
    ),
    "rows of four, dear draft": Simulated(Q4_0, steady(0.7), draft_step=3.0),
    "bf16, guesses apart": Simulated(BF16, steady(0.45), siblings=(0.4, 0.2, 0.1)),
    "bf16, copies": Simulated(BF16, steady(0.6), copies=edits),
    "quantised, copies": Simulated(Q4_1, steady(0.5), copies=edits),
    "copies without a draft": Simulated(BF16, steady(0.5), copies=edits, has_draft=False),
    "delays": Simulated(BF16, steady(0.6), noise=0.1, tail=0.03),
    "block drafter on a gpu": BLOCK,
    "block drafter, bf16": replace(
        BLOCK, verify=BF16, accepts=steady(0.7), draft_base=0.9, draft_step=0.25
    ),
    "one MTP head": Simulated(gpu, steady(0.8), draft_step=0.4, shape="chain"),
    # Both heads take in the accepted rows before the first drafts.
    "two MTP heads": Simulated(
        BF16, steady(0.6), draft_base=1.6, draft_step=0.8, longest=2, shape="chain"
    ),
}


def of_chat(pair: Simulated, replies: int = REPLIES) -> list[Simulated]:
    """The pair at each reply of a chat, whose prompts differ."""
    return [replace(pair, seed=pair.seed + 100 * k) for k in range(replies)]


def chat(pair: Simulated, controller: Controller, replies: int = REPLIES) -> list[Reply]:
    return [write(one, TOKENS, controller) for one in of_chat(pair, replies)]


def best_ms(pair: Simulated) -> float:
    """Milliseconds of a chat with the best fixed choice of shape, length, and n-grams or none."""
    replies = of_chat(pair)
    return min(
        sum(fixed_ms(one, TOKENS, fixed) for one in replies) for fixed in fixed_choices(pair)
    )


def fixed_choices(pair: Simulated) -> list[Fixed]:
    """Everything that a user could set, plain decoding first."""
    chains = [Arm(CHAIN, n) for n in range(pair.longest + 1)]
    grows_trees = pair.has_draft and pair.shape != "chain"
    trees = [Arm(TREE, n) for n in range(2, pair.longest + 1)] if grows_trees else []
    return [
        Fixed(arm, ngram)
        for ngram in ((False, True) if pair.copies else (False,))
        for arm in (*chains, *trees)
    ]


def on_steps(kind: str, rate: float, seed: int) -> Simulated:
    """A pair whose passes take what those of `STEPS` take."""
    return Simulated(STEPS[kind], steady(rate), draft_step=0.9, seed=seed)


def total_ms(replies: list[Reply]) -> float:
    return sum(reply.ms for reply in replies)


def calibrated(
    pair: Simulated, *, plain: float = 1.0, wider: float = 1.0, drafts: float = 1.0
) -> Calibration:
    """The calibration of this pair, its times multiplied by these factors."""

    n_timed = min(CALIBRATED_DRAFT, pair.longest)
    return Calibration(
        verify=tuple(
            (width, pair.verify(width, 0) * (plain if width == 1 else wider))
            for width in sorted(CALIBRATED_WIDTHS)
        ),
        draft=(pair.draft_base + n_timed * pair.draft_step) * drafts,
        longest=pair.longest,
        in_one_pass=pair.in_one_pass,
    )


CALIBRATIONS: dict[str, Callable[[Simulated], Calibration]] = {
    "exact": calibrated,
    "all slow": lambda pair: calibrated(pair, plain=WRONG, wider=WRONG, drafts=WRONG),
    "all fast": lambda pair: calibrated(pair, plain=1 / WRONG, wider=1 / WRONG, drafts=1 / WRONG),
    "drafts slow": lambda pair: calibrated(pair, drafts=WRONG),
    "drafts fast": lambda pair: calibrated(pair, drafts=1 / WRONG),
    "widths slow": lambda pair: calibrated(pair, wider=WRONG),
    "widths fast": lambda pair: calibrated(pair, wider=1 / WRONG),
    "both slow": lambda pair: calibrated(pair, wider=WRONG, drafts=WRONG),
    "both fast": lambda pair: calibrated(pair, wider=1 / WRONG, drafts=1 / WRONG),
    "none": lambda _pair: NOT_CALIBRATED,
}
"""In "widths slow" and "widths fast", and in "both ...", the time of width 1 is right."""
