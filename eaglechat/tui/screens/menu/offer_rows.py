"""A row of the menu and the pane beside it: for a pair that is here, for one that can be had, and
for a model of a server."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.memory import MemoryNeed, default_context, memory_need
from eaglechat.hub import fit
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.facts import Facts
from eaglechat.hub.fit import Fit, Machine
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import InspectedPair, OfferedPair
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.registry import key_of
from eaglechat.tui.screens.menu.servers import ServerNews
from eaglechat.tui.texts import drafting, wording
from eaglechat.tui.widgets.readouts import MUTED, Part
from eaglechat.wire.protocol import DrafterKind
from eaglechat.wire.records import KvType

if TYPE_CHECKING:
    from eaglechat.hub.downloads.queue import InstallSnapshot

ASKING = "asking the Hub…"
_LABEL = 14

_ASKING_SERVER = "asking the server…"
_WILL_LOAD = {
    "not loaded": ": the server loads it once it is chosen",
    "failed to load": ": choosing it tries again",
}


@dataclass(frozen=True)
class Known:
    """What is known about an offer so far. `trouble` says why the Hub's facts are missing."""

    offer: OfferedPair
    machine: Machine
    n_ctx: int
    kv_types: tuple[KvType, KvType] = ("f16", "f16")
    """KV cache types of the target and of the draft."""
    status: InspectedPair | None = None
    facts: Facts | None = None
    trouble: str | None = None
    moving: InstallSnapshot | None = None
    news: ServerNews | None = None
    """The last answer of the server that has it."""

    @property
    def problem(self) -> str | None:
        """Why the pair cannot run here."""
        if self.status is not None and self.status.problem:
            return self.status.problem
        judged = self.fit
        return judged.text if judged is not None and judged.fits is False else None

    @property
    def drafters(self) -> tuple[DrafterKind, ...] | None:
        """What drafts, besides n-grams; None if that is not known."""
        entry = self.offer.entry
        if self.status is not None and self.status.target is not None:
            return self.status.drafters
        if self.facts is not None and self.facts.drafters is not None:
            return self.facts.drafters
        # No other checkpoint is converted.
        return ("eagle3",) if entry is not None and entry.draft.checkpoint else None

    @property
    def need(self) -> MemoryNeed | None:
        """The memory that the pair needs; None if its headers are not known."""
        if self.status is not None and self.status.loaded_target is not None:
            models = self.status.loaded_target, self.status.draft
            n_ctx = self.n_ctx or default_context(*models, self.machine.free, *self.kv_types)
            return memory_need(*models, n_ctx, *self.kv_types)
        return self.facts.memory if self.facts is not None else None

    @property
    def fit(self) -> Fit | None:
        if (need := self.need) is not None:
            return fit.judge(need, self.machine)
        entry = self.offer.entry if self.offer.pair is None else None
        seen = (entry.size or entry.target.size) if entry else None
        return fit.judge_weights(seen, self.machine) if seen else None


def matching(offers: Iterable[Known], words: Sequence[str]) -> list[Known]:
    """Offers that contain all the words; first those that contain them in their name."""
    found = [known for known in offers if all(word in _searched(known) for word in words)]

    def rank(known: Known) -> int:
        name = known.offer.name.casefold()
        return 0 if [name] == list(words) else 1 if all(word in name for word in words) else 2

    return sorted(found, key=rank)


def _searched(known: Known) -> str:
    """The text that typing filters."""
    offer, entry = known.offer, known.offer.entry
    words = [offer.name, offer.label, offer.pair.target.name if offer.pair else ""]
    if entry is not None:
        words += [entry.title, entry.licence, entry.architecture or "", str(entry.target)]
        words += [entry.draft.repo or entry.draft.checkpoint or "", entry.base_model or ""]
    if known.status is not None:
        headers = filter(None, (known.status.target, known.status.draft))
        words += [f"{header.architecture} {header.quantization}" for header in headers]
    if known.drafters is not None:
        words.append(drafting.badge(known.drafters))
    return " ".join(words).casefold()


def row(known: Known) -> Content:
    """Two lines: the offer, and what it takes to run it."""
    offer = known.offer
    if offer.pair is not None and offer.pair.server is not None:
        return _server_row(offer.pair, known.news)
    mark = ("○ ", MUTED)
    if known.problem:
        mark = ("✗ ", "$text-error")
    elif known.status is not None and known.status.target is not None:
        mark = ("● ", "$text-success")
    elif offer.label == "partly":
        mark = ("◐ ", "$text-warning")
    label = offer.label
    if offer.entry is not None and offer.entry.licence:
        label += f" · {offer.entry.licence}"
    second = f"cannot run: {known.problem}" if known.problem else _takes(known)
    return Content.assemble(
        mark, (offer.name, "bold"), (f"  {label}", MUTED), "\n  ", (second, MUTED)
    )


