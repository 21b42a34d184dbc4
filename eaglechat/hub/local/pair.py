"""A target and its draft, by path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.protocol import Auto


@dataclass(frozen=True)
class Pair:
    """A target and its draft by path; without a draft the target decodes plainly.

    A server's has the name of a model in place of files. `n_draft_max` is what this pair starts
    with, or None for the setting of all pairs.
    """

    name: str
    target: Path
    draft: Path | None
    source: str
    """built-in, recent, catalogue, files or server."""
    n_draft_max: int | Auto | None = None
    note: str = ""
    reencode: bool = False
    """The target is loaded from a copy in a type that is faster to verify a draft with."""
    server: ServerSettings | None = None
    """Who has the models, where that is not the engine of the settings."""
    model: str = ""
    """What the server calls its model; empty for the only one it has."""

    @property
    def to_load(self) -> tuple[str, str | None]:
        """What an engine is asked to load: a target, and a draft or None."""
        if self.server is not None:
            return self.model, None
        return str(self.target), str(self.draft) if self.draft else None


def pair_of_server(server: ServerSettings, model: str = "") -> Pair:
    """What a server has: a model of its own choosing where none is named."""
    model = model or server.model
    return Pair(server.name, Path(model or server.url), None, "server", server=server, model=model)
