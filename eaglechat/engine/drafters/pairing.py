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
from eaglechat.wire.protocol import DrafterKind

_NOT_CHAT_MODELS = frozenset({"clip", "bert", "nomic-bert", "jina-bert-v2", "t5encoder"})


@dataclass(frozen=True)
class Pairing:
    """What drafts for a target."""

    kind: DrafterKind
    file: GGUFHeader | None = None
    """The draft's; None if the drafter is in the target's file."""


def kind_of(draft: GGUFHeader) -> DrafterKind | None:
    """The kind of drafter that a file is; None if it is none, as a language model."""
    if draft.architecture == dflash.ARCHITECTURE:
        return dflash.variant(draft)
    return "eagle3" if draft.architecture == DRAFT_ARCHITECTURE else None


def pairings(target: GGUFHeader, draft: GGUFHeader | None) -> tuple[Pairing, ...]:
    """All that drafts for a target: the draft, which `check_headers` has accepted, and what the
    target's own file has."""
    found = []
    kind = kind_of(draft) if draft is not None else None
    if kind is not None:
        found.append(Pairing(kind, draft))
    if mtp.problem(target) is None:
        found.append(Pairing("mtp"))
    return tuple(found)


def kinds(target: GGUFHeader, draft: GGUFHeader | None) -> tuple[DrafterKind, ...]:
    """The kinds of all that drafts for a target, in that order; without any, only n-grams do."""
    return tuple(one.kind for one in pairings(target, draft))


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
    if kind_of(target) is not None:
        message = (
            f"the target {target.path} is a draft (architecture {target.architecture}), not a "
            "language model"
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
    if draft is not None:
        if kind_of(draft) is None:
            raise PreflightError(_not_a_draft(draft))
        check = dflash.check if draft.architecture == dflash.ARCHITECTURE else eagle3.check
        check(target, draft)


def _not_a_draft(given: GGUFHeader) -> str:
    message = f"{given.path} is a model of architecture {given.architecture or '?'}, not a draft"
    if given.architecture in _NOT_CHAT_MODELS:
        return message
    return (
        f"{message}: that a small model drafts for a larger one is not supported, because it was "
        "measured to be slower than no draft"
    )


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
