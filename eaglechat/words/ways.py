"""The ways to make a target fast, in words: what each is, whether it fits, and what runs it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from eaglechat.hub.units import format_bytes
from eaglechat.words.wording import drafter

if TYPE_CHECKING:
    # At run time this would bring the Hub's client.
    from eaglechat.hub.downloads.find_drafts import Target, Way

_NAMES = {
    "built_in": "Its own {}",
    "n_grams": "n-grams",
    "training": "A draft trained for it",
}
_NOTES = {
    "built_in": "in the same file: nothing more to download",
    "n_grams": "repeat what stood in the chat before: nothing more to download",
    "training": "takes hours, and torch",
    "here": "on this machine: nothing more to download",
    "with_heads": "the same model with MTP heads of its own",
    "beside": "fits; found beside the target",
    "catalogue": "fits; found in the catalogue",
    "base_model": "fits; found for the same base model",
    "name": "fits; found by its name",
}


def name(way: Way) -> str:
    """What it is; of a draft, its name here, or its repository and file; of a pair, its name."""
    if way.pair is not None:
        return way.pair.name
    if (general := _NAMES.get(way.where)) is not None:
        return general.format(drafter(way.kind))
    if way.path is not None:
        return way.name
    return way.repo if way.is_checkpoint or not way.files else f"{way.repo}/{way.files[0]}"


def facts(way: Way) -> str:
    how = ""
    if way.needs_download:
        how = "GGUF"
        if way.is_checkpoint:
            how = "checkpoint" if way.fits is False else "to convert"
    parts = [
        drafter(way.kind) if way.kind and way.where != "built_in" else "",
        how,
        format_bytes(way.size_bytes) if way.size_bytes else "",
        way.licence or "",
        "gated" if way.gated else "",
    ]
    return " · ".join(filter(None, parts))


def judgement(way: Way) -> str:
    return way.problem or "; ".join(filter(None, (way.warning or _NOTES[way.where], way.note)))


def command(target: Target, way: Way) -> str:
    """The command line that takes this way; empty if it cannot be taken."""
    if way.fits is False:
        return ""
    model = shlex.quote(str(target.path or target.source))
    here = target.path is not None
    if way.where == "training":
        file = f"{target.name}-eagle3.gguf"
        return f"eaglechat train --target {model} -o {shlex.quote(file)}" if here else ""
    if way.where == "with_heads":
        return f"eaglechat pull {shlex.quote(name(way))}"
    if way.needs_download:
        return f"eaglechat pull {model} --draft {shlex.quote(name(way))}"
    if not here:
        return f"eaglechat pull {model}"
    draft = f" --draft {shlex.quote(str(way.path))}" if way.path is not None else ""
    return f"eaglechat run --target {model}{draft}"
