"""What is said before a model is deleted."""

from __future__ import annotations

from collections.abc import Iterable

from eaglechat.hub.local.cache import hops
from eaglechat.hub.local.model import Source
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.local.removal import Removal
from eaglechat.hub.units import format_bytes
from eaglechat.words.wording import plural

_SHARED = {
    Source.HUGGING_FACE: "It is in the Hugging Face cache, where other programs find it too.",
    Source.LM_STUDIO: "It is in LM Studio's folder: LM Studio loses it too.",
    Source.LLAMA_CPP: "It is in llama.cpp's folder: llama.cpp loses it too.",
}


def what_goes(removal: Removal) -> list[str]:
    """The models that are deleted, then each path and what its deletion frees."""
    frees = {path: format_bytes(size) for path, size in removal.files.items()}
    width = max(map(len, frees.values()), default=0)
    names = dict.fromkeys(model.name for model in removal.models)
    return [*names, *(f"  {freed:>{width}}  {path}" for path, freed in frees.items())]


def consequences(removal: Removal, pairs: Iterable[Pair], n_chats: int) -> list[str]:
    """Whose the files of a removal are, and what else loses or keeps them, in sentences."""
    owners = {model.source for model in removal.models}
    said = [text for source, text in _SHARED.items() if source in owners]
    if removal.revisions > 1:
        said.append(f"It is removed from {removal.revisions} revisions of its repository.")
    if users := removal.used_by(pairs):
        said.append(f"Pairs that need it: {', '.join(users)}.")
    if n_chats:
        said.append(f"{plural(n_chats, 'chat')} with it can then only be read.")
    others = [
        one
        for model in removal.models
        for one in model.also
        if next(hops(one.path)) not in removal.files
    ]
    for word, found in (
        ("Links to it break", [one for one in others if removal.takes(one.path)]),
        ("A copy stays", [one for one in others if not removal.takes(one.path)]),
    ):
        names = ", ".join(f"{one.name} ({one.source.value})" for one in found)
        if names:
            said.append(f"{word}: {names}.")
    return said
