"""Sentences about what an engine cannot do or does not report. They are None if it can, or if no
engine runs (`hello` is None)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglechat.chat.controls import DRAFTING, Controls
from eaglechat.wire.protocol import AUTO, Hello

_STARTED_WITH = {"enabled", "n_draft_max", "p_min"}
"""Controls that are start options of a program such as llama-server."""


def foreign(hello: Hello | None) -> str:
    """The name of an engine other than eaglechat's own, else empty."""
    return hello.engine if hello is not None and hello.engine != "eaglechat" else ""


def _subject(hello: Hello) -> str:
    """The name of an engine at the beginning of a sentence."""
    return "This server" if hello.engine == "this server" else hello.engine


def not_reported(hello: Hello | None, what: str) -> str | None:
    """What stands in place of a number that an engine does not report. `what` is a field of
    `Capabilities`."""
    if hello is None or getattr(hello.can, what):
        return None
    return f"not reported by {hello.engine}"


def no_comparison(hello: Hello | None) -> str | None:
    """Why a reply cannot be written again without speculation."""
    if hello is None or hello.can.plain:
        return None
    return (
        f"{_subject(hello)} drafts the way it was started. To compare, name the same model without "
        "a draft as plain_model in its entry in config.toml."
    )


def no_prompt(hello: Hello | None) -> str | None:
    """Why the prompt cannot be shown."""
    return (
        None if hello is None or hello.can.prompt else f"{_subject(hello)} does not show prompts."
    )


def no_bench(hello: Hello | None) -> str | None:
    """Why the app cannot run the bench."""
    if hello is None or hello.can.bench:
        return None
    return f"{_subject(hello)} cannot run the bench; `eaglechat bench` measures it."


def not_followed(hello: Hello | None) -> frozenset[str]:
    """Names of the controls that have no effect on an engine's drafting."""
    if hello is None:
        return frozenset()
    if not hello.can.draft_length:
        return DRAFTING
    return DRAFTING - _STARTED_WITH if hello.can.restarts else frozenset()


def no_drafting(hello: Hello | None, change: Mapping[str, Any]) -> str | None:
    """Why a change of these controls has no effect on the drafting."""
    if hello is None or not not_followed(hello) & change.keys():
        return None
    if hello.can.draft_length:
        return f"{_subject(hello)} drafts only chains, without n-grams."
    return f"{_subject(hello)} drafts the way it was started; eaglechat cannot change that."


def no_auto(hello: Hello | None, controls: Controls) -> str | None:
    """Why the draft length cannot be auto."""
    if hello is None or not hello.can.draft_length:
        return None
    if controls.n_draft_max != AUTO or hello.can.auto:
        return None
    return f"{_subject(hello)} cannot choose the draft length itself: set one by hand."


def restart(hello: Hello | None, change: Mapping[str, Any]) -> str | None:
    """A change of these controls restarts the engine's program."""
    if hello is None or not hello.can.restarts or not _STARTED_WITH & change.keys():
        return None
    return f"{_subject(hello)} restarts with this before the next reply."


def not_yet(hello: Hello | None) -> str | None:
    """A change has no effect on the reply that is being written."""
    if hello is None or hello.can.live_draft_length:
        return None
    return f"{_subject(hello)} applies this from the next reply on."
