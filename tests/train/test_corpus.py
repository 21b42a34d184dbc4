"""What is learnt from: chats, text, the target's own writing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.gguf.memory import memory_need
from eaglechat.hub.convert.target import read_target
from eaglechat.train import corpus
from eaglechat.train.corpus import Sample
from eaglechat.train.features import FeatureReader, FeatureStore
from eaglechat.train.selfchat import TEMPERATURES, ChatWriter, UserSlot, written_chats
from eaglechat.train.settings import PausedError, TrainingError
from eaglechat.train.target import chats_side_by_side
from eaglechat.wire.protocol import Thinking
from tests import tiny
from tests.chat.headless import store_in
from tests.chat.home import write_chat


def spelled(model: Model, tokens: object) -> str:
    return b"".join(model.spelled(int(token)) for token in np.asarray(tokens)).decode()


def test_a_conversation_teaches_in_its_replies_alone(tiny_target: Model, tmp_path: Path) -> None:
    """The tiny template writes each message and a space, then an x where the reply begins."""
    turns = [("user", "ab"), ("assistant", "cd"), ("user", "ef"), ("assistant", "gh")]
    messages = [{"role": role, "content": content} for role, content in turns]
    file = tmp_path / "chats.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps({"messages": messages}).encode()))

    samples = list(corpus.read_chats(file, tiny_target, 100))

    taught = [spelled(tiny_target, s.tokens[start:end]) for s in samples for start, end in s.spans]
    assert taught == ["cd<end>", "gh<end>"]
    assert spelled(tiny_target, samples[-1].tokens).endswith("ef xgh<end>")


def test_long_samples_are_cut_and_those_without_a_reply_left_out(
    tiny_target: Model, tmp_path: Path
) -> None:
    file = tmp_path / "chats.jsonl"
    lines = [{"t": list(range(20)), "a": 5, "temp": 0.7}, {"t": list(range(20)), "a": 12}]
    file.write_text("\n".join(map(json.dumps, lines)))

    (sample,) = corpus.read_chats(file, tiny_target, 10)

    assert sample.tokens.tolist() == list(range(10))
    assert sample.spans == ((5, 10),)
    assert sample.temperature == 0.7


def test_history_is_the_apps_own_chats(tiny_target: Model, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    write_chat(store, "ab", "cd")

    (sample,) = corpus.read_history(store.file, tiny_target, 100)

    assert spelled(tiny_target, sample.tokens).endswith("ab xcd<end>")
    with pytest.raises(TrainingError, match="holds no chat"):
        list(corpus.read_history(tmp_path / "nothing", tiny_target, 100))


def test_text_teaches_throughout(tiny_target: Model, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("abc def " * 10)

    samples = list(corpus.read_text(file, tiny_target, 30))

    assert [len(sample.tokens) for sample in samples] == [30, 30, 23]
    assert "".join(spelled(tiny_target, s.tokens[1:]) for s in samples) == "abc def " * 10
    assert {int(sample.tokens[0]) for sample in samples} == {tiny_target.bos}
    assert all(sample.spans == ((0, len(sample.tokens)),) for sample in samples)


def test_what_is_held_out_stays_held_out_whatever_is_added() -> None:
    def chat(prompt: int, reply: int) -> Sample:
        tokens = np.array([prompt % 251, prompt // 251, 7, reply, reply + 1], dtype=np.int32)
        return Sample(tokens, ((3, 5),))

    first = [chat(prompt, 1) for prompt in range(1000)]
    more = [chat(prompt, 2) for prompt in range(1500)]

    _, held_out = corpus.split(first)
    training, held_out_later = corpus.split([*first, *more, *more[:10]])

    assert 10 < len(held_out) < 60
    assert {s.digest for s in held_out} <= {s.digest for s in held_out_later}
    # All replies to a prompt are on the same side.
    prompts = {tuple(s.tokens[:3].tolist()) for s in held_out_later}
    assert not prompts & {tuple(s.tokens[:3].tolist()) for s in training}
    assert len(list(corpus.deduplicated([*first, *more, *more[:10]]))) == 2500


def test_the_draft_vocabulary_is_what_the_target_writes_most() -> None:
    tokens = np.array([9, 9, 9, 5, 5, 3, 3, 3, 8], dtype=np.int32)

    assert corpus.most_frequent([Sample(tokens, ((3, 9),))], 3, 12).tolist() == [3, 5, 8]
    # What was never seen fills up from the lowest ids.
    assert corpus.most_frequent([Sample(tokens, ((3, 9),))], 5, 12).tolist() == [0, 1, 3, 5, 8]


LAYERS = (1, 2, 3)


def chat_writer(model: Model, folder: Path, **how: Any) -> ChatWriter:
    """Writes chats of at most 48 tokens; their features go to `folder`."""
    store = FeatureStore(folder / "features", model.n_embd)
    sizes = {"n_side_by_side": 4, "longest": 48, "n_threads": 1}
    return ChatWriter(model, store, layers=LAYERS, **sizes, **how)


def test_the_target_writes_chats_by_its_own_template(tiny_target: Model, tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    writer = chat_writer(tiny_target, tmp_path)

    told: list[int] = []
    writer.write(file, 1500, told.append, lambda: False)
    writer.close()

    assert told == sorted(told)
    assert (told[0], told[-1]) == (0, 1500)
    slot = UserSlot(tiny_target)
    chats = written_chats(file)
    assert len({chat.n for chat in chats}) == len(chats) > 20
    assert {chat.temp for chat in chats} == set(TEMPERATURES)
    for chat in chats:
        assert chat.t[: len(slot.before)] == slot.before
        assert chat.t[chat.a - len(slot.after) : chat.a] == slot.after
        assert len(slot.before) + len(slot.after) < chat.a < len(chat.t) <= 48


def test_the_target_answers_each_prompt_once_also_after_a_pause(
    tiny_target: Model, tmp_path: Path
) -> None:
    listed, file = tmp_path / "prompts.txt", tmp_path / "answers.jsonl"
    listed.write_text("".join(f"{chr(97 + i)} cat\n\n" for i in range(10)) + "a cat\n" + "a" * 60)
    prompts = corpus.read_prompts(listed, tiny_target, 48)
    assert len(prompts) == 10
    assert spelled(tiny_target, prompts[1]).endswith("b cat x")
    store = FeatureStore(tmp_path / "features", tiny_target.n_embd)
    writer = chat_writer(tiny_target, tmp_path)
    answered: list[int] = []
    pauses = iter([False] * 70 + [True])

    with pytest.raises(PausedError):
        writer.answer(file, prompts, answered.append, lambda: next(pauses))
    n_before = answered[-1]
    writer.answer(file, prompts, answered.append, lambda: False)
    writer.answer(file, prompts, answered.append, lambda: pytest.fail("all are answered"))
    writer.close()

    assert 0 < n_before < 10
    assert answered[-1] == 10
    chats = written_chats(file)
    assert {chat.n for chat in chats} >= set(range(10))
    for chat in chats:
        assert tuple(chat.t[: chat.a]) == prompts[chat.n % 10]
        assert chat.a < len(chat.t) <= 48
    assert all(s in store for s in corpus.read_chats(file, tiny_target, 48))


def test_chats_are_written_with_and_without_thinking(tmp_path: Path) -> None:
    switch = "{% if add_generation_prompt and not enable_thinking %}{{ 'z' }}{% endif %}"
    target = tiny.write_target(tmp_path / "target.gguf", template=tiny.TEMPLATE + switch)
    listed = tmp_path / "prompts.txt"
    listed.write_text("a cat")
    begun = {}
    backend.start_backend(backend.LOG_ERRORS)
    with Model(target) as model:
        for enabled in (None, True, False):
            thinking = Thinking(enabled=enabled)
            (prompt,) = corpus.read_prompts(listed, model, 48, thinking)
            writer = chat_writer(model, tmp_path, thinking=thinking)
            writer.write(tmp_path / f"{enabled}.jsonl", 100, lambda _: None, lambda: False)
            writer.close()
            chats = written_chats(tmp_path / f"{enabled}.jsonl")
            begun[enabled] = {spelled(model, chat.t[: chat.a])[-1] for chat in chats}
            begun[enabled].add(spelled(model, prompt)[-1])

    assert begun == {None: {"x"}, True: {"x"}, False: {"z"}}


def test_prompts_of_several_lines_are_written_as_those_of_the_bench(
    tiny_target: Model, tmp_path: Path
) -> None:
    listed = tmp_path / "prompts.txt"
    listed.write_text("\n=== one\na\nb\n\n=== two\nc\n")
    prompts = corpus.read_prompts(listed, tiny_target, 48)
    assert [spelled(tiny_target, prompt)[-3:] for prompt in prompts] == ["b x", "c x"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n \n", "holds no prompts"),
        ("a" * 60, "leave no room for replies within 48 tokens; raise --longest"),
        ("=== one\n=== two\na", "the prompt 'one' is empty"),
    ],
)
def test_a_file_without_prompts_to_answer_is_refused(
    tiny_target: Model, tmp_path: Path, text: str, why: str
) -> None:
    listed = tmp_path / "prompts.txt"
    listed.write_text(text)
    with pytest.raises(TrainingError, match=why):
        corpus.read_prompts(listed, tiny_target, 48)


def test_another_seed_writes_other_chats(tiny_target: Model, tmp_path: Path) -> None:
    written = []
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        writer = chat_writer(tiny_target, tmp_path, seed=seed)
        writer.write(tmp_path / name, 300, lambda _: None, lambda: False)
        writer.close()
        written.append({tuple(chat.t) for chat in written_chats(tmp_path / name)})
    first, again, other = written
    assert first == again
    # The tiny target knows few texts: some are written twice.
    assert len(first & other) < len(first) / 4


def test_writing_goes_on_after_a_crash_in_the_middle_of_a_line(
    tiny_target: Model, tmp_path: Path
) -> None:
    file = tmp_path / "chats.jsonl"
    writer = chat_writer(tiny_target, tmp_path)
    writer.write(file, 300, lambda _: None, lambda: False)
    whole = written_chats(file)
    file.write_bytes(file.read_bytes()[:-20])

    with pytest.raises(PausedError):
        writer.write(file, 600, lambda _: None, lambda: True)
    writer.write(file, 600, lambda _: None, lambda: False)
    writer.close()

    chats = written_chats(file)
    assert chats[: len(whole) - 1] == whole[:-1]
    assert len({chat.n for chat in chats}) == len(chats)
    assert sum(len(chat.t) for chat in chats) >= 600


def test_features_are_taken_down_while_chats_are_written(
    tiny_target: Model, tmp_path: Path
) -> None:
    file = tmp_path / "chats.jsonl"
    writer = chat_writer(tiny_target, tmp_path)
    pauses = iter([False] * 60 + [True])

    with pytest.raises(PausedError):
        writer.write(file, 900, lambda _: None, lambda: next(pauses))
    n_before = len(written_chats(file))
    writer.write(file, 900, lambda _: None, lambda: False)
    writer.close()

    samples = list(corpus.deduplicated(corpus.read_chats(file, tiny_target, 48)))
    assert 0 < n_before < len(written_chats(file))
    # What the file holds is stored, and the target's own reading of it says the same.
    reopened = FeatureStore(tmp_path / "features", tiny_target.n_embd)
    reader = FeatureReader(tiny_target, LAYERS, longest=48, n_threads=1)
    for sample, rows in reader.read(samples):
        np.testing.assert_allclose(reopened.rows(sample), rows, atol=2e-2)
    reader.close()


def test_as_many_chats_are_written_at_once_as_the_free_memory_holds(
    tiny_files: tuple[Path, Path],
) -> None:
    target = read_target(tiny_files[0])
    one = memory_need(target, None, 1024)
    most_of = 4 / 3
    for_ten = most_of * (one.total + 9.5 * one.target_kv)

    assert chats_side_by_side(target, 1024, int(for_ten)) == 10
    assert chats_side_by_side(target, 1024, 1 << 50) == 64
    assert chats_side_by_side(target, 1024, 0) == 4


def test_features_that_are_stored_are_not_read_again(tiny_target: Model, tmp_path: Path) -> None:
    samples = [
        Sample(
            np.random.default_rng(i).integers(0, 26, 700 if i == 1 else 30).astype(np.int32),
            ((0, 30),),
        )
        for i in range(4)
    ]
    reader = FeatureReader(tiny_target, LAYERS, longest=700, n_threads=1)
    rows_read: list[int] = []
    store = FeatureStore(tmp_path, tiny_target.n_embd)
    store.fill(samples[:3], reader, rows_read.append, lambda: False)

    store = FeatureStore(tmp_path, tiny_target.n_embd)
    store.fill(samples, reader, rows_read.append, lambda: False)

    assert rows_read == [30, 700, 30, 30]
    # Neighbours in a batch, and the cut of a long sample into batches, change nothing.
    for sample in samples:
        ((_, alone),) = reader.read([sample])
        np.testing.assert_allclose(store.rows(sample), alone, atol=2e-2)
    reader.close()
