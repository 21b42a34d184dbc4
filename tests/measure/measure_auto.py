"""How near auto comes to the best fixed length on the simulated pairs, by how it was calibrated.

    python -m tests.measure.measure_auto [--save FILE] [--beside FILE]

Chats of three replies on seventeen pairs, each with eight sets of chances; no clock, so the same
code gives the same figures. `--save` keeps them, `--beside` prints what was kept beside them, to
judge a change. A share is the speed of auto's chat over that of the best fixed length.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

from eaglechat.engine.auto.controller import LOSS_SHARE, Controller
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from tests.engine.auto.pairs import CALIBRATIONS, PAIRS, chat, total_ms

SEEDS = range(1, 9)


def judge() -> dict[str, dict[str, list[float]]]:
    """By calibration and pair the share of each seed, below 0 where a reply broke the ledger."""
    shares: dict[str, dict[str, list[float]]] = {kind: {} for kind in CALIBRATIONS}
    for name in PAIRS:
        for seed in SEEDS:
            pair = replace(PAIRS[name], seed=seed)
            best = min(total_ms(chat(pair, n)) for n in range(N_DRAFT_MAX_LIMIT + 1))
            for kind, calibration in CALIBRATIONS.items():
                replies = chat(pair, Controller(calibration(pair)))
                kept = all(
                    reply.ms <= (1.0 + LOSS_SHARE) * reply.plain_ms + reply.dearest_loss_ms
                    for reply in replies
                )
                share = best / total_ms(replies)
                shares[kind].setdefault(name, []).append(share if kept else -share)
    return shares


def _cells(shares: dict[str, list[float]]) -> tuple[str, ...]:
    """Mean, worst pair and its name, chats with a reply that broke the ledger."""
    by_pair = {name: mean(map(abs, of_pair)) for name, of_pair in shares.items()}
    worst = min(by_pair, key=by_pair.__getitem__)
    broken = sum(share < 0.0 for of_pair in shares.values() for share in of_pair)
    return f"{mean(by_pair.values()):.3f}", f"{by_pair[worst]:.3f}", worst, str(broken)


def _table(*results: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    columns = ("mean", "worst pair", "", "ledger broken")
    yield "| calibration | " + " | ".join(columns * len(results)) + " |"
    yield "| --- |" + " ---: | ---: | --- | ---: |" * len(results)
    for kind in results[0]:
        cells = [cell for result in results for cell in _cells(result[kind])]
        yield f"| {kind} | " + " | ".join(cells) + " |"
    yield ""
    yield "| pair | " + " | ".join(list(results[0]) * len(results)) + " |"
    yield "| --- |" + " ---: |" * len(results[0]) * len(results)
    for name in PAIRS:
        means = [mean(map(abs, kind[name])) for result in results for kind in result.values()]
        yield f"| {name} | " + " | ".join(f"{share:.3f}" for share in means) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, help="keep the figures in this file")
    parser.add_argument("--beside", type=Path, help="print the figures of this file first")
    args = parser.parse_args()
    before = [json.loads(args.beside.read_text())] if args.beside else []
    shares = judge()
    if args.save:
        args.save.write_text(json.dumps(shares))
    print("\n".join(_table(*before, shares)))


if __name__ == "__main__":
    main()
