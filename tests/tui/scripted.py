"""An engine that follows a script: deterministic tokens, acceptances and timings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from eaglechat.engine.auto.planner import PlainChecks
from eaglechat.engine.reply import ReplyText
from eaglechat.engine.templates.dialect import ANSWER_ONLY
from eaglechat.links.base import Link
from eaglechat.wire import protocol
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import OWN_ENGINE, AnsweredRequest, Memory
from eaglechat.wire.records import (
    AutoDraft,
    AutoReason,
    DraftShape,
    DraftToken,
    FinishReason,
    Origin,
    Prefill,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
    Window,
)
from eaglechat.wire.stats import SpeculationStats
from eaglechat.wire.worker import Died
from tests.tui.scripted_reports import WRONG_GUESS, WRONG_ID, as_reported, likely, pair_info

REPLY = (
    "The Pythagorean theorem says that in a right triangle the square of the longest side equals "
    "the sum of the squares of the other two. Draw a square on each side: the two small ones "
    "together cover exactly as much as the big one. For sides of 3 and 4 the longest is 5, "
    "because 9 and 16 make 25."
)
ROUNDS_PER_FRAME = 4
"""While no `budget` says otherwise; drawing the frames takes most of the time of a test."""
"""The same for a bench."""
ACCEPTED_OF_EACH_ROUND = (3, 1, 2, 0, 3, 2)
AUTO_CHOICES = (
    (0, AutoReason.PLAIN_CHECK),
    (3, AutoReason.BEST),
    (3, AutoReason.BEST),
    (5, AutoReason.EXPLORING),
    (3, AutoReason.BEST),
    (2, AutoReason.LEDGER),
    (0, AutoReason.PLAIN_CHECK),
)
AUTO_SPEEDS = tuple(83.3 + 11.0 * n - 1.45 * n * n + 0.04 * n**3 for n in range(17))
SEED = 1234
MACHINE = Memory(ram=32_000_000_000, ram_available=20_000_000_000, gpu=8_000_000_000)
TOKENS_PER_MESSAGE = 20

Kind = TypeVar("Kind", bound=protocol.Request)
Steps = Iterator[list[protocol.AnyEvent]]


@dataclass
class _Job:
    """A request that is not answered to the end."""

    request: AnsweredRequest
    is_cancelled: bool = False
    answers_now: bool = False
    steps: Steps | None = None


class ScriptedEngine(Link):
    """A Link without a process. It does one job after the other, one step with every pump.

    `budget` is how many rounds may still be written; None sets no limit.

    What it says of itself (`engine_name`, `can`, `protocol`) is told when it starts, which the menu
    does by itself: set it before the app runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[protocol.AnyRequest] = []
        self.budget: int | None = None
        self.reply = REPLY
        self.plain_ms_per_token = 12.0
        self.switching_ms = 0.0  # more for the first round of a reply
        self.plays_checks = False
        self.plain_fork_at: int | None = None
        self.hold_load = False
        self.load_error: tuple[str, str] | None = None
        self.chat_error: tuple[str, str] | None = None
        self.start_error: str | None = None
        self.speculation_off: str | None = None
        self.untemplated: str | None = None
        self.turns_in_context: int | None = None
        self.protocol = protocol.PROTOCOL_VERSION
        self.engine_name = "eaglechat"
        self.can = OWN_ENGINE
        self.wrong_guesses = (WRONG_GUESS,)
        self.accepted_of_each_round = ACCEPTED_OF_EACH_ROUND
        self.dialect = ANSWER_ONLY
        self.reasoning = protocol.NO_REASONING
        self.sampling = {}
        self.auto_shape: DraftShape = "chain"
        self.chains_only: str | None = None
        self.starts = 0
        self.closed = False
        self._is_alive = False
        self._say: Callable[[protocol.AnyEvent | Died], None] = lambda _event: None
        self._jobs: list[_Job] = []
        self._pair: protocol.PairInfo | None = None
        self._n_past = 0

    # What makes it a link

    def open_engine(self, say: Callable[[protocol.AnyEvent | Died], None]) -> None:
        if self.start_error is not None:
            raise EngineError(self.start_error)
        self.starts += 1
        self._is_alive, self._say = True, say
        say(
            protocol.Hello(
                protocol=self.protocol,
                engine=self.engine_name,
                can=self.can,
                eaglechat="0",
                llama_cpp="scripted",
                devices=(),
                memory=MACHINE,
            )
        )

    def hand_over(self, message: protocol.AnyRequest) -> None:
        if not self._is_alive:
            return
        self.sent.append(message)
        if isinstance(message, protocol.Cancel):
            for job in self._jobs:
                job.is_cancelled |= message.id in (None, job.request.id)
        elif isinstance(message, protocol.Set):
            for job in self._jobs:
                if isinstance(job.request, protocol.Chat):
                    job.request = _changed(job.request, message)
                    job.answers_now |= message.answer_now
        elif not isinstance(message, protocol.Shutdown):
            self._jobs.append(_Job(message))
        self.wake()

    def end_engine(self, patience_s: float) -> None:
        self._forget()

    def close(self, patience_s: float = 1.0) -> None:
        self.closed = True
        super().close(patience_s)

    def pump(self, wait_s: float = 0.0) -> None:
        self.work()
        super().pump(wait_s)
        if self._jobs:
            self.wake()

    # The test's levers

    def die(self, *log: str, exit_status: int = -6) -> None:
        """End as a failed assertion inside llama.cpp would."""
        self._forget()
        self._say(Died(exit_status, log))

    def tell(self, event: protocol.AnyEvent) -> None:
        """Say something that is in no script."""
        self._say(event)

    def requests(self, kind: type[Kind]) -> list[Kind]:
        return [request for request in self.sent if isinstance(request, kind)]

    @property
    def is_rendering(self) -> bool:
        """Whether a prompt is yet to be shown that a command has asked for."""
        return bool(self._jobs) and isinstance(self._jobs[0].request, protocol.Render)

    # What happens between two frames

    def work(self) -> None:
        """A step of the oldest job."""
        if not self._jobs:
            return
        job = self._jobs[0]
        job.steps = job.steps or self._do(job)
        events = next(job.steps, None)
        if events is None:
            self._jobs.remove(job)
            self.work()
            return
        for event in events:
            self._say(event)

    def _forget(self) -> None:
        self._is_alive = False
        self._jobs.clear()
        self._pair, self._n_past = None, 0

    def _do(self, job: _Job) -> Steps:
        """The events of a job, step by step."""
        request = job.request
        if isinstance(request, protocol.Load):
            yield from self._load(request, job)
        elif isinstance(request, protocol.Unload):
            self._pair, self._n_past = None, 0
            yield [protocol.Unloaded(id=request.id)]
        elif self._pair is None:
            yield [_error(request.id, "no_pair", "no pair is loaded; load one first")]
        elif isinstance(request, protocol.Chat):
            yield from self._chat(request, job)
        elif isinstance(request, protocol.Render):
            yield [self._rendered(request)]

    def _load(self, load: protocol.Load, job: _Job) -> Steps:
        if self.load_error is not None and self.load_error[0] == "preflight":
            yield [_error(load.id, *self.load_error)]
            return
        if not job.is_cancelled:
            self._pair, self._n_past = None, 0
            # Textual rounds it to the half cells of a bar that may not have its width yet: a half
            # looks alike at any.
            yield [protocol.Progress(id=load.id, step=protocol.Loading("target", 0.5))]
        while self.hold_load and not job.is_cancelled:
            yield []
        if job.is_cancelled:
            yield [_error(load.id, "cancelled", "the load was cancelled")]
        elif self.load_error is not None:
            yield [_error(load.id, *self.load_error)]
        else:
            info = pair_info(load.target, load.draft, self.speculation_off)
            self._pair = msgspec.structs.replace(
                info,
                reasoning=self.reasoning,
                sampling=self.sampling,
                chains_only=self.chains_only,
                untemplated=self.untemplated,
            )
            yield [
                protocol.Progress(id=load.id, step=protocol.Loading("context", 0.9)),
                protocol.Loaded(id=load.id, pair=self._pair),
            ]

    def _chat(self, chat: protocol.Chat, job: _Job) -> Steps:
        if self.chat_error is not None:
            yield [_error(chat.id, *self.chat_error)]
            return
        turns = sum(message.role == "user" for message in chat.messages)
        if self.turns_in_context is not None and turns > self.turns_in_context:
            first = turns - self.turns_in_context
            window = Window(first, 2 * TOKENS_PER_MESSAGE * first, kv_kept=True)
            yield [protocol.Progress(id=chat.id, step=window)]
        total = TOKENS_PER_MESSAGE * len(chat.messages)
        reused = min(self._n_past, total - 1)
        for prefill in (Prefill(reused, total, reused), Prefill(total, total, reused)):
            yield [protocol.Progress(id=chat.id, step=prefill)]
        reply = ScriptedReply(chat, self, n_past=total, prefilled=total - reused, reused=reused)
        while not job.is_cancelled and reply.end is None:
            assert isinstance(job.request, protocol.Chat)
            if job.answers_now:
                job.answers_now = False
                reply.end_reasoning()
            events: list[protocol.AnyEvent] = []
            for _ in range(1 if self.budget is not None else ROUNDS_PER_FRAME):
                if reply.end is None and self._may_write():
                    events += reply.next_events(job.request.speculation)
            yield events
            self._n_past = reply.n_past
        if reply.end is None:
            yield [reply.done(FinishReason.CANCELLED)]

    def _rendered(self, render: protocol.Render) -> protocol.AnyEvent:
        if self.chat_error is not None:
            return _error(render.id, *self.chat_error)
        runs = []
        for message in render.messages:
            runs.append(protocol.PromptRun(f"<|{message.role}|>", is_control=True))
            runs.append(protocol.PromptRun(f"\n{message.content}\n"))
        runs.append(protocol.PromptRun("<|assistant|>", is_control=True))
        turns = sum(message.role == "user" for message in render.messages)
        first_turn = max(0, turns - (self.turns_in_context or turns))
        tokens = TOKENS_PER_MESSAGE * len(render.messages)
        return protocol.Rendered(
            id=render.id, runs=tuple(runs), tokens=tokens, first_turn=first_turn
        )

    def _may_write(self) -> bool:
        if self.budget is not None:
            self.budget -= 1
            if self.budget < 0:
                self.budget = 0
                return False
        return True


