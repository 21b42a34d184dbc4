"""Ids, listeners and lifecycle, with an engine that may say anything at any time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eaglechat.links.base import ENGINE_DIED, Lifecycle, Link
from eaglechat.wire import protocol as p
from eaglechat.wire.errors import EngineError
from eaglechat.wire.worker import Died

HELLO = p.Hello(protocol=p.PROTOCOL_VERSION, eaglechat="0", llama_cpp="b1", devices=())
KINDS: tuple[type, ...] = (p.Load, p.Chat, p.Render, p.Unload)


def request(kind: type) -> p.Load | p.Chat | p.Render | p.Unload:
    if kind is p.Load:
        return p.Load(target="t.gguf")
    if kind is p.Chat:
        return p.Chat(messages=())
    return p.Render(messages=()) if kind is p.Render else p.Unload()


class Puppet(Link):
    """An engine that says what the test makes it say."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[p.AnyRequest] = []
        self.say: Callable[[p.AnyEvent | Died], None] = lambda _: None
        self.ended: list[float] = []
        self.trouble: EngineError | None = None

    def open_engine(self, say: Callable[[p.AnyEvent | Died], None]) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.say = say

    def hand_over(self, message: p.AnyRequest) -> None:
        self.sent.append(message)

    def end_engine(self, patience_s: float) -> None:
        self.ended.append(patience_s)


@pytest.fixture
def link() -> Puppet:
    link = Puppet()
    link.start()
    return link


def test_an_error_without_an_id_fails_whatever_is_pending_and_stops_it(link: Puppet) -> None:
    heard: list[p.Answer] = []
    ids = [link.request(request(kind), heard.append) for kind in (p.Chat, p.Render)]
    link.say(p.Error(id=None, code="protocol", message="not understood"))
    link.say(p.Error(id=ids[0], code="decode", message="nobody waits for this"))
    link.pump()

    assert heard == [p.Error(id=id, code="protocol", message="not understood") for id in ids]
    assert link.sent[2:] == [p.Cancel()]


def test_a_request_that_was_not_understood_is_stopped(link: Puppet) -> None:
    heard: list[p.Answer] = []
    id = link.request(request(p.Chat), heard.append)
    link.say(p.Error(id=id, code="protocol", message="what it answered is not understood"))
    link.pump()

    assert (len(heard), link.sent[1:]) == (1, [p.Cancel(id=id)])


def test_what_fails_in_a_listener_costs_no_other_its_event(link: Puppet) -> None:
    heard: list[p.Answer] = []

    def fail(_event: p.Answer) -> None:
        raise RuntimeError("the listener's own fault")

    first = link.request(request(p.Chat), fail)
    second = link.request(request(p.Unload), heard.append)
    link.say(p.Error(id=first, code="decode", message="x"))
    link.say(p.Unloaded(id=second))
    with pytest.raises(RuntimeError, match="own fault"):
        link.pump()
    link.pump()

    assert heard == [p.Unloaded(id=second)]


def test_an_engine_that_cannot_start_is_no_news_and_may_be_tried_again() -> None:
    link, told = Puppet(), list[Lifecycle]()
    link.watch(told.append)
    link.trouble = EngineError("no such file")
    with pytest.raises(EngineError):
        link.start()
    link.pump()
    assert told == []

    link.trouble = None
    link.start()
    link.say(HELLO)
    link.pump()
    assert told == [HELLO]


def test_an_engine_of_another_version_is_ended_and_may_be_started_again(link: Puppet) -> None:
    told, heard = list[Lifecycle](), list[p.Answer]()
    link.watch(told.append)
    id = link.request(request(p.Chat), heard.append)
    link.say(msgspec.structs.replace(HELLO, protocol=99))
    link.say(p.Error(id=id, code="decode", message="what it says then"))
    link.pump()
    link.pump()

    (died,) = told
    assert isinstance(died, Died)
    assert died.why.startswith("the engine speaks version 99 of the protocol")
    assert heard == [p.Error(id=id, code=ENGINE_DIED, message=died.why)]
    assert (link.ended, link.hello) == ([0.0], None)

    link.start()
    link.say(HELLO)
    link.pump()
    assert told[1:] == [HELLO]


class Routing(RuleBasedStateMachine):
    """Whatever the engine says, and whenever it dies or is closed: each request gets its events in
    their order, one that ends it at the most, and exactly one once the engine is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.link = Puppet()
        self.told: list[Lifecycle] = []
        self.link.watch(self.told.append)
        self.asked: dict[int, list[p.Answer]] = {}
        self.said: dict[int, list[p.Answer]] = {}
        self.is_open = False
        self.n_events = 0

    @rule()
    def start(self) -> None:
        self.link.start()
        self.is_open = True

    @rule(kind=st.sampled_from(KINDS))
    def ask(self, kind: type) -> None:
        heard: list[p.Answer] = []
        id = self.link.request(request(kind), heard.append)
        assert id not in self.asked
        # Nobody is told before the client looks.
        assert heard == []
        self.asked[id] = heard
        self.said[id] = []

    @precondition(lambda self: self.is_open and self.asked)
    @rule(data=st.data(), is_last=st.booleans())
    def answer(self, data: st.DataObject, is_last: bool) -> None:
        """To what is over too, or was asked of an engine before this one."""
        id = data.draw(st.sampled_from(list(self.asked)))
        self.n_events += 1
        code = f"event {self.n_events}"
        event: p.Answer = p.Progress(id=id, step=p.Loading(code, 0.0))
        if is_last:
            event = p.Error(id=id, code=code, message="")
        self.link.say(event)
        self.said[id].append(event)

    @precondition(lambda self: self.is_open)
    @rule()
    def hello(self) -> None:
        self.link.say(HELLO)

    @precondition(lambda self: self.is_open)
    @rule()
    def die(self) -> None:
        self.link.say(Died(-6, ("the end",)))
        self.link.pump()
        self.is_open = False
        self._all_are_over()
        assert isinstance(self.told[-1], Died)

    @rule()
    def close(self) -> None:
        self.link.close()
        self.is_open = False
        self.link.pump()
        self._all_are_over()
        assert self.link.hello is None

    @precondition(lambda self: self.is_open)
    @rule()
    def not_understood(self) -> None:
        self.link.say(p.Error(id=None, code="protocol", message=""))
        self.link.pump()
        self._all_are_over()

    @rule()
    def pump(self) -> None:
        self.link.pump()
        if not self.is_open:
            self._all_are_over()

    def _all_are_over(self) -> None:
        for heard in self.asked.values():
            assert not isinstance(heard[-1], p.Progress)

    @invariant()
    def each_is_answered_in_order_and_ended_once(self) -> None:
        for id, heard in self.asked.items():
            assert all(event.id == id for event in heard)
            assert all(isinstance(event, p.Progress) for event in heard[:-1])
            own = [event for event in heard if getattr(event, "code", "") not in OWN_CODES]
            assert own == self.said[id][: len(own)]


OWN_CODES = (ENGINE_DIED, "protocol")
Routing.TestCase.settings = settings(max_examples=50, stateful_step_count=30)
TestRouting = Routing.TestCase
