"""What a training run is asked for. The flags of `eaglechat train` and their table in the docs are
made from the descriptions: in the Meta of a field, `extra` may hold its `flag`, if that is not its
name with dashes, the `metavar` and, if the flag is shown with others, its `group`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AS_IT_IS, Thinking


class TrainingError(EngineError):
    """Training cannot go on; the message is one sentence."""


class PausedError(Exception):
    """The run was interrupted. Everything done is on disk, and the same command goes on."""


DRAFT_VOCABULARY = 8192
SELF_WRITTEN_TOKENS = 1_000_000
LONGEST = 1024

_DATA = "what it learns from (default: chats the target writes)"
_DRAFT = "the draft"
_HOW = "how to train"


class Recipe(msgspec.Struct, frozen=True):
    """How a draft is trained."""

    steps: Annotated[
        int,
        Meta(
            description="Unrolled steps of training-time test. More help longer drafts but take "
            "longer.",
            ge=1, le=8,
            extra={"group": _HOW, "metavar": "K"},
        ),
    ] = 4  # fmt: skip
    batch_tokens: Annotated[
        int,
        Meta(
            description="Tokens in a batch.",
            ge=1,
            extra={"group": _HOW, "flag": "--batch", "metavar": "TOKENS"},
        ),
    ] = 4096
    learning_rate: Annotated[
        float,
        Meta(
            description="Highest learning rate.",
            ge=0.0, le=1.0,
            extra={"group": _HOW, "flag": "--rate", "metavar": "R"},
        ),
    ] = 1e-3  # fmt: skip
    weight_decay: float = 0.1
    step_decay: float = 0.8
    """The weight of a step's loss, relative to that of the step before it."""
    unreached: float = 0.2
    """The share of chains continued past a wrong token; at inference a draft ends there."""
    seed: Annotated[
        int,
        Meta(
            description="Seed of the training and of the chats the target writes.",
            ge=0, le=2**31,
            extra={"group": _HOW, "metavar": "S"},
        ),
    ] = 1  # fmt: skip


