"""What the tests of links ask of engines of every kind."""

from __future__ import annotations

import sys

import pytest

from eaglechat.wire import protocol as p
from tests.engine_client import Client, load

ENGINE = [sys.executable, "-m", "eaglechat", "engine"]
OUR_OWN = ["process", "local", "scripted"]
of_our_own = pytest.mark.parametrize("client", OUR_OWN, indirect=True)
"""For what somebody else's server does not do."""

USER = p.Message(role="user", content="the cat sat on the mat")


def endless(client: Client) -> p.Chat:
    """A reply that is still being written when a test has seen a round of it, however busy the
    machine is: the pair is loaded again, with a context of 65,536 tokens. The context of somebody
    else's server is its own."""
    if client.kind != "http":
        client.answer(load(client.files, n_ctx=1 << 16))
    return chat(max_tokens=None)


def chat(**changes: object) -> p.Chat:
    """A greedy reply of 40 tokens."""
    fields: dict[str, object] = {
        "messages": (USER,),
        "sampling": p.Sampling(temperature=0.0),
        "speculation": p.Speculation(n_draft_max=3),
        "max_tokens": 40,
    }
    return p.Chat(**{**fields, **changes})  # type: ignore[arg-type]
