"""What the hub package raises; the text of each error is one sentence for the user."""

from __future__ import annotations

from pathlib import Path

from eaglechat.hub.units import format_bytes
from eaglechat.wire.errors import EngineError


class HubError(EngineError):
    """A question to the Hub or a download failed.

    `transient`: trying again may help, after `retry_after` seconds if the Hub named a time.
    """

    def __init__(self, text: str, *, transient: bool = False, retry_after: float | None = None):
        super().__init__(text)
        self.transient = transient
        self.retry_after = retry_after


class OfflineError(HubError):
    """The Hub cannot be reached, or HF_HUB_OFFLINE forbids it."""


class GatedError(HubError):
    """The user must first accept the repository's licence, or log in to an account with access."""


def disk_full(name: str, missing: int, where: Path) -> HubError:
    return HubError(
        f"{name} does not fit on the disk of {where}: {format_bytes(missing)} more are needed; "
        "free some space, remove a model, or set HF_HOME to a folder on a larger disk."
    )


class ConversionError(EngineError):
    """A checkpoint cannot be converted to a draft."""
