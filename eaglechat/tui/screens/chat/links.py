"""Addresses in replies: which are opened, and how one is shown before it is."""

from __future__ import annotations

from urllib.parse import urlsplit

from eaglechat.wire.neutral import neutralise

_OPENED = ("http", "https", "mailto")


def cannot_open(address: str) -> str | None:
    """Why an address is not opened; None where it may be."""
    try:
        scheme = urlsplit(address).scheme.lower()
    except ValueError:
        scheme = ""
    if scheme in _OPENED:
        return None
    return f"Only web and mail addresses are opened, not {neutralise(address)}"


def shown_address(address: str) -> str:
    """An address in full, and its host in the letters that host names are made of where it looks
    like another."""
    host = urlsplit(address).hostname or ""
    try:
        plain = host.encode("idna").decode("ascii")
    except UnicodeError:
        plain = ascii(host)
    is_plain = plain.casefold() == host.casefold()
    return neutralise(address) if is_plain else f"{neutralise(address)}\n\nIts host is {plain}."
