"""The messages between a client and an engine: requests to the engine, events from it.

docs/protocol.md explains each message and each of their fields; here are the types and the bounds.
A message is a line: one JSON object with its `type`. The same lines work over any pipe, so the
engine may run on another machine: only the model paths must mean something there.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from eaglechat.wire.drafters import DrafterChoice, DrafterKind
from eaglechat.wire.records import (
    N_DRAFT_MAX_LIMIT,
    Prefill,
    ReplyEnd,
    Round,
    SpeculationOff,
    Window,
)
from eaglechat.wire.stats import SpeculationStats

PROTOCOL_VERSION = 6

RequestId = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Chosen by the client. The limit is the largest integer that every JSON parser keeps exact."""

SEED_LIMIT = 2**32 - 2
"""The largest seed: the next number means “random” to llama.cpp."""

TOP_LIMIT, TOP_DEFAULT = 20, 5

DraftLength = Annotated[int, Meta(ge=0, le=N_DRAFT_MAX_LIMIT)]
N_DRAFT_MAX_DEFAULT = 3
Auto = Literal["auto"]
AUTO: Auto = "auto"
"""A draft length, or shape, that the engine chooses by measurement."""
Shape = Literal["chain", "tree", "auto"]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
Temperature = Annotated[float, Meta(ge=0.0, le=5.0)]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    content: str
    reasoning: str = ""


EFFORTS = ("low", "medium", "high", "max")
"""The words that chat templates know for the amount of reasoning, least first."""


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """How much reasoning the model is asked for. None leaves it to the chat template."""

    enabled: bool | None = None
    effort: str | None = None


AS_IT_IS = Thinking()
"""Leaves everything about reasoning to the chat template."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the target's tokens are sampled. With seed None the engine draws a seed."""

    temperature: Temperature = 0.7
    top_k: Annotated[int, Meta(ge=0)] = 40
    top_p: Probability = 0.95
    min_p: Probability = 0.05
    repeat_penalty: Annotated[float, Meta(gt=0.0, le=4.0)] = 1.0
    seed: Annotated[int, Meta(ge=0, le=SEED_LIMIT)] | None = None

    def draw_seed(self) -> int:
        """`seed`, or a random one if it is None."""
        return secrets.randbelow(SEED_LIMIT + 1) if self.seed is None else self.seed


Recommended = dict[str, int | float | None]
"""What a model's file recommends, by the fields of Sampling; nothing, or null, for the others."""


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine drafts. With `n_draft_max` 0 it decodes plainly but keeps the features that
    the draft reads, so that drafting can begin again at once."""

    enabled: bool = True
    n_draft_max: DraftLength | Auto = N_DRAFT_MAX_DEFAULT
    n_min: DraftLength = 0
    p_min: Probability = 0.0
    shape: Shape = "chain"
    ngram: bool = False
    drafter: DrafterChoice = AUTO

    @property
    def is_plain(self) -> bool:
        """Whether nothing is to be drafted."""
        return not self.enabled or self.n_draft_max == 0


PLAINLY = Speculation(enabled=False)
"""Plain decoding, as if only the target were loaded."""


N_CTX_LEAST = 256
"""The smallest context, in tokens: llama.cpp rounds up to a multiple of this."""
N_CTX_LIMIT = 2**24
"""More tokens than any model's context. Given a larger number, llama.cpp would fill the memory with
bookkeeping before it refuses."""
CHECKPOINTS_MIB = 512
"""Not measured: room for the checkpoints of several turns with most models. The size of one
checkpoint depends only on the model."""
KvType = Literal["f16", "q8_0"]
"""Number format of a KV cache."""
SplitMode = Literal["none", "layer", "row"]
FlashAttention = Literal["auto", "on", "off"]
LeaveOut = Literal["amx", "extra_buffers", "flash_attention", "gpu"]
"""What can be left out if llama.cpp crashes with it: AMX instructions, weights repacked for this
CPU (which AMX needs too), flash attention, the GPUs."""

_Share = Annotated[float, Meta(ge=0.0, le=1e6)]
_Endpoint = Annotated[str, Meta(pattern=r"^[^\s:]+:[0-9]{1,5}$")]


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    n_ctx: Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)] = 0
    n_batch: Annotated[int, Meta(ge=32, le=8192)] = 512
    n_threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    n_gpu_layers: Annotated[int, Meta(ge=-1, le=99_999)] = -1
    split_mode: SplitMode = "layer"
    main_gpu: Annotated[int, Meta(ge=0, le=255)] = 0
    tensor_split: Annotated[tuple[_Share, ...], Meta(max_length=16)] = ()
    rpc_servers: Annotated[tuple[_Endpoint, ...], Meta(max_length=16)] = ()
    flash_attention: FlashAttention = "auto"
    kv_type: KvType = "f16"
    draft_kv_type: KvType = "f16"
    # Drafts trained on short texts lose acceptance in longer contexts: docs/chatting.md.
    draft_window: Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)] = 2048
    checkpoints_mib: Annotated[int, Meta(ge=0, le=1 << 20)] = CHECKPOINTS_MIB


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message from the client to the engine."""


