"""The styles of all screens, each source parsed once."""

from __future__ import annotations

from textual.css.stylesheet import Stylesheet

_MOST_SOURCES = 256


class KeptStylesheet(Stylesheet):
    """Parses only what is new when a screen is opened for the first time; Textual parses every
    source again."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._parse_cache.grow(_MOST_SOURCES)

    def reparse(self) -> None:
        # What was parsed with other variables is forgotten where they are set.
        self.parse()
