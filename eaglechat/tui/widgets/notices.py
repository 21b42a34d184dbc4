"""The app's notices, in rows of their own."""

from __future__ import annotations

from itertools import takewhile

from textual.notifications import Notifications
from textual.widgets._toast import ToastRack


class Notices(ToastRack):
    """Textual's own rack of toasts lies over what the screen shows; this one makes room for itself.
    No text stands there twice, and a dialog does not repeat those of the screens behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = Notifications()

    def show(self, notifications: Notifications) -> None:
        if not self.is_attached:
            return  # Its screen has closed meanwhile.
        self.shown = Notifications()
        behind = self._shown_behind() if self.screen.is_modal else []
        # The same text stands once, as the newest.
        newest = {(one.message, one.severity): one for one in notifications}
        for notification in newest.values():
            if not any(notification in shown for shown in behind):
                self.shown.add(notification)
        super().show(self.shown)

    def _shown_behind(self) -> list[Notifications]:
        behind = takewhile(lambda screen: screen is not self.screen, self.app.screen_stack)
        return [rack.shown for screen in behind for rack in screen.query(Notices)]
