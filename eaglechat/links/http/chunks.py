"""The JSON chunks of a streamed reply, with the fields that each kind of server adds. Unknown
fields are ignored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eaglechat.links.http.answers import at, count, fields, number, text
from eaglechat.wire.records import Part
from eaglechat.wire.stats import DrafterStats


@dataclass(frozen=True)
class Timings:
    """llama-server's counts and milliseconds, summed since the request began."""

    cache_n: int = 0
    prompt_n: int = 0
    predicted_n: int = 0
    draft_n: int = 0
    draft_n_accepted: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


class Chunk:
    def __init__(self, raw: dict[str, Any]) -> None:
        """Raises ValueError."""
        choices = raw.get("choices") or []
        if not isinstance(choices, list):
            raise ValueError("its choices are no list")
        self.raw = raw
        self._choice: dict[str, Any] = next((one for one in choices if isinstance(one, dict)), {})

    @cached_property
    def reason(self) -> str:
        """Why the reply ends here; empty if it goes on."""
        reason = text(self._choice, "finish_reason").lower()
        return "" if reason in ("null", "none") else reason

    @property
    def is_last(self) -> bool:
        """Whether the server says here that the reply is whole: with a reason, with a message in
        place of pieces, or with what it used and no piece."""
        if not self._choice:
            return count(self.usage, "completion_tokens") > 0
        return bool(self.reason or (self._choice.get("message") and not self._choice.get("delta")))

    @cached_property
    def pieces(self) -> list[tuple[Part, str]]:
        """The texts, reasoning first. They may begin or end within a character."""
        # A server that does not stream has the whole reply in a message; one that takes every
        # request for one to /completions has a bare text.
        delta = self._choice.get("delta") or self._choice.get("message")
        named = delta if isinstance(delta, dict) else {"content": delta}
        contents = (*map(named.get, _ANSWERS), self._choice.get("text"))
        reasoning = _first(map(named.get, _REASONINGS), Part.REASONING)
        return reasoning + _first(contents, Part.ANSWER)

    @property
    def usage(self) -> dict[str, Any]:
        """The tokens of the reply so far, or of all of it, as most servers count them."""
        return fields(self.raw, "usage")

    @property
    def timings(self) -> Timings | None:
        own = fields(self.raw, "timings")
        names = ("cache_n", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted")
        counts = (count(own, name) for name in names)
        times = (number(own, name) for name in ("prompt_ms", "predicted_ms"))
        return Timings(*counts, *times) if own else None

    @property
    def draft_counts(self) -> tuple[str, DrafterStats] | None:
        """Who drafted (empty if it is not said) and the counts over the whole reply, in the fields
        of whichever server wrote this; no rounds if these are not counted. None if nothing was
        drafted, or it is not counted here."""
        mlx_vlm = at(self.raw, "timings")
        tabby = at(self.usage, "completion_tokens_details")
        sglang = at(self.raw, "sglext", "spec_tokens_details")
        vllm = at(self.raw, "metrics", "speculative_decoding")
        if drafted := count(mlx_vlm, "draft_n"):
            rounds, accepted = count(mlx_vlm, "draft_rounds"), count(mlx_vlm, "draft_n_accepted")
            return text(mlx_vlm, "draft_kind"), DrafterStats(rounds, drafted, 0, accepted)
        # OpenAI has fields of these names for predicted texts, and sends zeros.
        names = ("accepted_prediction_tokens", "rejected_prediction_tokens")
        accepted, rejected = (count(tabby, name) for name in names)
        if accepted + rejected and all(at(tabby, name) is not None for name in names):
            return "", DrafterStats(0, accepted + rejected, 0, accepted)
        if drafted := count(sglang, "spec_num_proposed_drafts"):
            accepted = count(sglang, "spec_num_correct_drafts")
            rounds = count(sglang, "spec_verify_ct")
            return "", DrafterStats(rounds, drafted, 0, accepted)
        # For each step that verified a draft.
        steps, of_steps = (_counts(at(vllm, f"per_step_{n}")) for n in ("drafted", "accepted"))
        if drafted := sum(steps):
            return "", DrafterStats(sum(n > 0 for n in steps), drafted, 0, sum(of_steps))
        return None


def _counts(values: Any) -> list[int]:
    return list(map(count, values)) if isinstance(values, list) else []


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
