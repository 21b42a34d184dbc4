"""What a client and an engine say to each other: requests in, events out.

docs/protocol.md explains each message; `lines` makes lines of them.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.capabilities import Capabilities, Memory
from eaglechat.wire.load_options import DRAFT_WINDOW_DEFAULT, LeaveOut, LoadOptions
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    KvType,
    Prefill,
    ReplyEnd,
    Round,
    SpeculationOff,
    Window,
)
from eaglechat.wire.stats import SpeculationStats

PROTOCOL_VERSION = 3

RequestId = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Chosen by the client; small enough for every JSON parser."""

SEED_LIMIT = 2**32 - 2
"""The seed after this one means “random” to llama.cpp."""

TOP_LIMIT, TOP_DEFAULT = 20, 5

DraftLength = Annotated[int, Meta(ge=0, le=N_DRAFT_MAX_LIMIT)]
N_DRAFT_MAX_DEFAULT = 3
Auto = Literal["auto"]
AUTO: Auto = "auto"
"""A draft length chosen by measurement."""
Shape = Literal["chain", "tree", "auto"]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Temperature = Annotated[float, Meta(ge=0.0, le=5.0)]
TopK = Annotated[int, Meta(ge=0)]
RepeatPenalty = Annotated[float, Meta(gt=0.0, le=4.0)]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation: role is system, user or assistant.

    `reasoning` is what an assistant thought before `content`; the chat template decides whether
    the model sees it again.
    """

    role: str
    content: str
    reasoning: str = ""


EFFORTS = ("low", "medium", "high", "max")
"""The words for how much a model thinks that chat templates know, least first."""


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """How much the model is asked to think before it answers; None leaves it to the template."""

    enabled: bool | None = None
    effort: str | None = None


AS_IT_IS = Thinking()
"""As much as the chat template would have it."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the target's tokens are sampled. Temperature 0 is greedy; seed None draws one."""

    temperature: Temperature = 0.7
    top_k: TopK = 40
    top_p: Probability = 0.95
    min_p: Probability = 0.05
    repeat_penalty: RepeatPenalty = 1.0
    seed: Annotated[int, Meta(ge=0, le=SEED_LIMIT)] | None = None

    def draw_seed(self) -> int:
        """The seed asked for, or a fresh one."""
        return secrets.randbelow(SEED_LIMIT + 1) if self.seed is None else self.seed


class RecommendedSampling(msgspec.Struct, frozen=True, kw_only=True):
    """The sampling that the model's file recommends; None for values it does not name."""

    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: Probability | None = None
    min_p: Probability | None = None
    repeat_penalty: RepeatPenalty | None = None


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """What is drafted. `n_draft_max` 0 decodes plainly but keeps the draft in step."""

    enabled: bool = True
    n_draft_max: DraftLength | Auto = N_DRAFT_MAX_DEFAULT
    n_min: DraftLength = 0
    p_min: Probability = 0.0
    shape: Shape = "chain"
    ngram: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What the client asks."""


class Load(Request, frozen=True, kw_only=True, tag="load"):
    id: RequestId = 0
    target: str
    draft: str | None = None
    options: LoadOptions = LoadOptions()
    leave_out: tuple[LeaveOut, ...] | None = None
    """What llama.cpp does without, because it crashed; None is what worked on the engine's machine
    before."""
    speculation: Speculation = Speculation()
    """What the first reply will ask for: a program that drafts as it was started is started so."""


class Chat(Request, frozen=True, kw_only=True, tag="chat"):
    """Reply to `messages`. Answered by prefill, round ... and done, or by error."""

    id: RequestId = 0
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    speculation: Speculation = Speculation()
    thinking: Thinking = AS_IT_IS
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: tuple[str, ...] = ()
    top: Annotated[int, Meta(ge=0, le=TOP_LIMIT)] = 0
    """Report as many of the target's likeliest tokens in each place of a round."""
    begun: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Tokens of the reply that exist already; generation continues behind them."""


class Bench(Request, frozen=True, kw_only=True, tag="bench"):
    """Measure the loaded pair: each prompt plainly, and with each draft length of each shape with
    and without n-grams as asked for, taking turns.

    Answered by bench_progress, bench_run for each reply, and bench_done, or by error. Replies are
    greedy; what the chat had in the KV cache is gone afterwards.
    """

    id: RequestId = 0
    prompts: Annotated[tuple[BenchPrompt, ...], Meta(min_length=1)]
    n: tuple[DraftLength | Auto, ...]
    shapes: tuple[Shape, ...] = ("chain",)
    ngram: tuple[bool, ...] = (False,)
    repeats: Annotated[int, Meta(ge=1)] = 3
    first_repeat: Annotated[int, Meta(ge=0)] = 0
    """Continues an earlier bench: the settings keep their order, and there is no warm-up."""
    max_tokens: Annotated[int, Meta(ge=1)] = 256
    by_turns: bool = False
    """All settings write each reply together, each on a pair of its own that stays in memory."""


class Render(Request, frozen=True, kw_only=True, tag="render"):
    """Show the prompt that a `chat` of these fields would read. Answered by rendered or error."""

    id: RequestId = 0
    messages: tuple[Message, ...]
    thinking: Thinking = AS_IT_IS
    max_tokens: Annotated[int, Meta(ge=1)] | None = None


class Set(Request, frozen=True, kw_only=True, tag="set"):
    """Change a running reply from its next round on; fields left out stay as they are."""

    enabled: bool | None = None
    n_draft_max: DraftLength | Auto | None = None
    n_min: DraftLength | None = None
    p_min: Probability | None = None
    shape: Shape | None = None
    ngram: bool | None = None
    temperature: Temperature | None = None
    answer_now: bool = False
    """End the reasoning: the model goes on with its answer."""


class Cancel(Request, frozen=True, kw_only=True, tag="cancel"):
    """End the request with this id, or all of them; what was generated stays."""

    id: RequestId | None = None


class Unload(Request, frozen=True, kw_only=True, tag="unload"):
    """Free both models."""

    id: RequestId = 0


class Shutdown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Free everything and exit."""


