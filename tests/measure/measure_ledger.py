"""What the ledger costs a driver that knows the best draft length of each reply beforehand.

    python -m tests.measure.measure_ledger

Such a driver plays that length in every round the ledger bears, and decodes plainly in the others.
No controller that keeps the same promise can do better, whatever it learns. Rounds cost what they
took with the built-in pair as BF16 (docs/benchmarks.md); plain decoding is one of the lengths.
"""

from __future__ import annotations

from statistics import geometric_mean, quantiles

from eaglechat.engine.auto.controller import LOSS_SHARE
from tests.engine.auto.simulated_pair import Simulated

ROUND_MS = (11.25, 15.6, 18.8, 21.7, 24.0, 26.0)
"""By draft length."""
RATES = (0.45, 0.5, 0.55, 0.6, 0.7, 0.8)
LENGTHS = (128, 256, 512, 1024)
REPLIES = 40


def ms_of(pair: Simulated, n: int, n_tokens: int, share: float | None = None) -> float:
    """Time of a reply with a fixed length, as long as it loses no more than the ledger's share."""
    plain_round, round_ms = ROUND_MS[0], ROUND_MS[n]
    tokens, ms, plain_ms, lost, dearest = 0, 0.0, 0.0, 0.0, 0.0
    while tokens < n_tokens:
        loss = round_ms - plain_round
        bears = share is None or lost + loss <= share * plain_ms + max(loss, dearest)
        drafts = n > 0 and bears
        accepted = 0
        while drafts and accepted < n and pair.guess(tokens + accepted, accepted)[0]:
            accepted += 1
        took = round_ms if drafts else plain_round
        as_plain = (accepted + 1) * plain_round
        tokens, ms, plain_ms = tokens + accepted + 1, ms + took, plain_ms + as_plain
        lost += took - as_plain
        dearest = max(dearest, took - plain_round)
    return ms


def of_the_best(rate: float, n_tokens: int) -> list[float]:
    """Speed under the ledger as a share of the best fixed length's, reply by reply."""
    shares = []
    for seed in range(REPLIES):
        pair = Simulated(
            verify=lambda _width, _n_past: 0.0,
            accepts=lambda _position, depth: rate * 0.97**depth,
            seed=seed + 1,
        )
        free = [ms_of(pair, n, n_tokens) for n in range(len(ROUND_MS))]
        best = min(range(len(free)), key=free.__getitem__)
        shares.append(free[best] / ms_of(pair, best, n_tokens, LOSS_SHARE))
    return shares


def main() -> None:
    print("| Tokens | " + " | ".join(f"{rate:.0%} accepted" for rate in RATES) + " |")
    print("| ---: |" + " ---: |" * len(RATES))
    for n_tokens in LENGTHS:
        cells = []
        for rate in RATES:
            shares = of_the_best(rate, n_tokens)
            cells.append(f"{geometric_mean(shares):.3f}, {quantiles(shares, n=10)[0]:.2f}")
        print(f"| {n_tokens:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