def _takes(known: Known) -> str:
    """The models of a pair that is here; what it takes to get any other."""
    status, judged = known.status, known.fit
    memory = [judged.brief] if judged else []
    if known.moving is not None:
        return f"{_progress(known.moving)} · {key_of('app.downloads')} shows it"
    if known.offer.pair is not None:
        if status is None or status.target is None:
            return "reading the headers…"
        return " · ".join([drafting.made_of(status.target, status.draft), *memory])
    badge = [drafting.badge(known.drafters)] if known.drafters is not None else []
    return " · ".join([_download(known), *badge, *memory, *_gated(known)])


def _progress(moving: InstallSnapshot) -> str:
    share = moving.bytes_done / moving.bytes_total if moving.bytes_total else 0.0
    return f"{moving.stage.value} {share:.0%}"


def _download(known: Known) -> str:
    entry, status, facts = known.offer.entry, known.offer.status, known.facts
    assert entry is not None
    what = "download + convert" if entry.draft.checkpoint else "download"
    here = f", {format_bytes(status.bytes_here)} here" if status and status.bytes_here else ""
    if facts is not None:
        return f"{what} {format_bytes(facts.bytes_total)}{here}"
    return f"{what}{here} · {known.trouble or ASKING}"


def _gated(known: Known) -> list[str]:
    return ["gated"] if known.facts is not None and known.facts.gated else []


def details(known: Known, width: int) -> Content:
    """Everything that is known about an offer, in lines of `width` cells."""
    offer = known.offer
    if offer.pair is not None and offer.pair.server is not None:
        return _server_details(offer.pair, known.news)
    parts: list[Part] = [(offer.name, "bold $primary")]
    if offer.entry is not None and offer.entry.title:
        parts.append(f"  {offer.entry.title}")
    parts += ["\n\n", *_verdict(known), "\n", *_drafter_lines(known, width)]
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
        return [known.trouble or (ASKING if known.offer.entry else "reading the headers…")]
    can = "Can run here" if known.offer.pair else "Would run here"
    n_ctx = f"at engine.n_ctx {known.n_ctx:,}" if known.n_ctx else "at the default context"
    return [(can, "$text-success"), f"\n{judged.text} {n_ctx}"]


def _drafter_lines(known: Known, width: int) -> list[Part]:
    """What drafts, and the memory of each; where nothing does, why and what would help."""
    if known.drafters is None:
        return []
    target = known.status.target if known.status is not None else None
    why = drafting.why_none(target) if target is not None and not known.drafters else ""
    need = known.need
    memory = drafting.shares(need, known.drafters) if need is not None else ""
    rows = [("memory", memory), ("drafted by", drafting.badge(known.drafters)), ("", why)]
    return [*_table(rows, width), "\n"]


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
        ("download", format_bytes(facts.bytes_total) if facts else known.trouble or ASKING),
    ]
    if status is not None and status.bytes_here:
        rows.append(("here already", format_bytes(status.bytes_here)))
    if facts is not None:
        gated = "accept the licence of " + ", ".join(facts.gated) if facts.gated else "no"
        rows.append(("gated", gated))
    return _table(rows, width)


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


def without_hub(entry: CatalogueEntry) -> str:
    """What is known about the size of a pair while the Hub cannot be reached."""
    if entry.size is not None:
        return f"{format_bytes(entry.size)} when last seen: Hub unreachable"
    if entry.target.size is not None:
        return f"{format_bytes(entry.target.size)} and a draft: Hub unreachable"
    return "size unknown: Hub unreachable"


def door(name: str, explanation: str) -> Content:
    """Two lines: the name of another screen, and what is there."""
    return Content.assemble("  ", (name, "bold"), "\n  ", (explanation, "$foreground-muted"))


def _server_row(pair: Pair, news: ServerNews | None) -> Content:
    """Two lines: which server, and what it has or why it cannot be reached."""
    mark = ("○ ", MUTED)
    if news is not None:
        mark = ("✗ ", "$text-error") if news.trouble else ("● ", "$text-success")
        if (model := news.model(pair.model)) and not model.is_ready:
            mark = ("○ ", MUTED)
    kind = f"server · {news.found.kind.name}" if news and news.found else "server"
    kind = kind.removesuffix(" · this server")
    return Content.assemble(
        mark, (pair.name, "bold"), (f"  {kind}", MUTED), "\n  ", (_served(pair, news), MUTED)
    )


def _served(pair: Pair, news: ServerNews | None) -> str:
    if news is None:
        return _ASKING_SERVER
    if news.trouble:
        return news.trouble
    model = news.model(pair.model)
    if model is None:
        return f"it has no model named {pair.model}" if pair.model else "it has no model"
    context = f" · {model.n_ctx:,} tokens of context" if model.n_ctx else ""
    state = f" · {model.state}" if model.state != "loaded" else ""
    return f"{model.id.rsplit('/', 1)[-1]}{context}{state}"


def _server_details(pair: Pair, news: ServerNews | None) -> Content:
    """Everything that is known."""
    assert pair.server is not None
    parts: list[Part] = [(pair.name, "bold $primary"), f"  {pair.server.url}\n\n"]
    if news is None:
        return Content.assemble(*parts, _ASKING_SERVER)
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
