"""Event loops in threads of their own, which nobody waits for at the end of the program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Daemons(ThreadPoolExecutor):
    """Looks up names of hosts in daemon threads: an exit does not wait for a name server."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        # What is begun cannot be cancelled: its thread goes on, and has a result in the end.
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="lookup", daemon=True).start()
        return future


def new_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Daemons())
    return loop


def run_to_end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Run a task in this thread until it is done or cancelled, and end what it left behind."""
    asyncio.set_event_loop(loop)
    try:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        left = asyncio.all_tasks(loop)
        for one in left:
            one.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def result_of(work: Coroutine[Any, Any, Result]) -> Result:
    """What comes of the work, done in this thread; it raises what the work does."""
    loop = new_loop()
    task = loop.create_task(work)
    with suppress(Exception):
        run_to_end(loop, task)
    return task.result()