class Budget(msgspec.Struct, frozen=True):
    """How long to train: either tokens or seconds is set."""

    tokens: int | None = None
    seconds: float | None = None

    def share(self, tokens: int, seconds: float) -> float:
        """The share of the budget that this much training takes, 0 to 1."""
        if self.tokens is not None:
            return min(tokens / self.tokens, 1.0)
        assert self.seconds is not None
        return min(seconds / self.seconds, 1.0)


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a training run is asked for."""

    target: Annotated[
        Path,
        Meta(
            description="The model to draft for (of a split model, the first file).",
            extra={"metavar": "TARGET.gguf"},
        ),
    ]
    out: Annotated[
        Path,
        Meta(
            description="The draft to write, also -o; its report goes beside it.",
            extra={"flag": "--output", "metavar": "DRAFT.gguf"},
        ),
    ]
    work: Annotated[
        Path,
        Meta(
            description="Directory for chats, features and checkpoints (default: DRAFT.training). "
            "Delete it when you are done.",
            extra={"metavar": "DIR"},
        ),
    ]
    restart: Annotated[
        bool,
        Meta(description="Train again from the start; chats and features are kept."),
    ] = False
    self_written_tokens: Annotated[
        int,
        Meta(
            description=f"Chats the target writes, in tokens ({SELF_WRITTEN_TOKENS:,} without "
            "other data).",
            ge=1,
            extra={"group": _DATA, "flag": "--write", "metavar": "TOKENS"},
        ),
    ] = 0
    prompts: Annotated[
        tuple[Path, ...],
        Meta(
            description="Prompts the target answers: one a line, or each after a line "
            "“=== name”; repeatable.",
            extra={"group": _DATA},
        ),
    ] = ()
    chats: Annotated[
        tuple[Path, ...],
        Meta(
            description='Chats as JSONL, also .gz: {"messages": [...]} a line, or tokens; '
            "repeatable.",
            extra={"group": _DATA},
        ),
    ] = ()
    text: Annotated[
        tuple[Path, ...],
        Meta(description="Plain text to learn from; repeatable.", extra={"group": _DATA}),
    ] = ()
    from_history: Annotated[
        bool,
        Meta(
            description="Your own chats in eaglechat too. They stay on this machine, but the draft "
            "contains what it learned from them.",
            extra={"group": _DATA},
        ),
    ] = False
    thinking: Thinking = AS_IT_IS
    """Whether the target thinks in the chats it writes and before it answers prompts."""
    longest: Annotated[
        int,
        Meta(
            description="Longest sample in tokens; longer ones are cut.",
            # Below, not even a BOS and the fewest tokens that teach anything have room.
            ge=8,
            extra={"group": _DATA},
        ),
    ] = LONGEST
    init: Annotated[
        Path | None,
        Meta(
            description="Start from this draft, with its layers and vocabulary, and measure it "
            "too. Its RoPE and embeddings of its own are not trained.",
            extra={"group": _DRAFT, "metavar": "DRAFT.gguf"},
        ),
    ] = None
    compare: Annotated[
        Path | None,
        Meta(
            description="Measure this draft too, for comparison.",
            extra={"group": _DRAFT, "metavar": "OLD.gguf"},
        ),
    ] = None
    layers: Annotated[
        tuple[int, ...] | None,
        Meta(
            description="Layers of the target whose inputs the draft reads (default: 2, the "
            "middle one, the last but 3).",
            extra={"group": _DRAFT, "metavar": "A,B,C"},
        ),
    ] = None
    draft_vocab: Annotated[
        int | None,
        Meta(
            description=f"Tokens the draft can propose: the most frequent in the data (default: "
            f"{DRAFT_VOCABULARY}, or those of --init). Fewer are faster and miss more.",
            ge=1,
            extra={"group": _DRAFT},
        ),
    ] = None
    name: Annotated[
        str | None,
        Meta(
            description="The draft's name (default: the target's, and EAGLE-3).",
            extra={"group": _DRAFT, "metavar": "NAME"},
        ),
    ] = None
    type: Annotated[
        str,
        Meta(
            description="Type of the matrices: q8_0, bf16, f16, f32, q4_k_m and so on.",
            extra={"group": _DRAFT, "metavar": "TYPE"},
        ),
    ] = "q8_0"
    head_type: Annotated[
        str | None,
        Meta(
            description="Type of the output head, if different: q5_0 takes two thirds of q8_0.",
            extra={"group": _DRAFT, "metavar": "TYPE"},
        ),
    ] = None
    budget: Annotated[
        Budget,
        Meta(
            description="How long to train once the data is there: 90m, 2h, or tokens such as "
            "2000000 (default: 60m). A larger budget continues a finished run.",
            extra={"group": _HOW, "metavar": "B"},
        ),
    ] = Budget(seconds=3600.0)
    recipe: Recipe = Recipe()
    recompute: Annotated[
        bool,
        Meta(
            description="Compute features in every pass instead of storing them: slower, but "
            "needs little disk.",
            extra={"group": _HOW},
        ),
    ] = False
    report_prompts: Annotated[
        int,
        Meta(description="Held-out prompts in the report.", ge=1, extra={"group": _HOW}),
    ] = 24
    report_tokens: int = 128
    n_threads: int | None = None
    n_gpu_layers: int = -1

    @property
    def report(self) -> Path:
        """The file of the report."""
        return beside(self.out, ".md")

    @property
    def earlier(self) -> tuple[Path, ...]:
        """The drafts to measure beside the new one: the one it goes on from, and `compare`."""
        return tuple(dict.fromkeys(filter(None, (self.init, self.compare))))


def beside(out: Path, ending: str) -> Path:
    """The path of what belongs to a draft: a dot in its name is no ending."""
    return out.with_name(out.name.removesuffix(".gguf") + ending)
