"""Prompts as people type them, for `eaglechat train --prompts`: forms of everyday requests filled
with what they are about.

`python -m tests.measure.everyday_prompts [N]` prints N of them, a line each.

The built-in draft learnt from the target's answers to these, beside the chats it wrote itself.
"""

from __future__ import annotations

import random
import sys

from tests.measure.everyday_topics import (
    CONCEPTS,
    DISHES,
    EVENTS,
    FACTS,
    HEROES,
    LETTERS,
    MOODS,
    MORE_CONCEPTS,
    MORE_FACTS,
    MORE_PAIRS,
    MORE_PLACES,
    MORE_PROGRAMS,
    MORE_TASKS,
    MORE_THINGS,
    PAIRS,
    PASSAGES,
    PLACES,
    PROGRAMS,
    QUERIES,
    REQUESTS,
    SENTENCES,
    TASKS,
    THINGS,
)

PROGRAM_FORMS = (
    "Write a Python function that {}.",
    "Write a Python program that {}.",
    "Write a JavaScript function that {}.",
    "Write a C program that {}.",
    "Write a Java method that {}.",
    "How would I write a program that {}? Explain each step.",
)
ABOUT: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        CONCEPTS,
        ", ",
        (
            "Explain {} in simple terms.",
            "What should I know about {}?",
            "Write a short paragraph about {}.",
            "Give me five interesting facts about {}.",
            "Write an introduction to {} for students.",
            "Why does {} matter?",
            "explain {} like I'm five",
            "Write three quiz questions about {}, with answers.",
        ),
    ),
    (
        TASKS,
        ", ",
        (
            "How do I {}?",
            "Give me a step by step guide: how to {}.",
            "I want to {}. Where should I begin?",
            "What mistakes should I avoid when I {}?",
        ),
    ),
    (PAIRS, "; ", ("What is the difference between {}?", "Compare {} in a table.")),
    (
        DISHES,
        ", ",
        (
            "Give me a simple recipe for {}.",
            "How do I make {} for four people?",
            "What goes well with {}?",
        ),
    ),
    (HEROES, ", ", tuple(f"Write a short story about {{}} {it}." for it in EVENTS.split("; "))),
    (
        MOODS,
        ", ",
        ("Write a poem about {}.", "Write a haiku about {}.", "Describe {} in three sentences."),
    ),
    (LETTERS, "; ", ("Write an e-mail {}.", "Draft a short, friendly message {}.")),
    (PROGRAMS, "; ", PROGRAM_FORMS),
    (QUERIES, "; ", ("Write an SQL query that {}.",)),
    (THINGS, ", ", ("List five {}.", "List ten {}.", "List twelve {}.")),
    (
        PLACES,
        ", ",
        (
            "Plan a weekend in {}.",
            "What should I see in {}?",
            "Plan three days in {} for a family with children.",
            "What is the best time of the year to visit {}?",
        ),
    ),
    (
        SENTENCES,
        "; ",
        (
            "Translate into Spanish: {}",
            "Translate into German: {}",
            "Translate into Italian: {}",
            "Rewrite this more formally: {}",
            "Correct the grammar: {}",
        ),
    ),
    (
        CONCEPTS,
        ", ",
        (
            "What is {}?",
            "Tell me about {}.",
            "Summarise {} in five bullet points.",
            "What are common misconceptions about {}?",
            "Write a short dialogue about {}.",
            "How has {} changed over time?",
            "Give an example that shows {}.",
            "Write a blog post about {}.",
            "What are the advantages and disadvantages of {}?",
            "i need help with homework about {}",
        ),
    ),
    (
        MORE_CONCEPTS,
        ", ",
        (
            "Explain {} in simple terms.",
            "What should I know about {}?",
            "Write a short paragraph about {}.",
            "Give me five interesting facts about {}.",
            "Why does {} matter?",
            "explain {} like I'm five",
            "Tell me about {}.",
            "Summarise {} in five bullet points.",
            "What are common misconceptions about {}?",
            "Write a short essay about {}.",
        ),
    ),
    (
        TASKS,
        ", ",
        (
            "What do I need to {}?",
            "Make a plan so that I can {} in a month.",
            "What is the best way to {}?",
            "tips to {}?",
        ),
    ),
    (
        MORE_TASKS,
        ", ",
        (
            "How do I {}?",
            "Give me a step by step guide: how to {}.",
            "I want to {}. Where should I begin?",
            "What mistakes should I avoid when I {}?",
            "What is the best way to {}?",
            "tips to {}?",
        ),
    ),
    (
        MORE_PAIRS,
        "; ",
        (
            "What is the difference between {}?",
            "Compare {} in a table.",
            "Explain {} to a beginner: what do they share, where do they differ?",
        ),
    ),
    (PAIRS, "; ", ("Explain {} to a beginner: what do they share, where do they differ?",)),
    (DISHES, ", ", ("Which ingredients do I need for {}?", "Why did my {} turn out badly?")),
    (
        MOODS,
        ", ",
        ("Write a song about {}.", "Write a short story about {}.", "Write a rhyme about {}."),
    ),
    (
        MORE_PROGRAMS,
        "; ",
        (*PROGRAM_FORMS, "Write a Python function that {}, and explain it."),
    ),
    (
        PROGRAMS,
        "; ",
        ("Write a Go function that {}.", "Write unit tests for a function that {}."),
    ),
    (MORE_THINGS, ", ", ("List five {}.", "List ten {}.", "Name a few {} and explain each.")),
    (
        MORE_PLACES,
        ", ",
        (
            "Plan a weekend in {}.",
            "What should I see in {}?",
            "What food should I try in {}?",
            "What is the best time of the year to visit {}?",
            "Describe {} to someone who has never been there.",
        ),
    ),
    (PLACES, ", ", ("What food should I try in {}?", "Write a postcard from {}.")),
    (MORE_FACTS, "; ", ("{}",)),
    (
        PASSAGES,
        " | ",
        (
            "Summarise in one sentence: {}",
            "Summarise this text: {}",
            "What are the key points? {}",
            "Rewrite this for children: {}",
            "Translate into French: {}",
            "Translate into Spanish: {}",
            "Write a headline for this text: {}",
            "Write three questions about this text and answer them: {}",
            "Is the tone of this text positive or negative, and why? {}",
            "Continue this text: {}",
        ),
    ),
    (FACTS, "; ", ("{}",)),
    (REQUESTS, "; ", ("{}",)),
)
"""What prompts are about, what parts it, and the forms that each part is filled into."""