class Load(Request, frozen=True, kw_only=True, tag="load"):
    id: RequestId = 0
    target: str
    draft: str | None = None
    options: LoadOptions = LoadOptions()
    leave_out: tuple[LeaveOut, ...] = ()
    crash: str = ""
    speculation: Speculation = Speculation()


class Chat(Request, frozen=True, kw_only=True, tag="chat"):
    id: RequestId = 0
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    speculation: Speculation = Speculation()
    thinking: Thinking = AS_IT_IS
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: tuple[str, ...] = ()
    top: Annotated[int, Meta(ge=0, le=TOP_LIMIT)] = 0
    begun: tuple[Annotated[int, Meta(ge=0)], ...] = ()


class Render(Request, frozen=True, kw_only=True, tag="render"):
    id: RequestId = 0
    messages: tuple[Message, ...]
    thinking: Thinking = AS_IT_IS
    max_tokens: Annotated[int, Meta(ge=1)] | None = None


class Set(Request, frozen=True, kw_only=True, tag="set"):
    """Change a running reply from its next round on. Fields that are None stay as they are."""

    enabled: bool | None = None
    n_draft_max: DraftLength | Auto | None = None
    n_min: DraftLength | None = None
    p_min: Probability | None = None
    shape: Shape | None = None
    ngram: bool | None = None
    temperature: Temperature | None = None
    answer_now: bool = False


class Cancel(Request, frozen=True, kw_only=True, tag="cancel"):
    """End the request with this id, or all requests if it is None. What was generated is kept."""

    id: RequestId | None = None


class Unload(Request, frozen=True, kw_only=True, tag="unload"):
    id: RequestId = 0


class Shutdown(Request, frozen=True, kw_only=True, tag="shutdown"):
    """Free everything and exit."""


AnsweredRequest = Load | Chat | Render | Unload
AnyRequest = AnsweredRequest | Set | Cancel | Shutdown


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
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
    marked: bool = False
    on_off: bool = False
    efforts: tuple[str, ...] = ()
    can_end: bool = False


NO_REASONING = Reasoning()


class DrafterInfo(msgspec.Struct, frozen=True, kw_only=True):
    kind: DrafterKind
    file: ModelInfo | None = None
    layers: tuple[int, ...] = ()
    longest: int = N_DRAFT_MAX_LIMIT


class PairInfo(msgspec.Struct, frozen=True, kw_only=True):
    target: ModelInfo
    drafters: tuple[DrafterInfo, ...] = ()
    undrafted: dict[DrafterKind, str] = {}
    n_ctx: int
    n_threads: int
    devices: tuple[str, ...]
    load_ms: float
    verify_ms: dict[int, float] = {}
    speculation_off: str | None
    chains_only: str | None = None
    untemplated: str | None = None
    reasoning: Reasoning = NO_REASONING
    sampling: Recommended = {}
    server: str = ""
    left_out: tuple[LeaveOut, ...] = ()

    @property
    def drafter(self) -> DrafterInfo | None:
        """The first; a reply may be drafted by another."""
        return self.drafters[0] if self.drafters else None

    @property
    def most(self) -> float | None:
        """How many times as fast as plain decoding drafts of any length can be here: with one that
        costs nothing and is always right, a round writes as many tokens as it has rows. None if the
        passes of one row or of more were not timed."""
        longest = max((one.longest for one in self.drafters), default=N_DRAFT_MAX_LIMIT)
        one, times = self.verify_ms.get(1), self.verify_ms.items()
        gains = [n * one / ms for n, ms in times if one and 1 < n <= longest + 1]
        return max(gains, default=None)

    def no_drafter(self, choice: DrafterChoice) -> str | None:
        """Why this drafter cannot be used; None if it can."""
        kinds = [drafter.kind for drafter in self.drafters]
        if choice == "auto" or choice == "ngram" or choice == "none" or choice in kinds:  # noqa: PLR1714 - mypy narrows
            return None
        return self.undrafted.get(choice) or f"no draft of the kind {choice} is loaded"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the engine's machine, in bytes."""

    ram: int
    ram_available: int
    gpu: int = 0
    unified: bool = False


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine reports and what it can be asked, beyond the text of a reply."""

    own: bool = False
    origins: bool = False
    draft_length: bool = False
    plain: bool = False
    prompt: bool = False
    goes_on_from_text: bool = False


OWN_ENGINE = Capabilities(own=True, origins=True, draft_length=True, plain=True, prompt=True)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message from the engine to the client."""


