"""What can draft for a target, by GGUF headers, before llama.cpp opens the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eaglechat.engine.drafters.dflash import pairing as dflash
from eaglechat.engine.drafters.eagle3 import pairing as eagle3
from eaglechat.engine.drafters.model import pairing as model
from eaglechat.engine.drafters.mtp import pairing as mtp
from eaglechat.engine.drafters.vocabulary_map import check_vocabulary_map
from eaglechat.gguf.chat_model import why_no_chat_model
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE, TARGET_ARCHITECTURES, PreflightError
from eaglechat.wire.protocol import DrafterChoice, DrafterKind

_CHECKS: Mapping[DrafterKind, Callable[[GGUFHeader, GGUFHeader], None]] = {
    "eagle3": eagle3.check,
    "eagle4": eagle3.check,
    "mtp": mtp.check,
    "dflash": dflash.check,
    "dspark": dflash.check,
    "dflash2": dflash.check,
    "model": model.check,
}


@dataclass(frozen=True)
class Pairing:
    """What drafts for a target."""

    kind: DrafterKind
    file: GGUFHeader | None = None
    """The draft's; None if the drafter is in the target's file."""


def kind_of(draft: GGUFHeader) -> DrafterKind | None:
    """The kind of drafter that a file is; None for a language model, which may draft for another
    (`model`)."""
    if draft.architecture == dflash.ARCHITECTURE:
        return dflash.variant(draft)
    if mtp.is_draft(draft):
        return "mtp"
    return eagle3.variant(draft) if draft.architecture == DRAFT_ARCHITECTURE else None


def pairings(target: GGUFHeader, draft: GGUFHeader | None) -> tuple[Pairing, ...]:
    """All that drafts for a target: the draft, which `check_headers` has accepted, and what the
    target's own file has. Heads in a sidecar stand in for those in the target."""
    found = []
    kind = (kind_of(draft) or "model") if draft is not None else None
    if kind is not None:
        found.append(Pairing(kind, draft))
    if mtp.problem(target) is None and kind != "mtp":
        found.append(Pairing("mtp"))
    return tuple(found)


def kinds(target: GGUFHeader, draft: GGUFHeader | None) -> tuple[DrafterKind, ...]:
    """The kinds of all that drafts for a target, in that order; without any, only n-grams do."""
    return tuple(one.kind for one in pairings(target, draft))


def offered_kind(target: GGUFHeader, draft: GGUFHeader) -> DrafterKind | None:
    """The kind of drafter that a file would be for a target: `model` for a much smaller model of
    its family; None if it is not worth a try. Whether a draft fits is `check_headers`."""
    return kind_of(draft) or ("model" if model.is_offered(target, draft) else None)


def takes_drafts(target: GGUFHeader) -> bool:
    """Whether llama.cpp runs any draft with targets of this architecture: one that reads their
    layer inputs, or a sidecar of MTP heads."""
    return target.architecture in TARGET_ARCHITECTURES | mtp.ARCHITECTURES


def check_choice(target: GGUFHeader, draft: GGUFHeader | None, choice: DrafterChoice) -> None:
    """Raises PreflightError if the user chose a drafter that the pair does not have."""
    found = kinds(target, draft)
    if choice in ("auto", "ngram", "none") or choice in found:
        return
    why = mtp.problem(target) if choice == "mtp" else None
    why = why or (
        f"the draft given is of another kind ({found[0]})" if draft else "no draft is given"
    )
    raise PreflightError(f"{choice} cannot draft for {target.path.name}: {why}")


def check_pair(target: Path, draft: Path | None) -> tuple[GGUFHeader, GGUFHeader | None]:
    """The headers of a target and its draft. Raises PreflightError if they cannot run together."""
    target_header = _read(target, "target")
    draft_header = _read(draft, "draft") if draft is not None else None
    check_headers(target_header, draft_header)
    if draft_header is not None:
        check_vocabulary_map(draft_header)
        if kind_of(draft_header) is None:
            model.check_texts(target_header, draft_header)
    return target_header, draft_header


def check_headers(target: GGUFHeader, draft: GGUFHeader | None) -> None:
    """Like `check_pair`, of headers alone, such as those of files on the Hub.

    Raises PreflightError.
    """
    kind = kind_of(target)
    if kind is not None:
        message = (
            f"{target.path} has the MTP heads of a model alone, not the model"
            if kind == "mtp"
            else f"the target {target.path} is a draft (architecture {target.architecture}), not a "
            "language model"
        )
        if draft is None:
            raise PreflightError(f"{message}; give it as the draft, with its own target")
        raise PreflightError(
            f"{message}; are target and draft swapped? (the draft given is {draft.path})"
        )
    if (other := why_no_chat_model(target)) is not None:
        named = f" ({target.architecture})" if target.architecture else ""
        raise PreflightError(f"{target.path}{named} cannot chat, it is {other}")
    if not target.architecture:
        raise PreflightError(f"the header of {target.path} does not name its architecture")
    if draft is not None:
        drafts = kind_of(draft)
        if drafts is None and (other := why_no_chat_model(draft)) is not None:
            raise PreflightError(f"{draft.path} cannot draft, it is {other}")
        _CHECKS[drafts or "model"](target, draft)


def why_unfit(target: GGUFHeader, draft: GGUFHeader) -> str | None:
    """Why a draft cannot run with a target, as `check_headers` says; None if it can."""
    try:
        check_headers(target, draft)
    except PreflightError as error:
        return str(error)
    return None


def _read(path: Path, role: str) -> GGUFHeader:
    try:
        header = read_header(path)
    except FileNotFoundError:
        raise PreflightError(f"the {role} {path} does not exist") from None
    except OSError as error:
        why = error.strerror or error
        raise PreflightError(f"the {role} {path} cannot be read: {why}") from error
    except GGUFError as error:
        raise PreflightError(f"the {role} cannot be read: {error}") from error
    return header
