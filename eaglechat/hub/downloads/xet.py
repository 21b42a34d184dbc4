"""The missing bytes of one large file from the Hub's Xet storage, through hf_xet.

Not through huggingface_hub, whose download begins anew each time: a stream of hf_xet begins at any
byte. It fetches with many connections itself, and gives the bytes in their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from huggingface_hub.utils import XetFileData

from eaglechat.hub.downloads.client import FileMetadata, Hub
from eaglechat.hub.downloads.stop import StopSignal
from eaglechat.hub.errors import HubError, NotFoundError
from eaglechat.hub.local.parts import Part

_STEP_S = 0.1
_FAREWELL_S = 0.5


class XetTransfer:
    """One attempt, from the first byte that is missing to the end."""

    resumes = True

    def __init__(
        self, hub: Hub, found: FileMetadata, name: str, part: Part, stop: StopSignal
    ) -> None:
        self._hub, self._found, self._name = hub, found, name
        self._part, self._stop = part, stop
        self._changed = threading.Event()
        self._error: Exception | None = None
        self._ended = False

    def run(self, on_step: Callable[[], bool]) -> None:
        """Fetch until nothing is missing; `on_step` as for `Transfer.run`.

        Raises HubError, StoppedError, OSError, and what `on_step` raises.
        """
        session = self._session()
        thread = threading.Thread(target=self._work, args=(session,), daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                self._stop.check()
                if not on_step():
                    self._changed.wait(_STEP_S)
                    self._changed.clear()
        finally:
            self._ended = True
            # The one call that also wakes a thread that waits for the network.
            session.sigint_abort()
            thread.join(_FAREWELL_S)
        self._stop.check()
        if self._error is not None:
            raise self._error

    def _session(self) -> Any:
        try:
            from hf_xet import XetConfig, XetSession  # noqa: PLC0415 - not built for all machines
        except ImportError as error:
            raise HubError(
                f"{self._name} is larger than what the Hub gives over HTTP: install hf_xet, which "
                "can fetch it, with `pip install hf_xet`."
            ) from error
        timeouts = self._hub.timeouts
        return XetSession(
            XetConfig().with_config(
                {
                    "client.connect_timeout": timedelta(seconds=timeouts.connect),
                    "client.read_timeout": timedelta(seconds=timeouts.read),
                    # What lasts longer is waited out where the user sees it.
                    "client.retry_max_attempts": 2,
                    "client.retry_base_delay": timedelta(seconds=0.5),
                    "telemetry.enabled": False,
                }
            )
        )

    def _work(self, session: Any) -> None:
        try:
            at = self._part.unbroken()
            for data in self._pieces(session, at):
                if self._ended:
                    return
                self._part.write(at, data)
                at += len(data)
                self._changed.set()
            if at < self._found.size:
                raise HubError(f"{self._name} ended early: try again to resume.", transient=True)
        except Exception as error:  # raised by `run`, in the thread that asked
            self._error = error
        finally:
            self._changed.set()

    def _pieces(self, session: Any, start: int) -> Iterator[bytes]:
        from hf_xet import XetFileInfo  # noqa: PLC0415

        xet, size = self._found.xet, self._found.size
        assert isinstance(xet, XetFileData)
        if start == size:
            return
        try:
            group = session.new_download_stream_group(
                token_refresh_url=xet.refresh_route,
                token_refresh_headers=self._hub.request_headers(xet.refresh_route),
            )
            yield from group.download_stream(XetFileInfo(xet.file_hash, size), start=start)
        except FileNotFoundError as error:
            raise NotFoundError(f"{self._name} is not where the Hub says it is.") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise HubError(
                f"The Hub's storage failed on {self._name} (hf_xet: {error}): try again later to "
                "resume.",
                transient=True,
            ) from error
