"""A training run from target to report. Each stage resumes where it was stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import msgspec
import torch

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.llama.placement import Placement
from eaglechat.engine.loading.machine import choose_threads, free_memory
from eaglechat.gguf.header import read_header
from eaglechat.hub.convert.draft import read_target
from eaglechat.hub.convert.writer import check_out
from eaglechat.train import corpus, preparation, report
from eaglechat.train.batches import Features
from eaglechat.train.corpus import Sample
from eaglechat.train.draft_file import Draft, Making, read_draft, save_draft
from eaglechat.train.features import FeatureReader, FeatureStore
from eaglechat.train.report import Foreseen, Measured, foresee
from eaglechat.train.selfchat import ChatWriter
from eaglechat.train.settings import PausedError, RunSettings, TrainingError
from eaglechat.train.target import (
    VocabularyMatrices,
    chats_side_by_side,
    check_layers,
    default_layers,
    working_copy,
)
from eaglechat.train.trainer import Figures, RecentFigures, State, Trainer, best_device, best_type
from eaglechat.wire.load_options import N_CTX_LEAST, LoadOptions


@dataclass(frozen=True)
class Progress:
    """How far a stage is, and a note about it."""

    stage: str
    done: float
    total: float
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """The draft that a run made, and how good it is."""

    out: Path
    size_bytes: int
    layers: tuple[int, ...]
    draft_vocabulary: int
    n_samples: int
    n_held_out: int
    state: State
    foreseen: Foreseen
    before: list[Measured]
    """The measurements of the draft to compare with; empty without one."""
    after: list[Measured]


class Run:
    """A training run."""

    def __init__(
        self,
        settings: RunSettings,
        on_progress: Callable[[Progress], None],
        paused: Callable[[], bool],
    ) -> None:
        """Check everything that can be checked before the work.

        Raises TrainingError, ConversionError, OSError.
        """
        self._settings = settings
        self._on_progress = on_progress
        self._paused = paused
        self._target = read_target(settings.target)
        self._matrices = VocabularyMatrices(self._target)
        check_out(settings.out)
        if settings.compare is not None and not settings.compare.is_file():
            raise TrainingError(f"the draft to compare with, {settings.compare}, does not exist")
        self._init = (
            read_draft(settings.init, self._target, self._matrices, settings.longest)
            if settings.init
            else None
        )
        self._layers = self._choose_layers()
        size, n_vocab = settings.draft_vocab, self._target.n_vocab
        if size is not None and size > n_vocab:
            raise TrainingError(
                f"a draft vocabulary of {size:,} tokens is larger than the vocabulary of "
                f"{self._target.path.name}, which has {n_vocab:,}"
            )
        settings.work.mkdir(parents=True, exist_ok=True)
        self._device = best_device()
        self._dtype = best_type(self._device)
        self._n_threads = settings.n_threads or choose_threads().count
        torch.set_num_threads(self._n_threads)

    def go(self) -> Outcome:
        """Do all stages. Raises PausedError, EngineError, ConversionError, OSError."""
        backend.start_backend(backend.LOG_ERRORS)
        with ExitStack() as stack:
            model = stack.enter_context(closing(self._open_target()))
            training, held_out = corpus.split(self._gather(model))
            reader = stack.enter_context(closing(self._reader(model)))
            features = self._features([*held_out, *training], reader)
            if not self._settings.recompute:
                # The rest of the run does not need the target, but its memory.
                stack.close()
            trainer, draft = self._prepare(training, features)
            self._train(trainer, training, features)
            chosen = report.report_samples(held_out, self._settings.report_prompts)
            foreseen = self._foresee(trainer, chosen, features)
        making = self._making(training, trainer.state, foreseen)
        self._save(trainer, draft, making)
        prompts = [report.prompt_of(sample, self._settings.report_tokens) for sample in chosen]
        earlier = self._settings.compare or self._settings.init
        return Outcome(
            out=self._settings.out,
            size_bytes=self._settings.out.stat().st_size,
            layers=self._layers,
            draft_vocabulary=len(draft.d2t),
            n_samples=len(training),
            n_held_out=len(held_out),
            state=trainer.state,
            foreseen=foreseen,
            before=self._measure(earlier, prompts, "measuring before") if earlier else [],
            after=self._measure(self._settings.out, prompts, "measuring"),
        )

    def _choose_layers(self) -> tuple[int, ...]:
        asked = self._settings.layers
        if self._init is not None:
            if asked is not None and asked != self._init.layers:
                raise TrainingError(
                    f"{self._settings.init} reads layers "
                    f"{', '.join(map(str, self._init.layers))}; training that goes on from it "
                    "cannot read others"
                )
            return self._init.layers
        layers = asked or default_layers(self._target)
        check_layers(layers, self._target)
        return layers

    def _open_target(self) -> Model:
        """The loaded target. Also decides how many chats it writes side by side."""
        placed = LoadOptions(n_gpu_layers=self._settings.n_gpu_layers)
        free = free_memory(placed, backend.devices())
        path = working_copy(
            self._target,
            self._settings.work,
            fast_bfloat16=self._dtype is torch.bfloat16,
            on_progress=lambda done, total: self._say("copying the target as BF16", done, total),
        )
        self._n_chats = chats_side_by_side(read_header(path), self._settings.longest, free)
        return Model(path, Placement(self._settings.n_gpu_layers))

    def _gather(self, model: Model) -> list[Sample]:
        """All different samples, in the order of their sources."""
        settings, longest = self._settings, self._settings.longest
        if settings.self_written_tokens or settings.prompts:
            self._write_chats(model)
        sources: list[Iterator[Sample]] = [
            corpus.read_chats(path, model, longest) for path in settings.chats
        ]
        if settings.self_written_tokens:
            sources.append(corpus.read_chats(self._own_chats, model, longest))
        sources += [
            corpus.read_chats(self._answers_to(path), model, longest) for path in settings.prompts
        ]
        if settings.history is not None:
            sources.append(corpus.read_history(settings.history, model, longest))
        sources += [corpus.read_text(path, model, longest) for path in settings.text]
        self._say("reading data", 0, 1)
        samples = []
        for sample in corpus.deduplicated(one for source in sources for one in source):
            if self._paused():
                raise PausedError
            samples.append(sample)
        return samples

    @property
    def _own_chats(self) -> Path:
        return self._settings.work / f"chats{self._manner}.jsonl"

    def _answers_to(self, prompts: Path) -> Path:
        """The file of the target's answers to these prompts, which the content of `prompts` names:
        the numbers in it are those of the prompts."""
        digest = hashlib.blake2b(prompts.read_bytes(), digest_size=8).hexdigest()
        return self._settings.work / f"answers-{digest}{self._manner}.jsonl"

    @property
    def _manner(self) -> str:
        """A part of file names, so that chats with and without thinking are kept apart."""
        enabled = self._settings.thinking.enabled
        return "" if enabled is None else "-thinking" if enabled else "-no-thinking"

    def _write_chats(self, model: Model) -> None:
        settings = self._settings
        store = None if settings.recompute else self._store
        # Read before hours of writing, to find out early whether a file is wrong.
        given = [
            (
                self._answers_to(path),
                corpus.read_prompts(path, model, settings.longest, settings.thinking),
            )
            for path in settings.prompts
        ]
        writer = ChatWriter(
            model,
            n_side_by_side=self._n_chats,
            longest=settings.longest,
            n_threads=self._n_threads,
            seed=settings.recipe.seed,
            layers=self._layers if store else (),
            thinking=settings.thinking,
        )
        with closing(writer):
            if settings.self_written_tokens:
                writer.write(
                    self._own_chats,
                    settings.self_written_tokens,
                    lambda size: self._say("writing chats", size, settings.self_written_tokens),
                    self._paused,
                    store,
                )
            for answers, prompts in given:
                show = partial(self._say, "answering prompts", total=len(prompts))
                writer.answer(answers, prompts, show, self._paused, store)

    def _reader(self, model: Model) -> FeatureReader:
        return FeatureReader(
            model, self._layers, longest=self._settings.longest, n_threads=self._n_threads
        )

    def _features(self, samples: Sequence[Sample], reader: FeatureReader) -> Features:
        if self._settings.recompute:
            return reader
        store = self._store
        total = sum(len(sample.tokens) for sample in samples)
        done = sum(len(sample.tokens) for sample in samples if sample in store)
        store.check_space(total - done)

        def advance(n_rows: int) -> None:
            nonlocal done
            done += n_rows
            self._say("reading features", done, total)

        store.fill(samples, reader, advance, self._paused)
        return store

    @cached_property
    def _store(self) -> FeatureStore:
        layers = "-".join(map(str, self._layers))
        return FeatureStore(self._settings.work / f"features-{layers}", self._target.n_embd)

    def _prepare(self, training: Sequence[Sample], features: Features) -> tuple[Trainer, Draft]:
        """The trainer, resumed from the last checkpoint, and the draft that it began with."""
        settings = self._settings
        self._say("preparing", 0, 1)
        scales = preparation.measure_scales(training, features, self._init)
        if self._init is None:
            draft = preparation.new_draft(
                self._target, self._matrices, self._layers, training, scales,
                n_draft_vocab=settings.draft_vocab, seed=settings.recipe.seed,
            )  # fmt: skip
        elif settings.draft_vocab is None:
            draft = self._init
        else:
            d2t = corpus.most_frequent(training, settings.draft_vocab, self._target.n_vocab)
            draft = preparation.with_vocabulary(self._init, d2t, self._matrices)
        lesson = preparation.lesson_for(
            draft,
            self._target,
            self._matrices,
            scales,
            settings.recipe,
            dtype=self._dtype,
            device=self._device,
        )
        trainer = Trainer(lesson, preparation.to_training(draft, lesson))
        identity = preparation.identity_of(
            self._target,
            draft,
            training,
            recipe=settings.recipe,
            init=settings.init,
            dtype=self._dtype,
        )
        preparation.resume(trainer, settings.work, identity)
        return trainer, draft

    def _train(self, trainer: Trainer, training: Sequence[Sample], features: Features) -> None:
        settings = self._settings
        recent = RecentFigures()
        log = settings.work / "training.jsonl"

        def show(state: State, figures: Figures) -> None:
            recent.add(state, figures)
            share = settings.budget.share(state.tokens, state.seconds)
            self._say("training", share, 1.0, recent.note())
            with log.open("ab") as file:
                line = {"tokens": state.tokens, "seconds": state.seconds, "batch": figures}
                file.write(msgspec.json.encode(line) + b"\n")

        trainer.train(
            training,
            features,
            budget=settings.budget,
            checkpoint=preparation.checkpoint_in(settings.work),
            on_batch=show,
            paused=self._paused,
        )

    def _foresee(self, trainer: Trainer, samples: Sequence[Sample], features: Features) -> Foreseen:
        """What training predicts for the samples of the report."""
        self._say("trying held-out samples", 0, 1)
        foreseen = foresee(
            trainer.lesson,
            trainer.weights,
            samples,
            features,
            n_draft_max=max(report.LENGTHS),
            max_tokens=self._settings.report_tokens,
            stopped=self._paused,
        )
        if self._paused():
            raise PausedError
        return foreseen

    def _making(self, training: Sequence[Sample], state: State, foreseen: Foreseen) -> Making:
        chats = sum(sample.is_chat for sample in training)
        n_tokens = sum(len(sample.tokens) for sample in training)
        sources = [f"{chats:,} chats"] if chats else []
        if len(training) > chats:
            sources.append(f"{len(training) - chats:,} pieces of text")
        return Making(
            name=self._settings.name or f"{self._target.name} EAGLE-3",
            data=f"{' and '.join(sources)}, {n_tokens:,} tokens",
            n_samples=len(training),
            n_tokens_seen=state.tokens,
            seconds=state.seconds,
            unrolled_steps=self._settings.recipe.steps,
            predicted=foreseen.per_position,
        )

    def _save(self, trainer: Trainer, draft: Draft, making: Making) -> None:
        trained = preparation.from_training(trainer.weights, trainer.lesson)
        save_draft(
            replace(draft, weights=trained),
            self._target,
            making,
            self._settings.out,
            type=self._settings.type,
            head_type=self._settings.head_type,
            progress=lambda step: self._say("writing the draft", step.done, step.total),
        )

    def _measure(self, draft: Path, prompts: Sequence[report.Prompt], stage: str) -> list[Measured]:
        settings = self._settings
        total = len(prompts) * (len(report.LENGTHS) + 1)
        options = LoadOptions(
            n_ctx=max(N_CTX_LEAST, settings.longest + settings.report_tokens),
            n_threads=self._n_threads,
            n_gpu_layers=settings.n_gpu_layers,
        )
        return report.measure(
            settings.target,
            draft,
            prompts,
            options=options,
            on_reply=lambda done: self._say(stage, done, total),
            paused=self._paused,
        )

    def _say(self, stage: str, done: float, total: float, note: str = "") -> None:
        self._on_progress(Progress(stage, done, total, note))
