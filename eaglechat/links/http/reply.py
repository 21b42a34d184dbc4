"""A reply on its way from a server to the client."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.links.http.servers.base import ReplyReader
from eaglechat.links.http.servers.chunks import Chunk
from eaglechat.wire.protocol import AnyEvent, Loading, PrefillProgress, RoundDone, Settled
from eaglechat.wire.records import Prefill, Round
from eaglechat.wire.stats import StatsFold


class ReplyOnItsWay:
    """Tells the client what its reader makes of it."""

    def __init__(self, id: int, reader: ReplyReader, say: Callable[[AnyEvent], None]) -> None:
        self.reader, self.fold = reader, StatsFold()
        self._id, self._say = id, say
        self.has_begun = self.is_whole = False

    def take(self, chunk: Chunk) -> None:
        self.is_whole = self.is_whole or bool(chunk.choice and chunk.choice.finish_reason)
        for record in self.reader.take(chunk):
            self._tell(record)

    def wait(self) -> None:
        """Tell that the server cannot be asked yet."""
        self._say(Loading(id=self._id, stage="server", fraction=0.0))

    def rest(self) -> None:
        for record in self.reader.rest():
            self._tell(record)

    def settle(self) -> None:
        """Tell what is known better in the end."""
        if rounds := self.reader.settled():
            self.fold = StatsFold()
            for round_ in rounds:
                self.fold.add(round_)
            self._say(Settled(id=self._id, rounds=tuple(rounds)))

    def _tell(self, record: Prefill | Round) -> None:
        if isinstance(record, Prefill):
            self._say(PrefillProgress(id=self._id, prefill=record))
        else:
            self.has_begun = True
            self.fold.add(record)
            self._say(RoundDone(id=self._id, round=record))
