"""What the app says about a pair before it is loaded and at the top of its chat."""

from __future__ import annotations

from eaglechat.hub.local.pair import Pair
from eaglechat.tui.commands.registry import key_of
from eaglechat.wire.left_out import without
from eaglechat.wire.protocol import AUTO, Hello, PairInfo


def to_be_loaded(pair: Pair) -> tuple[str, str]:
    """The files to be loaded, or the server to connect to, in two lines."""
    if pair.server is not None:
        return f"server  {pair.server.url}", f"model   {pair.model or 'the one it has'}"
    return f"target  {pair.target.name}", f"draft   {pair.draft.name if pair.draft else 'none'}"


def greeting(info: PairInfo, pair: Pair, hello: Hello | None) -> str:
    """The first lines of a new chat: the loaded pair, and what its draft does."""
    where = ", ".join(info.devices) or "the CPU"
    without_it = f", {without(info.left_out)}" if info.left_out else ""
    loaded = f"Loaded in {info.load_ms / 1000:.1f} s on {where}{without_it}."
    if info.server:
        loaded = f"Connected to {info.server}."
    if info.speculation_off:
        return f"{loaded} Speculation is off: {info.speculation_off}."
    if info.server:
        return loaded
    if info.draft is None:
        return (
            f"{loaded} There is no draft. Where the text repeats itself, n-grams guess what "
            f"followed before, and the target checks the guesses all at once. {pair.note}"
        ).rstrip()
    has_auto = hello is None or hello.can.auto
    last = (_starts_with(pair) if has_auto else "") or pair.note
    return (
        f"{loaded} In every round the draft guesses a few tokens and the target checks them all at "
        f"once. The colours show which guesses it accepted. {last}"
    ).rstrip()


def _starts_with(pair: Pair) -> str:
    """Why the built-in pair begins with a fixed draft length; empty for other pairs."""
    if pair.source != "built-in" or pair.n_draft_max in (None, AUTO):
        return ""
    return (
        f"This small pair drafts {pair.n_draft_max} tokens per round to show how it works; "
        f"{key_of('chat.auto')} lets measurement choose."
    )


def only_read(pair: Pair) -> str:
    """The first line of a chat whose models are not on this machine."""
    return (
        f"{pair.target} no longer exists, so this chat is read-only. "
        f"{key_of('chat.load_again')} loads the models once they are back."
    )
