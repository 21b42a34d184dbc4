"""What all parts of the chat screen know: the session that it shows, and its widgets."""

from __future__ import annotations

from abc import abstractmethod

from eaglechat.chat.conversation.session import ChatSession
from eaglechat.tui.screens.base import PromptScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.transcript.transcript import Transcript


class ChatBase(PromptScreen[None]):
    """A chat, without what can be done in it."""

    services: Services
    session: ChatSession
    """From the moment the screen is mounted."""

    @property
    def transcript(self) -> Transcript:
        return self.query_one("#transcript", Transcript)

    @abstractmethod
    def save(self) -> None:
        """Put on disk what is new."""

    @abstractmethod
    def draw(self) -> None:
        """Draw what changed since the last frame."""