def _error(request_id: int, code: str, message: str) -> protocol.Error:
    return protocol.Error(id=request_id, code=code, message=message)


def _changed(chat: protocol.Chat, change: protocol.Set) -> protocol.Chat:
    fields = {
        name: getattr(change, name)
        for name in ("enabled", "n_draft_max", "n_min", "p_min", "shape", "ngram")
        if getattr(change, name) is not None
    }
    speculation = msgspec.structs.replace(chat.speculation, **fields)
    return msgspec.structs.replace(chat, speculation=speculation)


class ScriptedReply:
    def __init__(
        self,
        chat: protocol.Chat,
        engine: ScriptedEngine,
        *,
        n_past: int,
        prefilled: int,
        reused: int,
    ) -> None:
        self.chat = chat
        self.engine = engine
        self.n_past = n_past
        self.end: ReplyEnd | None = None
        self._checks = PlainChecks()
        words = engine.reply.split(" ")
        texts = [words[0], *(f" {word}" for word in words[1:])]
        fork = engine.plain_fork_at
        if fork is not None and not chat.speculation.enabled:
            texts[fork:] = [" otherwise", " it", " ends."]
        self._position, self._index = len(chat.begun), 0
        end = None if chat.max_tokens is None else self._position + chat.max_tokens
        self._texts = texts[:end]
        self._cut = len(self._texts) < len(texts)
        self._counted = SpeculationStats()
        self._times = [0.0, 0.0, 0.0]
        self._prefilled, self._reused = prefilled, reused
        self._text = ReplyText(engine.dialect.begin(""))
        for text in texts[: self._position]:
            self._text.push(text.encode())

    def end_reasoning(self) -> None:
        """Go on behind the marker that ends it."""
        closes = self.engine.dialect.closes
        end = next(i for i, text in enumerate(self._texts) if closes in text)
        self._text.give(closes.encode())
        del self._texts[self._position : end + 1]

    def next_events(self, speculation: protocol.Speculation) -> list[protocol.AnyEvent]:
        events: list[protocol.AnyEvent] = []
        if self._position < len(self._texts):
            events.append(protocol.Progress(id=self.chat.id, step=self._round(speculation)))
        if self._position >= len(self._texts):
            events.append(self.done(FinishReason.LENGTH if self._cut else FinishReason.STOP))
        return events

    def done(self, reason: FinishReason) -> protocol.Done:
        total, draft, verify = self._times
        timings = ReplyTimings(
            prefill_ms=45.0,
            prefill_tokens=self._prefilled,
            reused_tokens=self._reused,
            generation_ms=total,
            draft_ms=draft,
            verify_ms=verify,
            process_ms=0.0,
            sample_ms=0.0,
        )
        seed = SEED if self.chat.sampling.seed is None else self.chat.sampling.seed
        held = self._text.flush()
        tail, part = "".join(text for _, text in held), held[-1][0] if held else None
        tokens = self._position - len(self.chat.begun)
        self.end = ReplyEnd(reason, seed, tokens, tail, timings, part)
        return protocol.Done(id=self.chat.id, end=self.end, stats=self._counted)

    def _round(self, speculation: protocol.Speculation) -> Round:
        n = speculation.n_draft_max if speculation.enabled else 0
        auto = None
        is_check = self.engine.plays_checks and self._checks.is_due(
            None if n == protocol.AUTO else n
        )
        if n == protocol.AUTO:
            auto = self._auto()
            n = auto.n
        left = self._texts[self._position :]
        n_drafted = 0 if is_check else min(n, len(left) - 1)
        accepted = self.engine.accepted_of_each_round
        wanted = accepted[self._index % len(accepted)]
        n_accepted = min(wanted, n_drafted)
        n_tested = min(n_accepted + 1, n_drafted)
        ids = [self._id(text, self._position + i) for i, text in enumerate(left[: n_drafted + 1])]
        guesses = self.engine.wrong_guesses
        wrong = guesses[self._index % len(guesses)]
        drafted = tuple(
            DraftToken(ids[i], left[i], 0.8, i - 1, "eagle3")
            if i < n_accepted
            else DraftToken(WRONG_ID, wrong, 0.8, i - 1, "eagle3")
            for i in range(n_drafted)
        )
        if not n_drafted:
            last = Origin.PLAIN
        else:
            last = Origin.BONUS if n_accepted == n_drafted else Origin.CORRECTION
        origins = [Origin.ACCEPTED] * n_accepted + [last]
        tokens = []
        for i, origin in enumerate(origins):
            text, part = self._text.push(left[i].encode())
            drafter = "eagle3" if origin is Origin.ACCEPTED else None
            tokens.append(Token(ids[i], text, origin, drafter, part))
        draft_ms = 1.0 * n_drafted
        verify_ms = self.engine.plain_ms_per_token + 2.0 * n_drafted
        verify_ms += self.engine.switching_ms if self._index == 0 else 0.0
        self._times[0] += draft_ms + verify_ms
        self._times[1] += draft_ms
        self._times[2] += verify_ms
        self._position += len(tokens)
        self.n_past += len(tokens)
        round_ = Round(
            index=self._index,
            n_draft_max=n,
            drafted=drafted,
            n_tested=n_tested,
            n_accepted=n_accepted,
            tokens=tuple(tokens),
            n_past=self.n_past,
            timings=RoundTimings(draft_ms, verify_ms, 0.0, 0.0, draft_ms + verify_ms),
            auto=auto,
            likely=tuple(likely(token) for token in tokens) if self.chat.top else (),
            is_plain_check=is_check,
        )
        self._checks.add(round_)
        self._index += 1
        self._counted = self._counted.plus(round_)
        return as_reported(round_, self.engine.can)

    def _auto(self) -> AutoDraft:
        n, reason = AUTO_CHOICES[self._index % len(AUTO_CHOICES)]
        if self._index == 0:
            return AutoDraft(n, reason, (), 0.0, 0.0)
        return AutoDraft(
            n, reason, AUTO_SPEEDS, 1.5 * self._index - 4.0, 38.0, self.engine.auto_shape
        )

    @staticmethod
    def _id(text: str, position: int) -> int:
        return 1000 * position + sum(map(ord, text)) % 1000
