"""What auto and a fixed length accept behind a long prompt, with the built-in pair.

    python -m tests.measure.measure_long_prompts [--tokens 4000] [--reply 300] [--rows] [--always]

Asks for summaries of pages of this project's documentation. Auto should accept what a chain of
three tokens does: both draw on the same prompt. With `--always` auto drafts three tokens in every
round, so that all rounds compare, and not only the few that auto chose to draft. `--rows` also
times how long the draft takes to take in rows that wait, by how many there are.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from eaglechat.engine.auto.auto_length import AutoLength
from eaglechat.engine.auto.draft_plan import Choice, DraftPlan
from eaglechat.engine.drafters.eagle3.drafter import Eagle3Drafter
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.gguf.preflight import check_pair
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import AUTO, Message, Sampling, Speculation
from eaglechat.wire.records import AutoDraft, AutoReason, Round

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("hub.md", "writing.md", "how-it-works.md", "training.md")
N_CTX = 8192
CONFIGURATIONS = {
    "auto": Speculation(n_draft_max=AUTO, shape="chain", ngram=False),
    "3": Speculation(n_draft_max=3, shape="chain", ngram=False),
}


def always_three(_self: AutoLength, _past: int, _waiting: int, choice: Choice) -> DraftPlan:
    n = min(3, choice.n_most)
    state = AutoDraft(n, AutoReason.BEST, (), 0.0, 0.0, 0.0)
    return DraftPlan(n, worth=(0.0,) * n, by_probability=(1.0,) * 10, state=state)


def open_pair() -> LoadedPair:
    files = builtin_pair()
    headers = check_pair(files.target, files.draft)
    return LoadedPair(headers, LoadOptions(n_ctx=N_CTX))


def draft_context(pair: LoadedPair) -> Context:
    contexts = [one for one in pair._owned if isinstance(one, Context)]
    return next(one for one in contexts if one.model.target_layers)


def prompts(pair: LoadedPair, n_tokens: int) -> list[Sequence[int]]:
    """For each page, a question about a text that begins with it and is so long."""
    texts = [(DOCS / page).read_text() for page in PAGES]
    made = []
    for index in range(len(texts)):
        text = "\n\n".join(texts[index:] + texts[:index])
        words = text.split(" ")
        low, high = 0, len(words)
        while low < high:
            middle = (low + high + 1) // 2
            fits = len(_asked(pair, " ".join(words[:middle]))) <= n_tokens
            low, high = (middle, high) if fits else (low, middle - 1)
        made.append(_asked(pair, " ".join(words[:low])))
    return made


def _asked(pair: LoadedPair, text: str) -> Sequence[int]:
    content = f"{text}\n\nWrite a long summary of the text above."
    return pair.prompter.prompt((Message(role="user", content=content),))


def compare(n_tokens: int, n_reply: int) -> None:
    for name, speculation in CONFIGURATIONS.items():
        pair = open_pair()
        tested = accepted = n_drafts = n_rounds = n_written = 0
        ms = 0.0
        for prompt in prompts(pair, n_tokens):
            live, sampling = Live(speculation, 0.0), Sampling(temperature=0.0, repeat_penalty=1.1)
            events = pair.generator.reply(prompt, sampling, live, seed=0, max_tokens=n_reply)
            rounds = [event for event in events if isinstance(event, Round)]
            drafting = [round_ for round_ in rounds if round_.drafted]
            n_rounds += len(rounds)
            n_drafts += len(drafting)
            n_written += sum(len(round_.tokens) for round_ in rounds)
            tested += sum(round_.n_tested for round_ in drafting)
            accepted += sum(round_.n_accepted for round_ in drafting)
            ms += sum(round_.timings.total_ms for round_ in rounds)
            draft = draft_context(pair)
            first, last = draft.first_position(0), draft.last_position(0)
            print(f"  {name}: prompt of {len(prompt):,}; the draft holds {first:,} to {last:,}")
        pair.close()
        print(
            f"{name}: accepted {accepted} of {tested} tested ({accepted / max(1, tested):.1%}), "
            f"{accepted / max(1, n_drafts):.2f} a draft; {n_drafts} of {n_rounds} rounds drafted; "
            f"{n_written / ms * 1000:.1f} tokens/s"
        )


def time_rows() -> None:
    pair = open_pair()
    target = next(
        one for one in pair._owned if isinstance(one, Context) and not one.model.target_layers
    )
    drafter = next(one for one in pair._owned if isinstance(one, Eagle3Drafter))
    with Batch(target) as batch:
        plain = []
        for n_rows in (32, 64, 128, 256, 511):
            took = []
            for _ in range(7):
                drafter.resume((), to_draft=False)
                target.forget(0, 0)
                batch.clear()
                batch.add_tokens([5] * (n_rows + 1), 0, 0, output=False)
                target.decode(batch)
                drafter.see(batch)
                started = time.perf_counter()
                drafter.take_in()
                took.append((time.perf_counter() - started) * 1000.0 / n_rows)
                batch.clear()
                batch.add_tokens([5], n_rows + 1, 0, output=True)
                started = time.perf_counter()
                target.decode(batch)
                plain.append((time.perf_counter() - started) * 1000.0)
            print(f"{n_rows} rows: {min(took):.4f} ms a row (median {median(took):.4f})")
        print(f"a plain token: {median(plain):.2f} ms")
    pair.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--reply", type=int, default=300)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--always", action="store_true")
    arguments = parser.parse_args()
    backend.start_backend(backend.LOG_ERRORS)
    if arguments.always:
        AutoLength.expects_to_draft = lambda *_: True  # type: ignore[method-assign]
        AutoLength.choose = always_three  # type: ignore[assignment, method-assign]
        AutoLength.observe = lambda *_: None  # type: ignore[assignment, method-assign]
    if arguments.rows:
        time_rows()
    compare(arguments.tokens, arguments.reply)


if __name__ == "__main__":
    main()
