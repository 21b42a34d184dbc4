"""The prompts that are measured."""

from __future__ import annotations

import pytest

from eaglechat.engine.bench import prompts as bench_prompts
from eaglechat.engine.bench.prompts import Prompt


def test_the_prompts_to_copy_from_are_another_set() -> None:
    work = {prompt.text for prompt in bench_prompts.builtin_prompts()}
    copies = bench_prompts.copy_prompts()
    assert len(copies) > 3
    assert work.isdisjoint(prompt.text for prompt in copies)


def test_a_prompt_file_is_one_prompt_or_many_by_name() -> None:
    assert bench_prompts.parse_prompts("Just ask.\n") == [Prompt("prompt", "Just ask.")]
    two = bench_prompts.parse_prompts("=== a\nfirst\n\nstill first\n=== b\nsecond")
    assert two == [Prompt("a", "first\n\nstill first"), Prompt("b", "second")]
    with pytest.raises(ValueError, match="'b' is empty"):
        bench_prompts.parse_prompts("=== a\nx\n=== b\n\n")
    with pytest.raises(ValueError, match="two prompts are named 'a'"):
        bench_prompts.parse_prompts("=== a\nx\n=== a\ny")
