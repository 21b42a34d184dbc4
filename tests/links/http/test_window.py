"""Which turns are sent to a server: the oldest stay away where its context has no room for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from eaglechat.links.http.window import ServerWindow
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import Message
from tests.engine_client import Client
from tests.links.engines import chat
from tests.links.http.fault_server import FaultServer, Handler, why

N_CTX = 2048


def talk(sizes: Sequence[int]) -> list[Message]:
    """A system prompt, and turns of so many words each; the last is a question."""
    messages = [Message(role="system", content="Be brief.")]
    for number, size in enumerate(sizes):
        question = Message(role="user", content=f"{number} " + "w " * size)
        messages += [question, Message(role="assistant", content="yes")]
    return messages[:-1]


async def words(messages: Sequence[Message]) -> int:
    return sum(len(one.content.split()) for one in messages)


def fitted(messages: Sequence[Message], left: tuple[Message, ...] = ()) -> ServerWindow:
    window = ServerWindow(messages)
    asyncio.run(window.fit(words, N_CTX, None, left))
    return window


@given(st.lists(st.integers(0, 900), min_size=1, max_size=12))
def test_what_is_sent_has_room_for_a_reply_unless_one_turn_alone_has_none(
    sizes: list[int],
) -> None:
    messages = talk(sizes)
    window = fitted(messages)
    sent, n = asyncio.run(words(window.sent)), window.first_turn

    assert sent + N_CTX // 8 <= N_CTX or n == len(sizes) - 1
    assert list(window.sent) == messages[:1] + messages[1 + 2 * n :]
    assert asyncio.run(words(messages)) - sent == (window.tokens_left or 0)
    if n > 1 and n < len(sizes) - 1:
        # No more left than half of the context asks for.
        before = asyncio.run(words([messages[0], *messages[1 + 2 * (n - 1) :]]))
        assert before > N_CTX // 2


def test_turns_that_stayed_away_do_not_come_back() -> None:
    sizes = [400] * 6
    first = fitted(talk(sizes))
    again = fitted(talk([*sizes, 10]), first.left)
    assert again.first_turn == first.first_turn > 0
    # Another conversation has turns of its own.
    other = [Message(role="user", content="another"), *talk(sizes)[2:]]
    assert not ServerWindow(other).begin_behind(first.left)


def test_a_server_that_does_not_count_is_asked_again_with_less(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    most = 4

    def write(handler: Handler) -> None:
        if len(server.chats()[-1].body["messages"]) > most:
            said = "This model's maximum context length is 2048 tokens. However, you requested 3000"
            handler.json({"error": {"message": said, "code": 400}}, 400)
        else:
            handler.reply("yes")

    server.chat = write
    client = connect()
    messages = tuple(talk([9] * 6))
    reply = client.answer(chat(messages=messages))
    assert [event.window.first_turn for event in reply.of(p.WindowMoved)] == [4]
    assert reply.of(p.WindowMoved)[0].window.tokens_left is None
    assert isinstance(reply.last, p.Done)
    n_asked = len(server.chats())
    # The next reply begins where this one did.
    more = (*messages, Message(role="assistant", content="yes"))
    client.answer(chat(messages=(*more, Message(role="user", content="and?"))))
    assert len(server.chats()[n_asked].body["messages"]) == 6
    most = 0
    lone = client.answer(chat(messages=tuple(talk([9]))))
    assert "shorten it, or start the server with more context" in why(lone)


def test_turns_that_a_refusal_took_away_come_back(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    said = {"message": "This model's maximum context length is 2048 tokens", "code": 400}
    answer, server.chat = server.chat, lambda handler: handler.json({"error": said}, 400)
    client, messages = connect(), tuple(talk([9] * 3))
    assert "longer than its context" in why(client.answer(chat(messages=messages)))
    server.chat = answer
    reply = client.answer(chat(messages=messages))
    assert not reply.of(p.WindowMoved)
    assert len(server.chats()[-1].body["messages"]) == len(messages)


def test_a_reply_that_is_too_long_is_not_taken_for_a_prompt(
    connect: Callable[..., Client], server: FaultServer
) -> None:
    said = (
        "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
    )
    error = {"message": f"{said}length is 4096 tokens (5000 > 4096 - 20).", "code": 400}
    server.chat = lambda handler: handler.json({"error": error}, 400)
    refused = connect().answer(chat(messages=tuple(talk([9])), max_tokens=5000))
    assert "refuses to write as much as max_tokens (HTTP 400)" in why(refused)
