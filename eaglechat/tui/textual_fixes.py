"""Parts of Textual that do not do what the app needs, each with what is wrong with it."""

from __future__ import annotations

import sys
from contextlib import suppress

from textual._compositor import Compositor, CompositorMap
from textual.drivers._writer_thread import WriterThread


def _write(thread: WriterThread) -> None:
    """Stands in for `WriterThread.run`. Textual's ends when the terminal is gone; then nobody takes
    from its queue, and the app waits for room in it forever: it outlived its window."""
    file = thread._file
    while (text := thread._queue.get()) is not None:
        with suppress(OSError):
            file.write(text)
            if thread._queue.empty():
                file.flush()
    with suppress(OSError):
        file.flush()


WriterThread.run = _write  # type: ignore[assignment,method-assign]


if sys.platform != "win32":
    from textual.drivers.linux_driver import LinuxDriver

    def _resume(driver: LinuxDriver, *_: object) -> None:
        """Stands in for `LinuxDriver._sigcont_application`. A terminal that is closed sends SIGHUP
        and SIGCONT. At any SIGCONT Textual starts its threads again, and if nothing had suspended
        them, the first ones may never end: the app outlived its window, with a core busy."""
        if driver._must_signal_resume:
            driver.resume_application_mode()

    LinuxDriver._sigcont_application = _resume  # type: ignore[assignment,method-assign]


class WholeCompositor(Compositor):
    """Redraws everything that a layout moved.

    If a widget's size is asked for between scrolling and the next layout, Textual makes a new map
    then and takes it as drawn, so what moved in between stays where it was on the screen.
    """

    @property
    def full_map(self) -> CompositorMap:
        drawn = self._full_map if self._visible_map is None else self._visible_map
        was_due = self._full_map_invalidated
        now = super().full_map
        if was_due:
            moved = (
                place.clip.intersection(place.region) for _, place in now.items() ^ drawn.items()
            )
            self._dirty_regions.update(filter(None, moved))
        return now
