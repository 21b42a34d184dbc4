"""A row of the menu and the pane beside it, for a model of a server."""

from __future__ import annotations

from textual.content import Content

from eaglechat.hub.local.pair import Pair
from eaglechat.tui.services.servers import ServerNews
from eaglechat.tui.texts import wording
from eaglechat.tui.widgets.readouts import MUTED, Part

_ASKING = "asking the server…"
_WILL_LOAD = {
    "not loaded": ": the server loads it once it is chosen",
    "failed to load": ": choosing it tries again",
}


def row(pair: Pair, news: ServerNews | None) -> Content:
    """Two lines: which server, and what it has or why it cannot be reached."""
    mark = ("○ ", MUTED)
    if news is not None:
        mark = ("✗ ", "$text-error") if news.trouble else ("● ", "$text-success")
        if (model := news.model(pair.model)) and model.state not in ("loaded", "asleep"):
            mark = ("○ ", MUTED)
    kind = f"server · {news.found.kind.name}" if news and news.found else "server"
    kind = kind.removesuffix(" · this server")
    return Content.assemble(
        mark, (pair.name, "bold"), (f"  {kind}", MUTED), "\n  ", (_has(pair, news), MUTED)
    )


def _has(pair: Pair, news: ServerNews | None) -> str:
    if news is None:
        return _ASKING
    if news.trouble:
        return news.trouble
    model = news.model(pair.model)
    if model is None:
        return f"it has no model named {pair.model}" if pair.model else "it has no model"
    context = f" · {model.n_ctx:,} tokens of context" if model.n_ctx else ""
    state = f" · {model.state}" if model.state != "loaded" else ""
    return f"{model.id.rsplit('/', 1)[-1]}{context}{state}"


def details(pair: Pair, news: ServerNews | None) -> Content:
    """Everything that is known."""
    assert pair.server is not None
    parts: list[Part] = [(pair.name, "bold $primary"), f"  {pair.server.url}\n\n"]
    if news is None:
        return Content.assemble(*parts, _ASKING)
    if news.found is None:
        reason = wording.sentence(news.trouble or "")
        return Content.assemble(*parts, ("Cannot be reached", "bold $text-error"), f"\n{reason}")
    parts.append(("Can be reached", "$text-success"))
    found, model = news.found, news.model(pair.model)
    silence = "known once a model is loaded" if found.on_demand else "it does not say"
    drafts = {True: "yes", False: "no draft", None: silence}[found.drafts]
    rows = [
        ("server", found.kind.name if found.kind.name != "this server" else "OpenAI-compatible"),
        ("version", found.version),
        ("model", model.id if model else ""),
        ("state", f"{model.state}{_WILL_LOAD.get(model.state, '')}" if model else ""),
        ("context", f"{model.n_ctx:,} tokens" if model and model.n_ctx else ""),
        ("speculation", drafts),
        ("for comparisons", pair.server.plain_model),
        ("its models", ", ".join(one.id for one in found.models) if len(found.models) > 1 else ""),
    ]
    for label, value in rows:
        if value:
            parts += [(f"\n  {label:<16}", MUTED), value]
    return Content.assemble(*parts)
