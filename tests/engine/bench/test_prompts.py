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
    assert bench_prompts.parse_prompts("Just ask.\n") == [Prompt("prompt", "Just ask.", "prompt")]
    two = bench_prompts.parse_prompts("=== a\nfirst\n\nstill first\n=== b\nsecond")
    assert two == [Prompt("a", "first\n\nstill first", "a"), Prompt("b", "second", "b")]
    with pytest.raises(ValueError, match="'b' is empty"):
        bench_prompts.parse_prompts("=== a\nx\n=== b\n\n")
    with pytest.raises(ValueError, match="two prompts are named 'a'"):
        bench_prompts.parse_prompts("=== a\nx\n=== a\ny")


def test_json_lines_have_a_prompt_and_a_category() -> None:
    lines = (
        '{"prompt": "One?", "category": "qa", "id": 7}\n\n{"prompt": "Two?", "category": "qa"}\n'
    )
    found = bench_prompts.parse_lines(f'{lines}{{"prompt": "Three?"}}\n')
    assert found == [
        Prompt("qa 1", "One?", "qa"), Prompt("qa 2", "Two?", "qa"),
        Prompt("prompt 1", "Three?", "prompt 1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("oops", "line 3: JSON is malformed"),
        ('{"text": "x"}', "line 3: Object missing required field `prompt`"),
        ('{"prompt": 4}', r"line 3: Expected `str`, got `int` - at `\$.prompt`"),
        ('{"prompt": " "}', "line 3: the prompt is empty"),
        ("[]", "line 3: Expected `object`"),
    ],
)
def test_a_bad_json_line_is_named_by_its_number(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        bench_prompts.parse_lines(f'{{"prompt": "a"}}\n\n{line}\n{{"prompt": "b"}}')
    with pytest.raises(ValueError, match="no prompt"):
        bench_prompts.parse_lines("\n")