class Hello(Event, frozen=True, kw_only=True, tag="hello"):
    protocol: int
    engine: str = "eaglechat"
    can: Capabilities = Capabilities()
    eaglechat: str
    llama_cpp: str
    devices: tuple[str, ...]
    memory: Memory | None = None


class Loading(msgspec.Struct, frozen=True, tag="loading"):
    stage: str
    fraction: float


class Restarting(msgspec.Struct, frozen=True, tag="restarting"):
    """A load crashed and is tried again in a new process, without `leave_out`."""

    crash: str
    leave_out: tuple[LeaveOut, ...]
    log: str = ""


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """The final rounds of a reply, all of them, in place of those that were told before."""

    rounds: tuple[Round, ...]


Step = Loading | Restarting | Window | Prefill | Round | Settled | SpeculationOff


class Progress(Event, frozen=True, kw_only=True, tag="progress"):
    id: int
    step: Step


class Loaded(Event, frozen=True, kw_only=True, tag="loaded"):
    id: int
    pair: PairInfo


class Unloaded(Event, frozen=True, kw_only=True, tag="unloaded"):
    id: int


class Done(Event, frozen=True, kw_only=True, tag="done"):
    id: int
    end: ReplyEnd
    stats: SpeculationStats


class PromptRun(msgspec.Struct, frozen=True):
    """A part of a prompt: text, or a control token in its written form."""

    text: str
    is_control: bool = False


class Rendered(Event, frozen=True, kw_only=True, tag="rendered"):
    id: int
    runs: tuple[PromptRun, ...]
    tokens: int
    first_turn: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0


class Error(Event, frozen=True, kw_only=True, tag="error"):
    """A request failed. `code` is for programs; `message` is one sentence for people."""

    id: int | None
    code: str
    message: str


Answer = Progress | Loaded | Unloaded | Done | Rendered | Error
"""The events that answer a request: any number of Progress, then one of the others."""
AnyEvent = Hello | Answer


M = TypeVar("M")
_EXCERPT = 60


class ProtocolError(ValueError):
    """A line that is not a message of this protocol, or a message that is no line of it.

    The text says why; `request_id` is the line's, if it has one.
    """

    def __init__(self, text: str, request_id: int | None = None) -> None:
        super().__init__(text)
        self.request_id = request_id


class _Envelope(msgspec.Struct, frozen=True):
    """The only field that is read of a line that is not understood otherwise."""

    id: RequestId | None = None


_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
_events: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
# RecursionError is for a line that is nested too deeply.
_NOT_UNDERSTOOD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(message: Request | Event) -> bytes:
    """One line, with its newline. Raises ProtocolError for what JSON cannot say."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError as error:
        # The end of the text up to what cannot be encoded, and a little behind it.
        text = error.object[: error.end + _EXCERPT][-2 * _EXCERPT :]
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise ProtocolError(f"“{shown}” is not text in UTF-8") from error
    except OverflowError as error:
        raise ProtocolError(str(error)) from error


def decode_request(line: bytes) -> AnyRequest:
    """Parse a request line. Raises ProtocolError."""
    return _decoded(_requests, line)


def decode_event(line: bytes) -> AnyEvent:
    """Parse an event line. Raises ProtocolError."""
    return _decoded(_events, line)


def _decoded(decoder: msgspec.json.Decoder[M], line: bytes) -> M:
    try:
        return decoder.decode(line)
    except _NOT_UNDERSTOOD as error:
        request_id = None
        with suppress(*_NOT_UNDERSTOOD):
            request_id = msgspec.json.decode(line, type=_Envelope).id
        raise ProtocolError(str(error), request_id) from error