def everyday_prompts() -> list[str]:
    """All prompts that the forms make, in no order."""
    filled = [
        form.format(part)
        for parts, parted_by, forms in ABOUT
        for part in parts.split(parted_by)
        for form in forms
    ]
    return filled + _sums(random.Random(1))


def _sums(chance: random.Random) -> list[str]:
    """Small problems with numbers."""
    prompts = []
    for _ in range(40):
        a, b, c = chance.randint(3, 90), chance.randint(2, 30), chance.randint(2, 12)
        prompts += [
            f"What is {a} times {b}?",
            f"A shop sells pens for {b} cents each. How much do {c} pens cost?",
            f"Anna has {a} apples and gives away {min(a - 1, b)}. How many are left?",
            f"A car uses {c} litres for 100 kilometres. How much does it need for {a * 10}?",
            f"Solve for x: {c}x + {b} = {c * b + b}.",
            f"What is {c * 5}% of {a * 10}?",
            f"The sides of a rectangle are {a} and {b} metres. What is its area?",
            f"If {c} workers need {b} days, how long do {2 * c} workers need?",
        ]
    return prompts


def main() -> None:
    prompts = sorted(set(everyday_prompts()))
    random.Random(7).shuffle(prompts)
    print("\n".join(prompts[: int(sys.argv[1]) if len(sys.argv) > 1 else None]))


if __name__ == "__main__":
    main()
