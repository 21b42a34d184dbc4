"""What can draft for a target, by GGUF headers, before llama.cpp opens the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eaglechat.engine.drafters.dflash import pairing as dflash
from eaglechat.engine.drafters.eagle3 import pairing as eagle3
from eaglechat.engine.drafters.mtp import pairing as mtp
from eaglechat.engine.drafters.vocabulary_map import check_vocabulary_map
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE, PreflightError
from eaglechat.wire.protocol import DrafterChoice, DrafterKind

_NOT_CHAT_MODELS = frozenset({"clip", "bert", "nomic-bert", "jina-bert-v2", "t5encoder", "dflash"})


@dataclass(frozen=True)
class Pairing:
    """What drafts for a target."""

    kind: DrafterKind
    file: GGUFHeader | None = None
    """The draft's; None if the drafter is in the target's file."""


def pairings(target: GGUFHeader, draft: GGUFHeader | None) -> tuple[Pairing, ...]:
    """All that drafts for a target: the draft, which `check_headers` has accepted, and what the
    target's own file has."""
    found = []
    if draft is not None:
        found.append(Pairing(kind_of(draft), draft))
    if mtp.problem(target) is None and "mtp" not in [one.kind for one in found]:
        found.append(Pairing("mtp"))
    return tuple(found)


def kind_of(draft: GGUFHeader) -> DrafterKind:
    """The kind of a draft file; eagle3 for a file that is none."""
    if draft.architecture == dflash.ARCHITECTURE:
        return dflash.variant(draft)
    return "mtp" if mtp.is_draft(draft) else "eagle3"


def check_choice(target: GGUFHeader, draft: GGUFHeader | None, choice: DrafterChoice) -> None:
    """Raises PreflightError if the user chose a drafter that the pair does not have."""
    kinds = [one.kind for one in pairings(target, draft)]
    if choice in ("auto", "ngram", "none") or choice in kinds:
        return
    why = mtp.problem(target) if choice == "mtp" else None
    why = why or (
        f"the draft given is of another kind ({kinds[0]})" if draft else "no draft is given"
    )
    raise PreflightError(f"{choice} cannot draft for {target.path.name}: {why}")


def check_pair(target: Path, draft: Path | None) -> tuple[GGUFHeader, GGUFHeader | None]:
    """The headers of a target and its draft. Raises PreflightError if they cannot run together."""
    target_header = _read(target, "target")
    draft_header = _read(draft, "draft") if draft is not None else None
    check_headers(target_header, draft_header)
    if draft_header is not None:
        check_vocabulary_map(draft_header)
    return target_header, draft_header


def check_headers(target: GGUFHeader, draft: GGUFHeader | None) -> None:
    """Like `check_pair`, of headers alone, such as those of files on the Hub.

    Raises PreflightError.
    """
    if target.architecture == DRAFT_ARCHITECTURE:
        message = (
            f"the target {target.path} is an EAGLE-3 draft (architecture eagle3), not a language "
            "model"
        )
        if draft is None:
            raise PreflightError(f"{message}; give it as the draft, with its own target")
        raise PreflightError(
            f"{message}; are target and draft swapped? (the draft given is {draft.path})"
        )
    if target.architecture in _NOT_CHAT_MODELS:
        raise PreflightError(
            f"{target.path} is a {target.architecture} model, which cannot chat; "
            "the target must be a language model"
        )
    if mtp.is_draft(target):
        raise PreflightError(
            f"{target.path} has the MTP heads of a model alone, not the model; give it as the "
            "draft, with its own target"
        )
    if draft is not None:
        is_same_kind = draft.architecture == target.architecture
        check = mtp.check if is_same_kind or mtp.is_draft(draft) else eagle3.check
        if draft.architecture == dflash.ARCHITECTURE:
            check = dflash.check
        check(target, draft)


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
    if not header.architecture:
        raise PreflightError(f"the {role} {path} does not name its architecture")
    return header
