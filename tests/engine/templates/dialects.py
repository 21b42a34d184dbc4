"""A chat template of each dialect, written for the tests, and replies to their prompts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eaglechat.wire.protocol import Thinking

FOLDER = Path(__file__).with_name("dialects")
ON, OFF = Thinking(), Thinking(enabled=False)


def source(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


NAMES = sorted(file.stem for file in FOLDER.glob("*.jinja"))


@dataclass(frozen=True)
class Case:
    """A raw reply to a template's prompt, and what it consists of."""

    template: str
    raw: str
    reasoning: str
    answer: str
    thinking: Thinking = ON


HARMONY_FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
CASES = (
    Case("switched", "<think>R</think>A", "R", "A"),
    Case("switched", "<think>\nR one\n\nR two\n</think>\n\nA one\n\nA two",
         "R one\n\nR two", "A one\n\nA two"),
    Case("switched", "<think></think>A", "", "A"),
    Case("switched", "<think>\n\n</think>\n\nA", "", "A"),
    Case("switched", "\n<think>\nR", "R", ""),
    Case("switched", "<think>R</thi", "R</thi", ""),
    Case("switched", "A < B, <b>A</b> and </think> too", "", "A < B, <b>A</b> and </think> too"),
    Case("switched", "A first <think>R</think>", "", "A first <think>R</think>"),
    Case("switched", "A", "", "A", OFF),
    Case("switched", "<think>A", "", "<think>A", OFF),
    Case("forced", "R\n</think>\n\nA", "R", "A"),
    Case("forced", "never closed", "never closed", ""),
    Case("forced", "</think>A", "", "A"),
    Case("harmony", f"<|channel|>analysis<|message|>R{HARMONY_FINAL}A", "R", "A"),
    Case("harmony", "<|channel|>final<|message|>A", "", "A"),
    Case("harmony", "<|channel|>analysis<|message|>R", "R", ""),
    Case("harmony", "<|channel|>analysis<|message|>R1<|end|><|start|>assistant"
         f"<|channel|>analysis<|message|>R2{HARMONY_FINAL}A", "R1R2", "A"),
    Case("harmony", "<|channel|>analysis<|message|>R<|end|><|start|>assistant"
         f"<|channel|>commentary<|message|>C. {HARMONY_FINAL}A", "R", "C. A"),
    Case("harmony", "A", "", "A"),
    Case("channel", "<|channel>thought\nR\n<channel|>A", "R", "A"),
    Case("channel", "<|channel>thought\n<channel|>A", "", "A"),
    Case("channel", "<|channel>thought\nR", "R", ""),
    Case("channel", "A", "", "A"),
    Case("channel", "A", "", "A", OFF),
    Case("blocks", "[THINK]R[/THINK]A", "R", "A"),
    Case("blocks", "A [1] [x", "", "A [1] [x"),
    Case("budget", "<seed:think>R</seed:think>\nA", "R", "A"),
    Case("budget", "A", "", "A", OFF),
    Case("wrapped", "<|START_THINKING|>R<|END_THINKING|><|START_RESPONSE|>A<|END_RESPONSE|>",
         "R", "A"),
    Case("wrapped", "<|START_RESPONSE|>A<|END_RESPONSE|>", "", "A"),
    Case("wrapped", "<|START_THINKING|>R", "R", ""),
    Case("wrapped", "<|START_RESPONSE|>A<|END_RESPONSE|>", "", "A", OFF),
    Case("wrapped", "A", "", "A", OFF),
    Case("unheard", "<|mull|>R<|/mull|>A", "R", "A"),
    Case("unheard", "A", "", "A"),
    Case("plain", "<think>A</think> all of it", "", "<think>A</think> all of it"),
)  # fmt: skip
