"""What drafts of a real pair are worth to auto, to fixed lengths, and to one that knows the reply.

    python -m tests.measure.measure_replay --target TARGET.gguf --draft DRAFT.gguf [--prompts FILE]

Records greedy replies with the draft's guess behind every token, and the pair's costs. On these
every driver is then played without a clock's noise: what differs is the choice of lengths alone.
"Under the ledger" is a length played wherever the ledger bears it, plain decoding elsewhere: the
best length of the reply, and the length that under the ledger turns out best. Both know the reply
beforehand, which no controller does.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np

from eaglechat.engine.auto.calibration import CALIBRATED_DRAFT, Calibration
from eaglechat.engine.auto.controller import LOSS_SHARE, Controller
from eaglechat.engine.auto.costs import CONTEXT_BUCKET, context_bucket
from eaglechat.engine.bench.measure import BenchPrompt, builtin_prompts, parse_prompts
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP, Limits, Proposal
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama import backend
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.gguf.preflight import check_pair
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import Message, Sampling, Speculation
from eaglechat.wire.records import Round
from tests.engine.auto.simulated_pair import USUAL_WAITING, Simulated, write

LENGTHS = range(6)
RECORDED = 8
TIMED = 420
WIDTHS = (1, 2, 3, 4, 5, 6, 9)


@dataclass(frozen=True)
class Costs:
    """Medians in milliseconds."""

    verify: dict[int, tuple[tuple[int, float], ...]]
    """By context bucket, then by batch width, ascending."""
    draft_base: float
    draft_step: float
    catch_up_row: float

    def of_width(self, width: int, n_past: int) -> float:
        bucket = min(self.verify, key=lambda known: abs(known - context_bucket(n_past)))
        verify = self.verify[bucket]
        for (low, low_ms), (high, high_ms) in pairwise(verify):
            if width <= high:
                return low_ms + (high_ms - low_ms) * (width - low) / (high - low)
        (low, low_ms), (high, high_ms) = verify[-2:]
        return high_ms + (high_ms - low_ms) * (width - high) / (high - low)

    def drafting(self, n_steps: int, n_waiting: int) -> float:
        """Of so many steps, where so many rows waited."""
        behind = max(0, min(n_waiting, MOST_CAUGHT_UP) - USUAL_WAITING)
        return self.draft_base + n_steps * self.draft_step + behind * self.catch_up_row


@dataclass(frozen=True)
class Recorded:
    """A greedy reply, and what the draft proposes behind each of its tokens."""

    name: str
    n_prompt: int
    text: list[int]
    drafts: list[Proposal] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Replayed(Simulated):
    """A pair that guesses as the recorded one did."""

    reply: Recorded = field(kw_only=True)

    def guess(self, position: int, depth: int) -> tuple[bool, float]:
        start = position - depth
        draft = self.reply.drafts[start] if start < len(self.reply.drafts) else Proposal()
        if depth >= len(draft) or position >= len(self.reply.text):
            return False, 0.0
        return draft[depth].id == self.reply.text[position], draft[depth].probability


def record(pair: LoadedPair, prompt: BenchPrompt, max_tokens: int) -> Recorded:
    """Write a reply of single tokens, a draft before each."""
    drafts: list[Proposal] = []
    drafting = pair.generator._drafting
    propose = drafting.propose

    def only_noted(n_past: int, id_last: int, limits: Limits) -> Proposal:
        drafts.append(propose(n_past, id_last, limits))
        return Proposal()

    drafting.propose = only_noted  # type: ignore[method-assign]
    try:
        rounds = _rounds(pair, prompt, RECORDED, max_tokens)
    finally:
        drafting.propose = propose  # type: ignore[method-assign]
    text = [token.id for round_ in rounds for token in round_.tokens]
    return Recorded(prompt.name, rounds[0].n_past - 1, text, drafts)


def costs_of(pair: LoadedPair, prompts: Sequence[BenchPrompt]) -> Costs:
    """Time rounds of each width behind the shortest prompt and the longest, by context."""
    times: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    drafting = defaultdict(list)
    for prompt in (prompts[0], max(prompts, key=lambda prompt: len(prompt.text))):
        for width in WIDTHS:
            for round_ in _rounds(pair, prompt, width - 1, TIMED)[4:]:
                if len(round_.drafted) == width - 1:
                    took = round_.timings.draft_ms + round_.timings.process_ms
                    times[context_bucket(round_.n_past)][width].append(
                        round_.timings.total_ms - took
                    )
                    drafting[width - 1].append(took)
    verify = {
        bucket: tuple((width, median(ms)) for width, ms in sorted(of_width.items()))
        for bucket, of_width in times.items()
        if all(len(of_width[width]) >= 8 for width in WIDTHS)
    }
    base, step = _line({n: median(ms) for n, ms in drafting.items() if n})
    return Costs(verify, base, step, _catch_up_row(pair, prompts[0], base + step))


def _line(points: dict[int, float]) -> tuple[float, float]:
    """Where the line of least squares begins, and how it rises."""
    rise, base = np.polyfit(list(points), list(points.values()), 1)
    return float(base), float(rise)


def _catch_up_row(pair: LoadedPair, prompt: BenchPrompt, one_draft: float) -> float:
    """Write plainly, and draft a token now and then: the draft takes in what waited for it."""
    tokens = pair.prompter.prompt((Message(role="user", content=prompt.text),))
    plainly, drafting = Speculation(n_draft_max=0), Speculation(n_draft_max=1)
    live = Live(plainly, 0.0)
    row_ms, waiting = [], len(tokens)
    sampling = Sampling(temperature=0.0)
    for event in pair.generator.reply(tokens, sampling, live, seed=0, max_tokens=250):
        if not isinstance(event, Round):
            continue
        if event.drafted:
            took = event.timings.draft_ms + event.timings.process_ms
            row_ms.append((took - one_draft) / waiting)
            waiting = 0
        waiting += len(event.tokens)
        live.speculation = drafting if waiting >= MOST_CAUGHT_UP else plainly
    return max(0.0, median(row_ms[1:]))


def _rounds(pair: LoadedPair, prompt: BenchPrompt, n: int, max_tokens: int) -> list[Round]:
    tokens = pair.prompter.prompt((Message(role="user", content=prompt.text),))
    live = Live(Speculation(n_draft_max=n), 0.0)
    sampling = Sampling(temperature=0.0)
    events = pair.generator.reply(tokens, sampling, live, seed=0, max_tokens=max_tokens)
    return [event for event in events if isinstance(event, Round)]


def under_the_ledger(pair: Replayed, costs: Costs, n: int) -> float:
    """Milliseconds of the reply with drafts of `n` wherever the ledger bears one."""
    n_tokens = len(pair.reply.text)
    tokens, waiting = 0, 1
    ms = plain_ms = lost = dearest = 0.0
    while tokens < n_tokens:
        most, n_past = min(n, n_tokens - tokens - 1), pair.n_prompt + tokens
        plain = costs.of_width(1, n_past)
        loss = costs.of_width(most + 1, n_past) - plain + costs.drafting(most, waiting)
        accepted = 0
        if most > 0 and lost + loss <= LOSS_SHARE * plain_ms + max(loss, dearest):
            while accepted < most and pair.guess(tokens + accepted, accepted)[0]:
                accepted += 1
            ms += loss
            lost += loss - accepted * plain
            dearest = max(dearest, loss)
            waiting = 0
        ms += plain
        plain_ms += (accepted + 1) * plain
        tokens += accepted + 1
        waiting += accepted + 1
    return ms


@dataclass
class Shares:
    """Speed as a share of the best fixed length's, of every reply."""

    auto: list[float] = field(default_factory=list)
    knowing: list[float] = field(default_factory=list)
    """The best fixed length under the ledger."""
    hindsight: list[float] = field(default_factory=list)
    """The length that is best under the ledger."""


