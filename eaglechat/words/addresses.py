"""Addresses that a reply names: which may be opened, and how one is shown before that."""

from __future__ import annotations

from urllib.parse import urlsplit

from eaglechat.wire.neutral import neutralise


def cannot_open(address: str) -> str | None:
    """Why an address in a reply may not be opened; None if it may."""
    try:
        scheme = urlsplit(address).scheme.lower()
    except ValueError:
        scheme = ""
    if scheme in ("http", "https", "mailto"):
        return None
    return f"Only web and mail addresses are opened, not {neutralise(address)}"


def shown_address(address: str) -> str:
    """An address in full. If its host is not plain ASCII, its ASCII form (IDNA) is added, for such
    a host can look like another one."""
    host = urlsplit(address).hostname or ""
    try:
        plain = host.encode("idna").decode("ascii")
    except UnicodeError:
        plain = ascii(host)
    is_plain = plain.casefold() == host.casefold()
    return neutralise(address) if is_plain else f"{neutralise(address)}\n\nIts host is {plain}."
