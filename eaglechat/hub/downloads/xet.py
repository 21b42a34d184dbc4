"""The missing bytes of one large file from the Hub's Xet storage, through hf_xet.

Not through huggingface_hub, whose download begins anew each time: a stream of hf_xet begins at any
byte. It fetches with many connections itself, and gives the bytes in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from eaglechat.hub.downloads.client import FileMetadata, Hub
from eaglechat.hub.downloads.stop import StopSignal
from eaglechat.hub.downloads.transfer import Transfer
from eaglechat.hub.errors import HubError, NotFoundError
from eaglechat.hub.local.parts import Part


class XetTransfer(Transfer):
    """One attempt, from the first byte that is missing to the end."""

    connections = 1

    def __init__(
        self, hub: Hub, found: FileMetadata, name: str, part: Part, stop: StopSignal
    ) -> None:
        """Raises HubError where hf_xet is not installed."""
        super().__init__(hub, found, name, part, stop)
        self._session = self._new_session()

    def _new_session(self) -> Any:
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

    def _hang_up(self) -> None:
        # The one call that also wakes a thread that waits for the network.
        self._session.sigint_abort()

    def _fetch(self, start: int, end: int) -> None:
        """From `start` on to the end of the file: `Part` passes over what is here already."""
        for data in self._pieces(start):
            self._check_wanted()
            self._part.write(start, data)
            start += len(data)
            self._changed.set()
        self._check_wanted()
        if start < self._found.size:
            raise self._fault("ended early: try again to resume")

    def _pieces(self, start: int) -> Iterator[bytes]:
        from hf_xet import XetFileInfo  # noqa: PLC0415

        xet = self._found.xet
        assert xet is not None
        try:
            group = self._session.new_download_stream_group(
                token_refresh_url=xet.refresh_route,
                token_refresh_headers=self._hub.request_headers(xet.refresh_route),
            )
            info = XetFileInfo(xet.file_hash, self._found.size)
            yield from group.download_stream(info, start=start)
        except FileNotFoundError as error:
            raise NotFoundError(f"{self._name} is not where the Hub says it is.") from error
        except (OSError, RuntimeError, ValueError) as error:
            raise HubError(
                f"The Hub's storage failed on {self._name} (hf_xet: {error}): try again later to "
                "resume.",
                transient=True,
            ) from error
