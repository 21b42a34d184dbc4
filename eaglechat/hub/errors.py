"""What can go wrong with the Hub; the text of each is one sentence."""

from __future__ import annotations

from pathlib import Path

from eaglechat.hub.units import format_bytes


class HubError(Exception):
    """Something about the Hub failed; the text is one sentence a user can act on.

    `transient` says that trying again may help, after `retry_after` seconds if the Hub said so.
    """

    def __init__(self, text: str, *, transient: bool = False, retry_after: float | None = None):
        super().__init__(text)
        self.transient = transient
        self.retry_after = retry_after


class OfflineError(HubError):
    """There is no way to the Hub, by choice or by accident."""


class GatedError(HubError):
    """The repository wants its licence accepted, or an account that may see it."""


class NotFoundError(HubError):
    """No such repository, revision or file."""


class CorruptError(HubError):
    """What arrived is not what the Hub says it is."""


class DiskFullError(HubError):
    """The file does not fit on the disk."""


def disk_full(name: str, missing: int, where: Path) -> DiskFullError:
    return DiskFullError(
        f"{name} does not fit on the disk of {where}: {format_bytes(missing)} more are needed; "
        "free some space, remove a model, or set HF_HOME to a folder on a larger disk."
    )
