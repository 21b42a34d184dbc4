"""What drafts for each model of a list, by the headers: `models` and `doctor` print it."""

from __future__ import annotations

from collections.abc import Sequence

from eaglechat.engine.drafters.pairing import kind_of, kinds
from eaglechat.hub.local.library import LocalModel, ModelKind, fitting
from eaglechat.tui.texts import drafting
from eaglechat.wire.protocol import DrafterKind

TARGETS = (ModelKind.TARGET, ModelKind.PLAIN)


def drafters_of(model: LocalModel, models: Sequence[LocalModel]) -> tuple[DrafterKind, ...]:
    """What drafts for a target, besides n-grams: its own file, and the drafts among `models` that
    fit it. Of a draft, its kind. Empty for all other files."""
    if model.header is None:
        return ()
    if model.kind in TARGETS:
        drafts = [kind_of(draft.header) for draft in fitting(model, models) if draft.header]
        own = kinds(model.header, None)
        return tuple(dict.fromkeys(kind for kind in (*own, *drafts) if kind is not None))
    kind = kind_of(model.header)
    return (kind,) if kind is not None else ()


def badge(model: LocalModel, drafters: Sequence[DrafterKind]) -> str:
    """Empty for a file that neither drafts nor is drafted for."""
    return drafting.badge(drafters) if drafters or model.kind in TARGETS else ""


def about(model: LocalModel, drafters: Sequence[DrafterKind]) -> str | None:
    """Why a file cannot be used, or why nothing but n-grams drafts for it; None if neither."""
    if model.kind not in TARGETS or model.header is None:
        return model.problem
    return None if drafters else drafting.why_none(model.header)
