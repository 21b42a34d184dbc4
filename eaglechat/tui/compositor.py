"""Draws what a layout moved, also where it was looked at before it was drawn."""

from __future__ import annotations

from textual._compositor import Compositor, CompositorMap


class WholeCompositor(Compositor):
    # Textual's takes a map that is made between two layouts, by whoever asks for a size after
    # scrolling, as drawn: what moved meanwhile stayed where it was on the screen.

    @property
    def full_map(self) -> CompositorMap:
        drawn = self._full_map if self._visible_map is None else self._visible_map
        was_due = self._full_map_invalidated
        now = super().full_map
        if was_due:
            moved = (
                place.clip.intersection(place.region) for _, place in now.items() ^ drawn.items()
            )
            self._dirty_regions.update(filter(None, moved))
        return now
