"""How much drafting can gain with each target that was loaded on this machine, by the passes that
its load timed: passes.json in the state directory."""

from __future__ import annotations

from pathlib import Path

import msgspec

from eaglechat.state_file import StateFile
from eaglechat.wire.protocol import PairInfo

_CLEARLY = 1.1
"""Times as much: two loads of one file time its passes a little differently."""


class Passes(msgspec.Struct, frozen=True):
    """Of a target, as its latest load timed it."""

    name: str
    n_layers: int
    n_embd: int
    quantization: str
    most: float
    """Times as fast as plain decoding, with a draft that costs nothing and is always right."""

    def is_of_the_same_model(self, other: Passes) -> bool:
        return (self.name, self.n_layers, self.n_embd) == (other.name, other.n_layers, other.n_embd)


def measured(state_dir: Path) -> dict[str, Passes]:
    """By the path of the target."""
    return _passes(state_dir).read({})


def note(state_dir: Path, info: PairInfo) -> None:
    """Keep what a load on this machine timed, if it did."""
    most, target = info.most, info.target
    if most is not None:
        found = Passes(target.name, target.n_layers, target.n_embd, target.quantization, most)
        with _passes(state_dir).changing({}) as known:
            known[target.path] = found


def better(path: str, known: dict[str, Passes]) -> Passes | None:
    """The quantisation of the same model with which drafting can gain the most here, if that is
    clearly more than with the target at `path` and its file is still there."""
    own = known.get(path)
    if own is None:
        return None
    others = (
        other
        for file, other in known.items()
        if other.is_of_the_same_model(own)
        and other.quantization != own.quantization
        and other.most > _CLEARLY * own.most
        and Path(file).exists()
    )
    return max(others, key=lambda other: other.most, default=None)


def _passes(state_dir: Path) -> StateFile[dict[str, Passes]]:
    return StateFile("passes.json", dict[str, Passes], state_dir)
