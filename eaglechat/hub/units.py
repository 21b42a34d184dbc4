"""Formats bytes and seconds for people."""

from __future__ import annotations


def format_bytes(count: float) -> str:
    """1,500,000 is `1.5 MB`: decimal units, as on the Hub and on disks."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


def format_seconds(seconds: float) -> str:
    """75 is `1:15`, 3700 is `1:01:40`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