def play(replies: list[Recorded], costs: Costs, chats: int) -> dict[str, Shares]:
    """Play chats, each all replies in an order of its own, by a controller of its own."""
    shares = {reply.name: Shares() for reply in replies}
    three = costs.drafting(CALIBRATED_DRAFT, 1)
    calibration = Calibration(costs.verify[0], three, costs.catch_up_row)
    for chat in range(chats):
        controller = Controller(calibration)
        for reply in random.Random(chat).sample(replies, len(replies)):
            pair = Replayed(
                verify=costs.of_width,
                accepts=lambda _position, _depth: 0.0,
                draft_step=costs.draft_step,
                draft_base=costs.draft_base,
                catch_up_row=costs.catch_up_row,
                n_prompt=reply.n_prompt,
                seed=chat,
                shape="chain",
                reply=reply,
            )
            fixed = {n: write(pair, len(reply.text), n).ms for n in LENGTHS}
            best = min(fixed, key=fixed.__getitem__)
            held = {n: under_the_ledger(pair, costs, n) for n in LENGTHS}
            share = shares[reply.name]
            share.auto.append(fixed[best] / write(pair, len(reply.text), controller).ms)
            share.knowing.append(fixed[best] / held[best])
            share.hindsight.append(fixed[best] / min(held.values()))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, help="as for the bench; else its own")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--chats", type=int, default=12)
    args = parser.parse_args()
    backend.start_backend(backend.LOG_ERRORS)
    prompts = parse_prompts(args.prompts.read_text()) if args.prompts else builtin_prompts()
    pair = LoadedPair(check_pair(args.target, args.draft), LoadOptions(n_ctx=4096))
    try:
        costs = costs_of(pair, prompts)
        replies = [record(pair, prompt, args.max_tokens) for prompt in prompts]
    finally:
        pair.close()
    for bucket, verify in sorted(costs.verify.items()):
        widths = ", ".join(f"{width}: {ms:.1f}" for width, ms in verify)
        n_past = (CONTEXT_BUCKET << bucket) // 2 if bucket else 0
        print(f"Verifying behind {n_past} tokens and more: {widths} ms")
    print(f"Drafting {costs.draft_base:.2f} ms and {costs.draft_step:.2f} a step, "
          f"{costs.catch_up_row:.2f} a row that waited\n")  # fmt: skip
    shares = play(replies, costs, args.chats)
    print("| prompt | tokens | auto | best length, under the ledger | best under the ledger |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for reply in replies:
        _row(reply.name, str(len(reply.text)), [shares[reply.name]])
    _row("all", "", list(shares.values()))


def _row(name: str, tokens: str, shares: list[Shares]) -> None:
    columns = [
        geometric_mean([one for share in shares for one in getattr(share, kind)])
        for kind in ("auto", "knowing", "hindsight")
    ]
    print(f"| {name} | {tokens} | " + " | ".join(f"{column:.3f}" for column in columns) + " |")


if __name__ == "__main__":
    main()
