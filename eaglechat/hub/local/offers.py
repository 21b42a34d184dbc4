"""One list of everything a user can choose: pairs that are here, and those the catalogue knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglechat.hub.catalogue.entries import Entry
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import PairLibrary

if TYPE_CHECKING:
    from eaglechat.hub.local.installed import Status

_ORDER = ("installed", "partly", "available")


@dataclass(frozen=True)
class Offer:
    """A row of the menu. `pair` once it can be loaded; `entry` and `status` of the catalogue."""

    name: str
    label: str
    """built-in, recent, server, installed, partly or available."""
    pair: Pair | None
    entry: Entry | None = None
    status: Status | None = None

    @property
    def key(self) -> str:
        """Tells it apart in a list, also after the list was made anew."""
        if self.entry is not None:
            return f"entry:{self.entry.name}"
        if self.pair is not None and self.pair.server is not None:
            return f"server:{self.pair.server.name}:{self.pair.model}"
        return f"pair:{self.pair.target}:{self.pair.draft}" if self.pair else self.name


def offers(
    library: PairLibrary,
    catalogue: Sequence[tuple[Entry, Status]],
    served: Sequence[Pair] = (),
) -> list[Offer]:
    """The built-in pair, recent ones, what servers have, then the catalogue: what is here first,
    small ones first."""
    known = {entry.name: (entry, status) for entry, status in catalogue}
    listed: list[Offer] = []
    for pair in library.pairs():
        if pair.name not in known:
            listed.append(Offer(pair.name, pair.source, pair))
            continue
        # A pair of the catalogue that was used: one row, and gone from here once it is deleted.
        entry, status = known[pair.name]
        if status.pair is not None:
            listed.append(Offer(pair.name, "installed", status.pair, entry, status))
            del known[pair.name]
    listed += [Offer(pair.name, pair.source, pair) for pair in served]
    rest = sorted(known.values(), key=lambda one: _ORDER.index(one[1].state.value))
    return listed + [
        Offer(entry.name, status.state.value, status.pair, entry, status) for entry, status in rest
    ]
