"""Parts of Textual that do not do what the app needs, each with what is wrong with it."""

from __future__ import annotations

import sys
from contextlib import suppress

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
