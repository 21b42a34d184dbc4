"""A target and its draft, by path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eaglechat.settings.model import ServerSettings
from eaglechat.wire.protocol import Auto


@dataclass(frozen=True)
class Pair:
    """The paths of a target and its draft; without a draft, what the target's own file has drafts.

    For a model on a server, `target` is its name. `n_draft_max` is the draft length that a chat
    starts with; None means the setting for all pairs.
    """

    name: str
    target: Path
    draft: Path | None
    source: str
    """built-in, recent, catalogue, files or server."""
    n_draft_max: int | Auto | None = None
    note: str = ""
    reencode: bool = False
    """The target is loaded in the form that drafts fastest on this machine (see forms.py)."""
    server: ServerSettings | None = None
    """The server that has the model; None for the engine of the settings."""
    model: str = ""
    """The server's name for the model; empty for its only one."""

    @property
    def to_load(self) -> tuple[str, str | None]:
        """The names that an engine is asked to load: a target, and a draft or None."""
        if self.server is not None:
            return self.model, None
        return str(self.target), str(self.draft) if self.draft else None


def pair_of_server(server: ServerSettings, model: str = "") -> Pair:
    """The pair for a server's model; without a name, the server chooses the model."""
    model = model or server.model
    return Pair(server.name, Path(model or server.url), None, "server", server=server, model=model)
