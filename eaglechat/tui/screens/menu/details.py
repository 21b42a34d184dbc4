"""The pane beside the menu: everything that is known of a model, or of a chat."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Sequence

from textual.content import Content

from eaglechat import paths
from eaglechat.chat.history.listing import ChatSummary
from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub import fit
from eaglechat.hub.local.bandwidth import measured
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.registry import key_of, with_keys
from eaglechat.tui.screens.menu.known import Known
from eaglechat.tui.screens.menu.servers import ASKING_SERVER, ServerNews
from eaglechat.tui.texts import drafting, wording
from eaglechat.tui.texts.gain import in_words
from eaglechat.tui.widgets.readouts import MUTED, Part

_ASKING = "asking the Hub…"
_NOT_KNOWN = "not known"
"""The line above the rows says why."""
_LABEL = 14
_WILL_LOAD = {
    "not loaded": ": the server loads it once it is chosen",
    "failed to load": ": choosing it tries again",
}


def of_chat(chat: ChatSummary, width: int) -> Content:
    used = datetime.datetime.fromtimestamp(chat.used).strftime("%Y-%m-%d %H:%M")
    rows = [
        ("model", chat.header.pair if chat.header else ""),
        ("messages", f"{chat.messages:,}"),
        ("last used", used),
    ]
    return Content.assemble((chat.title, "bold $primary"), "\n", *_table(rows, width))


def of_model(known: Known, width: int) -> Content:
    """In lines of `width` cells."""
    offer = known.offer
    if offer.pair is not None and offer.pair.server is not None:
        return _server_details(offer.pair, known.news, width)
    parts: list[Part] = [(offer.name, "bold $primary")]
    if offer.entry is not None and offer.entry.title:
        parts.append(f"  {offer.entry.title}")
    parts += ["\n\n", *_verdict(known), "\n", *_speed_lines(known, width)]
    if known.status is not None and known.status.problem is None:
        for role, header in (("Target", known.status.target), ("Draft", known.status.draft)):
            if header is not None:
                parts += _header_lines(role, header, width)
    elif offer.entry is not None and offer.pair is None:
        parts += _download_lines(known, width)
    if offer.entry is not None:
        parts += _catalogue_lines(known, width)
    note = offer.pair.note if offer.pair else offer.entry.note if offer.entry else ""
    if note:
        parts += ["\n", (note, MUTED)]
    return Content.assemble(*parts)


def _verdict(known: Known) -> list[Part]:
    judged = known.fit
    if known.problem:
        return [("Cannot run here", "bold $text-error"), "\n", wording.sentence(known.problem)]
    if judged is None:
        waiting = "reading the headers…" if known.offer.pair else _ASKING
        return [known.trouble or (_NOT_KNOWN if known.offline else waiting)]
    if judged.word is None:
        return [wording.sentence(judged.text), "\nWhether the KV cache fits too is not known."]
    can = "Can run here" if known.offer.pair else "Would run here"
    n_ctx = f" at engine.n_ctx {known.n_ctx:,}" if known.n_ctx else " at the default context"
    # Without the headers only the weights are known, which no context changes.
    return [(can, "$text-success"), f"\n{judged.text}{n_ctx if known.need is not None else ''}"]


def _speed_lines(known: Known, width: int) -> list[Part]:
    """What drafts, the memory of each, and what it gains; where nothing drafts, why and what would
    help."""
    rows: list[tuple[str, str | None]] = []
    if known.drafters is not None:
        target = known.status.target if known.status is not None else None
        why = ""
        if target is not None and not known.drafters:
            looks = with_keys("{menu.drafts} looks for a draft.")
            why = f"{drafting.why_none(target)} {looks}"
        need = known.need
        memory = drafting.shares(need, known.drafters) if need is not None else ""
        rows += [("memory", memory), ("drafted by", drafting.badge(known.drafters)), ("", why)]
    if (gain := known.gain) is not None:
        day = datetime.datetime.fromtimestamp(gain.at).strftime("%Y-%m-%d")
        said = in_words(gain.speed_up, gain.error, f"with {gain.n_draft_max}")
        by = {"bench": "the bench", "race": "a race"}.get(gain.by, f"{gain.replies} replies")
        rows.append(("measured here", f"{said}, by {by}, {day}"))
    facts = known.facts
    if facts is not None and facts.memory is not None and known.offer.pair is None:
        bandwidth = measured(paths.state_dir())
        expected = fit.estimate(facts.reads, facts.memory, known.machine, bandwidth)
        rows.append(("speed", expected))
    return [*_table(rows, width), "\n"] if rows else []


def _download_lines(known: Known, width: int) -> list[Part]:
    entry, status, facts = known.offer.entry, known.offer.status, known.facts
    assert entry is not None
    rows = [
        ("target", str(entry.target)),
        ("draft", str(entry.draft)),
        (
            "steps",
            "download, then convert the checkpoint"
            if entry.draft.checkpoint
            else f"download{'; the draft is a GGUF' if entry.draft.repo else ''}",
        ),
        ("download", _download(known)),
    ]
    if status is not None and status.bytes_here:
        rows.append(("here already", format_bytes(status.bytes_here)))
    if facts is not None:
        gated = "accept the licence of " + ", ".join(facts.gated) if facts.gated else "no"
        rows.append(("gated", gated))
    return _table(rows, width)


def _download(known: Known) -> str:
    if (moving := known.moving) is not None:
        return f"{moving.stage.value}; {key_of('app.downloads')} shows it"
    if known.facts is not None:
        return format_bytes(known.facts.bytes_total)
    if known.seen_bytes is not None and known.offline:
        is_whole = known.offer.entry is not None and known.offer.entry.size
        return format_bytes(known.seen_bytes) + ("" if is_whole else ", and its draft")
    return known.trouble or (_NOT_KNOWN if known.offline else _ASKING)


def _catalogue_lines(known: Known, width: int) -> list[Part]:
    entry, facts = known.offer.entry, known.facts
    assert entry is not None
    rows: list[tuple[str, str | None]] = [("licence", entry.licence)]
    if facts is not None:
        said = sorted({licence for _, licence in facts.licences})
        rows = [("licence", ", ".join(said) or entry.licence)]
    rows += [
        ("base model", entry.base_model),
        ("trained for", entry.trained_for),
        ("acceptance", entry.acceptance),
        ("speed-up", f"{entry.speed_up:.2f}x, published" if entry.speed_up else ""),
        ("tried", "" if known.gain else "not by eaglechat's makers"),
    ]
    return _table(rows, width)


def _header_lines(role: str, header: GGUFHeader, width: int) -> list[Part]:
    rows = [
        ("architecture", header.architecture),
        ("quantisation", header.quantization),
        ("size", format_bytes(header.size_bytes)),
        ("layers", f"{header.n_layers}"),
        ("hidden size", f"{header.n_embd:,}"),
        ("vocabulary", f"{header.n_vocab:,}"),
    ]
    if role == "Target":
        rows.append(("trained for", f"{header.n_ctx_train:,} tokens"))
    return ["\n", (role, "bold"), f"  {header.name}", *_table(rows, width), "\n"]


def _table(rows: Sequence[tuple[str, str | None]], width: int) -> list[Part]:
    """Two columns: labels and their values."""
    lines: list[Part] = []
    for label, value in rows:
        room = max(width - _LABEL - 2, 16)
        first, *rest = textwrap.wrap(value or "", room, break_on_hyphens=False) or [""]
        if first:
            lines += ["\n", (f"  {label:<{_LABEL}}", MUTED), first]
            lines += [f"\n  {'':<{_LABEL}}{line}" for line in rest]
    return lines


def _server_details(pair: Pair, news: ServerNews | None, width: int) -> Content:
    assert pair.server is not None
    parts: list[Part] = [(pair.name, "bold $primary"), f"  {pair.server.url}\n\n"]
    if news is None:
        return Content.assemble(*parts, ASKING_SERVER)
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
        ("comparisons", pair.server.plain_model),
        ("its models", ", ".join(one.id for one in found.models) if len(found.models) > 1 else ""),
    ]
    return Content.assemble(*parts, *_table(rows, width))
