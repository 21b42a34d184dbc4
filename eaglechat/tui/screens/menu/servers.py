"""What the servers of the settings say of their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglechat.hub.local.pairs import Pair, pair_of_server
from eaglechat.settings.model import ServerSettings
from eaglechat.wire.errors import EngineError

if TYPE_CHECKING:
    from eaglechat.links.http.discovery import Found


@dataclass(frozen=True)
class ServerNews:
    """What a server answered, or in `trouble` why it did not."""

    server: ServerSettings
    found: Found | None = None
    trouble: str = ""


def ask(server: ServerSettings) -> ServerNews:
    """Ask a server which models it has. May take seconds."""
    # Imports the HTTP client, for which the first paint does not wait.
    from eaglechat.links.http import discovery

    try:
        return ServerNews(server, discovery.ask(server))
    except EngineError as error:
        return ServerNews(server, trouble=str(error))


def pairs_of(servers: Sequence[ServerSettings], news: Mapping[str, ServerNews]) -> list[Pair]:
    """The pairs that can be chosen, with the last news by the name of each server. A server with
    several models has one for each, unless its entry in the settings names a model."""
    pairs = []
    for server in servers:
        said = news.get(server.name)
        models = said.found.models if said and said.found and not server.model else ()
        if len(models) > 1:
            pairs += [pair_of_server(server, model.id) for model in models]
        else:
            pairs.append(pair_of_server(server))
    return pairs


def served(pair: Pair, news: ServerNews | None) -> str:
    """In one line: the model of a server, or why it has none."""
    if news is None:
        return "asking the server…"
    if news.trouble:
        return news.trouble
    model = news.found.model(pair.model) if news.found else None
    if model is None:
        return f"it has no model named {pair.model}" if pair.model else "it has no model"
    context = f" · {model.n_ctx:,} tokens of context" if model.n_ctx else ""
    state = f" · {model.state}" if model.state != "loaded" else ""
    return f"{model.id.rsplit('/', 1)[-1]}{context}{state}"
