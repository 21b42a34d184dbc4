"""The JSON chunks of a streamed reply, with the fields that each kind of server adds. Unknown
fields are ignored."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from eaglechat.links.http.answers import fitted, read_json
from eaglechat.wire.part_stream import Segment
from eaglechat.wire.records import Part
from eaglechat.wire.stats import DrafterStats


class Choice(msgspec.Struct):
    delta: Any = None
    """The piece: a text, or an object with one in a field of `_ANSWERS` or `_REASONINGS`."""
    message: Any = None
    """The whole reply, of a server that does not stream."""
    text: Any = None
    """The piece, of a server that takes every request for one to /completions."""
    finish_reason: Any = None

    @property
    def reason(self) -> str:
        """Why the reply ends here; empty if it goes on."""
        reason = self.finish_reason
        if isinstance(reason, dict):
            # An object that names it, such as {"type": "stop"}.
            reason = next((one for one in reason.values() if isinstance(one, str)), "stop")
        if not reason or str(reason).lower() in ("null", "none"):
            return ""
        return reason.lower() if isinstance(reason, str) else "stop"


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int = 0


class CompletionDetails(msgspec.Struct, frozen=True):
    """TabbyAPI's counts of a whole reply: together they are all drafted tokens. OpenAI has fields
    of these names for predicted texts, and sends zeros."""

    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails = PromptDetails()
    completion_tokens_details: CompletionDetails = CompletionDetails()


class Timings(msgspec.Struct, frozen=True):
    """llama-server's counts and milliseconds, summed since the request began. mlx-vlm sends them at
    the end of a reply, with the fields after them."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0
    draft_rounds: int = 0
    draft_kind: str = ""


class PromptProgress(msgspec.Struct, frozen=True):
    total: int = 0
    cache: int = 0
    processed: int = 0


class SpeculativeDecoding(msgspec.Struct, frozen=True):
    """vLLM's counts for each step of a reply that verified a draft."""

    per_step_accepted: list[int] = []
    per_step_drafted: list[int] = []


class Metrics(msgspec.Struct, frozen=True):
    speculative_decoding: SpeculativeDecoding = SpeculativeDecoding()


class SpecTokensDetails(msgspec.Struct, frozen=True):
    """SGLang's counts of a reply: steps, drafted and accepted tokens."""

    spec_verify_ct: int = 0
    spec_num_proposed_drafts: int = 0
    spec_num_correct_drafts: int = 0


class SGLExt(msgspec.Struct, frozen=True):
    spec_tokens_details: SpecTokensDetails = SpecTokensDetails()


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    prompt_progress: PromptProgress | None = None
    metrics: Metrics = Metrics()
    sglext: SGLExt = SGLExt()
    error: Any = None
    object: Any = None
    """Is “error” in an error of an older vLLM."""
    segments: list[Segment] = []
    """The texts, reasoning first."""

    @property
    def choice(self) -> Choice | None:
        return self.choices[0] if self.choices else None

    @property
    def draft_counts(self) -> tuple[str, DrafterStats] | None:
        """Who drafted (empty if it is not said) and the counts over the whole reply, in the field
        of whichever server wrote this; no rounds if these are not counted. None if nothing was
        drafted, or it is not counted here."""
        own, vllm = self.timings or Timings(), self.metrics.speculative_decoding
        tabby = (self.usage or Usage()).completion_tokens_details
        sglang = self.sglext.spec_tokens_details
        if own.draft_n:
            return own.draft_kind, DrafterStats(
                own.draft_rounds, own.draft_n, 0, own.draft_n_accepted
            )
        accepted, rejected = tabby.accepted_prediction_tokens, tabby.rejected_prediction_tokens
        if accepted is not None and rejected is not None and accepted + rejected:
            return "", DrafterStats(0, accepted + rejected, 0, accepted)
        if drafted := sglang.spec_num_proposed_drafts:
            return "", DrafterStats(
                sglang.spec_verify_ct, drafted, 0, sglang.spec_num_correct_drafts
            )
        if drafted := sum(vllm.per_step_drafted):
            steps = sum(count > 0 for count in vllm.per_step_drafted)
            return "", DrafterStats(steps, drafted, 0, sum(vllm.per_step_accepted))
        return None

    @property
    def is_last(self) -> bool:
        """Whether the server says here that the reply is whole: with a reason, with a message in
        place of pieces, or with what it used and no piece."""
        if self.choice is None:
            return bool(self.usage and self.usage.completion_tokens)
        return bool(self.choice.reason or (self.choice.message and not self.choice.delta))


class ChunkReader:
    """Reads the chunks of one reply, in order."""

    def __init__(self) -> None:
        self._characters = {part: _Characters() for part in Part}

    def read(self, data: str) -> Chunk:
        """Raises ValueError."""
        raw = read_json(data)
        chunk = fitted(raw, Chunk)
        if not isinstance(raw.get("choices") or [], list):
            raise ValueError("its choices are no list")
        choice, chunk.segments = chunk.choice, []
        if choice is None:
            return chunk
        delta = choice.delta or choice.message
        fields = delta if isinstance(delta, dict) else {"content": delta}
        contents = (*map(fields.get, _ANSWERS), choice.text)
        pieces = _first(map(fields.get, _REASONINGS), Part.REASONING)
        pieces += _first(contents, Part.ANSWER)
        if choice.reason:
            # Nothing follows, so what is half of a character stays that.
            pieces += [(part, "") for part in Part]
        chunk.segments = [
            (part, text)
            for part, piece in pieces
            if (text := self._characters[part].push(piece, is_last=not piece))
        ]
        return chunk


class _Characters:
    """Joins what servers cut in two: half of a surrogate pair, or of a character's bytes, waits for
    the other half, which comes with the next chunk."""

    def __init__(self) -> None:
        self._half = ""
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: str, *, is_last: bool) -> str:
        """The next text, in whole characters. Bytes that are no UTF-8 alone are in `piece` as
        Python's `surrogateescape` writes them."""
        text, self._half = self._half + piece, ""
        if text.isascii() and not self._bytes.getstate()[0]:
            return text
        if not is_last and "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        text = _NO_BYTES.sub("\ufffd", text)
        return self._bytes.decode(text.encode("utf-8", "surrogateescape"), is_last)


_NO_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def _first(values: Iterable[Any], part: Part) -> list[tuple[Part, str]]:
    """The texts in the first of these values that has any: a server may send one in two fields."""
    return next(filter(None, (list(_texts(value, part)) for value in values)), [])


def _texts(value: Any, part: Part) -> Iterator[tuple[Part, str]]:
    """The texts in a text, an object with one, or a list of either."""
    if isinstance(value, dict):
        # Mistral sends reasoning in the content.
        part = Part.REASONING if str(value.get("type")).startswith(_THOUGHTS) else part
        value = next(filter(None, map(value.get, _TEXTS)), None)
    if isinstance(value, list):
        for one in value:
            yield from _texts(one, part)
    elif isinstance(value, dict):
        yield from _texts(value, part)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
        yield part, str(value)


_ANSWERS = ("content", "refusal")
_REASONINGS = (
    "reasoning_content", "reasoning", "thinking", "reasoning_text", "thought", "reasoning_details",
)  # fmt: skip
_THOUGHTS = ("thinking", "thought", "reasoning")
"""How the types of objects begin whose text is reasoning."""
_TEXTS = ("text", "content", "parts", "thinking", "reasoning", "summary")
