"""n_draft_max = "auto" in the protocol, in a running reply and on the command line of the bench."""

from __future__ import annotations

import argparse

import pytest

from eaglechat.cli import options
from eaglechat.engine.generation.live import Live
from eaglechat.wire.lines import ProtocolError, decode_request, encode
from eaglechat.wire.protocol import AUTO, Chat, Set, Speculation


def test_auto_crosses_the_protocol() -> None:
    chat = Chat(id=1, messages=(), speculation=Speculation(n_draft_max=AUTO))
    assert decode_request(encode(chat)) == chat
    with pytest.raises(ProtocolError):
        decode_request(encode(chat).replace(b'"auto"', b'"always"'))


def test_a_running_reply_can_go_over_to_auto_and_back() -> None:
    live = Live(Speculation(n_draft_max=3, p_min=0.1), 0.0)
    live.apply(Set(n_draft_max=AUTO))
    assert live.speculation == Speculation(n_draft_max=AUTO, p_min=0.1)
    live.apply(Set(n_draft_max=0))
    assert live.speculation.n_draft_max == 0


def test_the_command_line_takes_auto_or_a_length() -> None:
    assert options.draft_length("auto") == AUTO
    assert options.draft_length("16") == 16
    with pytest.raises(argparse.ArgumentTypeError, match="between 0 and 16"):
        options.draft_length("17")
