"""What is said of a request in progress."""

from __future__ import annotations

from eaglechat.chat.conversation.running import Running
from eaglechat.chat.conversation.turns import Reply
from eaglechat.chat.recording import Recording
from eaglechat.tui.texts.replies import progress
from eaglechat.wire.records import Prefill
from tests.chat.records import TERMS


def test_how_far_a_prompt_is_read_is_not_said_where_nobody_knows() -> None:
    running = Running(Reply(2, 1, Recording(TERMS)), 1)
    assert progress(running) == "reading the prompt"
    running.prefill = Prefill(5, 10, 0)
    assert progress(running) == "reading the prompt 50%"
