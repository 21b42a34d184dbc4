"""Which turns are sent to a server: the oldest stay away where its context has no room for them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eaglechat.links.http.window import ServerWindow
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import Message
from eaglechat.wire.records import FinishReason, ReplyEnd, ReplyTimings
from tests.links.engines import chat
from tests.links.http.fault_server import Ask, Connect, FaultServer, Handler, says, why

N_CTX = 2048


def talk(sizes: Sequence[int]) -> list[Message]:
    """A system prompt, and turns of so many words each; the last is a question."""
    messages = [Message(role="system", content="Be brief.")]
    for number, size in enumerate(sizes):
        question = Message(role="user", content=f"{number} " + "w " * size)
        messages += [question, Message(role="assistant", content="yes")]
    return messages[:-1]


def tokens(messages: Sequence[Message]) -> int:
    """As a server counts them that makes a token of four bytes."""
    return sum(len(one.content.encode()) for one in messages) // 4


def asked(messages: Sequence[Message], before: ServerWindow, reply_tokens: int = 1) -> ServerWindow:
    """What is sent and answered after this; by “yes”, if that is all."""
    window = ServerWindow(messages)
    window.follow(before, N_CTX, None)
    timings = ReplyTimings(0.0, tokens(window.sent), 0, 0.0)
    window.answered(ReplyEnd(FinishReason.STOP, 1, reply_tokens, tail="", timings=timings))
    return window


@given(st.lists(st.integers(0, 3000), min_size=2, max_size=12))
def test_what_is_sent_has_room_for_a_reply_unless_one_turn_alone_has_none(
    sizes: list[int],
) -> None:
    before, first_turn = ServerWindow(), 0
    for last in range(len(sizes)):
        messages = talk(sizes[: last + 1])
        window = asked(messages, before)
        n = window.first_turn
        assert list(window.sent) == messages[:1] + messages[1 + 2 * n :]
        assert window.left_out == tuple(messages[1 : 1 + 2 * n])
        assert n >= first_turn
        if last:
            assert tokens(window.sent) + N_CTX // 8 <= N_CTX or n == last
            # Turns leave only where the question may not fit behind the counted ones.
            counted = before.prompt_tokens + 1 + (sizes[last] * 2 + 9) / 3
            assert n == first_turn or counted + N_CTX // 8 > N_CTX
        else:
            assert n == 0
        before, first_turn = window, n


def test_another_conversation_has_turns_of_its_own() -> None:
    before = ServerWindow()
    for last in range(6):
        before = asked(talk([1200] * (last + 1)), before)
    assert before.first_turn > 0
    other = [Message(role="user", content="another"), *talk([1200] * 6)[2:]]
    assert asked(other, before).first_turn == 0


def test_an_answer_that_is_asked_for_again_needs_no_room_for_the_old_one() -> None:
    messages = talk([1500, 1500])
    before = asked(messages, ServerWindow(), reply_tokens=N_CTX // 4)
    assert before.prompt_tokens > N_CTX * 2 // 3
    assert asked(messages, before).first_turn == 0


def test_a_server_that_does_not_count_is_asked_again_with_less(
    connect: Connect, server: FaultServer
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
    assert [window.first_turn for window in reply.of(p.Window)] == [4]
    assert reply.of(p.Window)[0].tokens_left is None
    assert isinstance(reply.last, p.Done)
    n_asked = len(server.chats())
    # The next reply begins where this one did.
    more = (*messages, Message(role="assistant", content="yes"))
    client.answer(chat(messages=(*more, Message(role="user", content="and?"))))
    assert len(server.chats()[n_asked].body["messages"]) == 6
    most = 0
    lone = client.answer(chat(messages=tuple(talk([9]))))
    assert "shorten it, or start the server with more context" in why(lone)


def test_turns_that_a_refusal_took_away_come_back(connect: Connect, server: FaultServer) -> None:
    said = {"message": "This model's maximum context length is 2048 tokens", "code": 400}
    answer, server.chat = server.chat, says({"error": said}, 400)
    client, messages = connect(), tuple(talk([9] * 3))
    assert "longer than its context" in why(client.answer(chat(messages=messages)))
    server.chat = answer
    reply = client.answer(chat(messages=messages))
    assert not reply.of(p.Window)
    assert len(server.chats()[-1].body["messages"]) == len(messages)


def test_a_reply_that_is_too_long_is_not_taken_for_a_prompt(answered: Ask) -> None:
    said = (
        "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
    )
    error = {"message": f"{said}length is 4096 tokens (5000 > 4096 - 20).", "code": 400}
    refused = answered(
        says({"error": error}, 400),
        messages=tuple(talk([9])),
        max_tokens=5000,
    )
    assert "refuses to write as much as max_tokens (HTTP 400)" in why(refused)
