"""The user's chats, as commands read them."""

from __future__ import annotations

from eaglechat import paths
from eaglechat.chat.older import take_over
from eaglechat.chat.store import ChatStore
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import complain


def chat_store() -> ChatStore:
    """The store, with the chats of earlier versions."""
    store = ChatStore(paths.chats_file(), complain)
    bars = Progress(vanish=True)
    try:
        for progress in take_over(store):
            bars.show("Taking over chats", progress.done, progress.total)
    except OSError as error:
        complain(f"chats of an earlier version cannot be taken over: {error}")
    finally:
        bars.close()
    return store