AnyRequest = Load | Chat | Bench | Render | Set | Cancel | Unload | Shutdown


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a loaded GGUF file."""

    path: str
    name: str
    architecture: str
    quantization: str
    size_bytes: int
    n_layers: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """What the chat template of a target knows of reasoning before the answer."""

    marked: bool = False
    """Whether reasoning can be told from the answer."""
    on_off: bool = False
    """Whether it can be switched on and off."""
    efforts: tuple[str, ...] = ()
    """The words for how much of it, least first; empty where there is no choice."""
    can_end: bool = False
    """Whether `set` with `answer_now` can end it."""


NO_REASONING = Reasoning()


class PairInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is loaded, and how; why nothing is drafted, and why no draft is a tree."""

    target: ModelInfo
    draft: ModelInfo | None
    target_layers: tuple[int, ...]
    n_ctx: int
    n_threads: int
    devices: tuple[str, ...]
    load_ms: float
    kv_type: KvType = "f16"
    draft_kv_type: KvType = "f16"
    draft_window: int = DRAFT_WINDOW_DEFAULT
    speculation_off: str | None
    chains_only: str | None = None
    reasoning: Reasoning = NO_REASONING
    sampling: RecommendedSampling = RecommendedSampling()
    server: str = ""
    """The address of the server that has it, where that is not the engine itself."""
    left_out: tuple[LeaveOut, ...] = ()
    """What is left out because llama.cpp crashes with it on this machine."""

    def no_bench(self, *, ngram: bool) -> str | None:
        """Why there are no draft lengths to compare, with or without n-grams."""
        if self.draft is None and not ngram:
            return "no draft is loaded, and n-grams are off"
        return self.speculation_off


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What the engine answers."""


class Hello(Event, frozen=True, kw_only=True, tag="hello"):
    """The first line of an engine. `engine` is its name, as in “not reported by llama-server”."""

    protocol: int
    engine: str = "eaglechat"
    can: Capabilities = Capabilities()
    eaglechat: str
    llama_cpp: str
    devices: tuple[str, ...]
    memory: Memory | None = None
    left_out: tuple[LeaveOut, ...] = ()
    """What llama.cpp does without on this machine, because it crashed."""
    can_leave_out: tuple[LeaveOut, ...] = ()
    """What this machine has that may be left out where llama.cpp crashes."""


class Loading(Event, frozen=True, kw_only=True, tag="loading"):
    """What a load or a reply waits for: `stage` is target, draft, context or server."""

    id: int
    stage: str
    fraction: float


class Restarting(Event, frozen=True, kw_only=True, tag="restarting"):
    """A load crashed and is tried again in a new process, without the last of `leave_out` too.

    `crash` is the signal that ended the process, such as SIGSEGV.
    """

    id: int
    crash: str
    leave_out: tuple[LeaveOut, ...]


class Loaded(Event, frozen=True, kw_only=True, tag="loaded"):
    id: int
    pair: PairInfo


class Unloaded(Event, frozen=True, kw_only=True, tag="unloaded"):
    id: int


class WindowMoved(Event, frozen=True, kw_only=True, tag="window"):
    """The oldest turns are not in the context: before a reply's prefill, and when it changes."""

    id: int
    window: Window


class PrefillProgress(Event, frozen=True, kw_only=True, tag="prefill"):
    id: int
    prefill: Prefill


class RoundDone(Event, frozen=True, kw_only=True, tag="round"):
    id: int
    round: Round


class Settled(Event, frozen=True, kw_only=True, tag="settled"):
    """What was in all the rounds of a reply, in place of those that were provisional."""

    id: int
    rounds: tuple[Round, ...]


class SpeculationStopped(Event, frozen=True, kw_only=True, tag="speculation_off"):
    id: int
    off: SpeculationOff


class Done(Event, frozen=True, kw_only=True, tag="done"):
    id: int
    end: ReplyEnd
    stats: SpeculationStats


class BenchProgress(Event, frozen=True, kw_only=True, tag="bench_progress"):
    """What is being measured: a few times a second."""

    id: int
    done: int
    total: int
    prompt: str
    setting: str
    tokens: int


class BenchRunDone(Event, frozen=True, kw_only=True, tag="bench_run"):
    id: int
    run: BenchRun


class BenchDone(Event, frozen=True, kw_only=True, tag="bench_done"):
    id: int
    cancelled: bool


class PromptRun(msgspec.Struct, frozen=True):
    """Some of a prompt: text, or a control token spelled out."""

    text: str
    is_control: bool = False


class Rendered(Event, frozen=True, kw_only=True, tag="rendered"):
    """A prompt as the target would read it: its `runs` joined, so many `tokens`, without the turns
    before `first_turn`, which are not in the context. A recurrent or hybrid target's chat can go
    back to so many `checkpoints`, which take `checkpoint_bytes` of memory."""

    id: int
    runs: tuple[PromptRun, ...]
    tokens: int
    first_turn: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """A request failed. `code` is for programs, `message` is one sentence for people."""

    id: int | None
    code: str
    message: str


Answer = (
    Loading
    | Restarting
    | Loaded
    | Unloaded
    | WindowMoved
    | PrefillProgress
    | RoundDone
    | Settled
    | SpeculationStopped
    | Done
    | BenchProgress
    | BenchRunDone
    | BenchDone
    | Rendered
    | Error
)
"""The events that answer a request."""
AnyEvent = Hello | Answer
