"""Work that waits for the network or the disk, away from the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from textual.message import Message
from textual.screen import Screen


def in_background(screen: Screen[Any], messages: Callable[[], Iterable[Message]]) -> None:
    """Run `messages` in a thread and post what it yields to the screen, as long as that is there.

    A daemon, unlike Textual's workers: quitting does not wait for a network that does not answer.
    """

    def run() -> None:
        for message in messages():
            try:
                if not screen.is_running:
                    return
                screen.post_message(message)
            except RuntimeError:
                # The app ended between the two lines above.
                return

    threading.Thread(target=run, name="background", daemon=True).start()
