"""A training run from target to report. Each stage resumes where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch

from eaglechat import paths
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.llama.placement import free_memory
from eaglechat.hub.convert.target import read_target
from eaglechat.hub.convert.writer import check_out
from eaglechat.machine import choose_threads
from eaglechat.paths import write_atomically
from eaglechat.train import corpus, preparation, report, written
from eaglechat.train.corpus import Sample
from eaglechat.train.draft_file import TrainableDraft, read_draft, save_draft
from eaglechat.train.features import FeatureReader, FeatureStore
from eaglechat.train.report import MeasuredDraft
from eaglechat.train.selfchat import ChatWriter
from eaglechat.train.settings import PausedError, RunSettings, TrainingError
from eaglechat.train.target import (
    VocabularyMatrices,
    chats_side_by_side,
    check_layers,
    default_layers,
    fingerprint,
)
from eaglechat.train.trainer import Identity, Trainer, TrainingState, best_device, best_type
from eaglechat.wire.protocol import N_CTX_LEAST, LoadOptions

OnProgress = Callable[[str, float, float, str], None]
"""Told of each step: the stage, how far it is and of how much, and a note about it."""


@dataclass(frozen=True)
class TrainingOutcome:
    """The draft that a run made, and how good it is."""

    out: Path
    size_bytes: int
    layers: tuple[int, ...]
    draft_vocabulary: int
    n_samples: int
    n_held_out: int
    n_prompts: int
    """The held-out prompts that the drafts were measured with."""
    state: TrainingState
    before: list[MeasuredDraft]
    """Of the draft that training began with; empty without one."""
    after: list[MeasuredDraft]


class TrainingRun:
    def __init__(
        self,
        settings: RunSettings,
        on_progress: OnProgress,
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
        self._fingerprint = fingerprint(self._target)
        check_out(settings.out)
        written.check(settings.work, (settings.out, settings.report))
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
        self._checkpoint = settings.work / "checkpoint.pt"
        if settings.restart:
            self._checkpoint.unlink(missing_ok=True)
        self._device = best_device()
        self._dtype = best_type(self._device)
        self._n_threads = settings.n_threads or choose_threads().count
        torch.set_num_threads(self._n_threads)

    def go(self) -> TrainingOutcome:
        """Do all stages. Raises PausedError, EngineError, ConversionError, OSError."""
        backend.start_backend(backend.LOG_ERRORS)
        settings = self._settings
        with closing(self._open_target()) as model:
            training, held_out = corpus.split(self._gather(model))
            features = self._filled_store([*held_out, *training], model)
        # The rest of the run does not need the target, but its memory.
        trainer, draft = self._prepare(training, features)
        self._train(trainer, training, features)
        self._save(trainer, draft, training)
        chosen = report.report_samples(held_out, settings.report_prompts)
        return TrainingOutcome(
            out=settings.out,
            size_bytes=settings.out.stat().st_size,
            layers=self._layers,
            draft_vocabulary=len(draft.d2t),
            n_samples=len(training),
            n_held_out=len(held_out),
            n_prompts=len(chosen),
            state=trainer.state,
            before=self._measure(settings.init, chosen, f"measuring {settings.init.name}")
            if settings.init
            else [],
            after=self._measure(settings.out, chosen, "measuring"),
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
        self._n_chats = chats_side_by_side(self._target, self._settings.longest, free)
        return Model(self._target.path, placed)

    def _gather(self, model: Model) -> list[Sample]:
        """All different samples, in the order of their sources."""
        settings, longest = self._settings, self._settings.longest
        if settings.self_written_tokens or settings.prompts:
            self._write_chats(model)
        sources: list[Iterator[Sample]] = [
            corpus.read_chats(path, model, longest) for path in settings.chats
        ]
        if settings.self_written_tokens:
            sources.append(corpus.read_chats(self._written(), model, longest))
        sources += [
            corpus.read_chats(self._written(path), model, longest) for path in settings.prompts
        ]
        if settings.from_history:
            sources.append(corpus.read_history(paths.chats_file(), model, longest))
        sources += [corpus.read_text(path, model, longest) for path in settings.text]
        self._say("reading data", 0, 1)
        samples = []
        for sample in corpus.deduplicated(one for source in sources for one in source):
            if self._paused():
                raise PausedError
            samples.append(sample)
        return samples

    def _written(self, prompts: Path | None = None) -> Path:
        """The file of the chats that the target writes itself, or of its answers to `prompts`.

        Chats with and without thinking are kept apart. The content of `prompts` is part of the
        name, because chats in the file are numbered as the prompts are.
        """
        enabled = self._settings.thinking.enabled
        thinking = "" if enabled is None else "-thinking" if enabled else "-no-thinking"
        if prompts is None:
            return self._settings.work / f"chats{thinking}.jsonl"
        return (
            self._settings.work
            / f"answers-{corpus.digest_of(prompts.read_bytes())}{thinking}.jsonl"
        )

    def _write_chats(self, model: Model) -> None:
        settings = self._settings
        # Read before hours of writing, to find out early whether a file is wrong.
        given = [
            (
                self._written(path),
                corpus.read_prompts(path, model, settings.longest, settings.thinking),
            )
            for path in settings.prompts
        ]
        writer = ChatWriter(
            model,
            self._store,
            n_side_by_side=self._n_chats,
            longest=settings.longest,
            n_threads=self._n_threads,
            seed=settings.recipe.seed,
            layers=self._layers,
            thinking=settings.thinking,
        )
        with closing(writer):
            if settings.self_written_tokens:
                writer.write(
                    self._written(),
                    settings.self_written_tokens,
                    lambda size: self._say("writing chats", size, settings.self_written_tokens),
                    self._paused,
                )
            for answers, prompts in given:
                show = partial(self._say, "answering prompts", total=len(prompts))
                writer.answer(answers, prompts, show, self._paused)

    def _filled_store(self, samples: Sequence[Sample], model: Model) -> FeatureStore:
        """The store, with the features of all samples."""
        store = self._store
        total = sum(len(sample.tokens) for sample in samples)
        done = sum(len(sample.tokens) for sample in samples if sample in store)
        store.check_space(total - done)

        def advance(n_rows: int) -> None:
            nonlocal done
            done += n_rows
            self._say("reading features", done, total)

        reader = FeatureReader(
            model, self._layers, longest=self._settings.longest, n_threads=self._n_threads
        )
        with closing(reader):
            store.fill(samples, reader, advance, self._paused)
        return store

    @cached_property
    def _store(self) -> FeatureStore:
        layers = "-".join(map(str, self._layers))
        folder = self._settings.work / f"features-{self._fingerprint}-{layers}"
        return FeatureStore(folder, self._target.n_embd)

    def _prepare(
        self, training: Sequence[Sample], features: FeatureStore
    ) -> tuple[Trainer, TrainableDraft]:
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
        setup = preparation.setup_for(
            draft,
            self._target,
            self._matrices,
            scales,
            settings.recipe,
            dtype=self._dtype,
            device=self._device,
        )
        identity = Identity(
            target=self._fingerprint,
            layers=draft.layers,
            draft_vocabulary=corpus.digest_of(draft.d2t.tobytes()),
            data=corpus.digest_of("".join(sample.digest for sample in training).encode()),
            recipe=settings.recipe,
            init=corpus.digest_of(settings.init.read_bytes()) if settings.init is not None else "",
            precision=str(self._dtype).removeprefix("torch."),
        )
        trainer = Trainer(setup, preparation.to_training(draft, setup), identity)
        trainer.resume(self._checkpoint)
        return trainer, draft

    def _train(self, trainer: Trainer, training: Sequence[Sample], features: FeatureStore) -> None:
        trainer.train(
            training,
            features,
            budget=self._settings.budget,
            checkpoint=self._checkpoint,
            on_batch=lambda share, note: self._say("training", share, 1.0, note),
            paused=self._paused,
        )

    def _save(self, trainer: Trainer, draft: TrainableDraft, training: Sequence[Sample]) -> None:
        settings = self._settings
        chats = sum(sample.is_chat for sample in training)
        sources = [f"{chats:,} chats"] if chats else []
        if len(training) > chats:
            sources.append(f"{len(training) - chats:,} pieces of text")
        n_tokens = sum(len(sample.tokens) for sample in training)
        trained = preparation.from_training(trainer.weights, trainer.setup)
        save_draft(
            replace(draft, weights=trained),
            self._target,
            settings.out,
            about={
                "general.name": settings.name or f"{self._target.name} EAGLE-3",
                "eaglechat.training.data": f"{' and '.join(sources)}, {n_tokens:,} tokens",
                "eaglechat.training.samples": len(training),
                "eaglechat.training.tokens_seen": trainer.state.tokens,
                "eaglechat.training.seconds": trainer.state.seconds,
                "eaglechat.training.unrolled_steps": settings.recipe.steps,
            },
            type=settings.type,
            head_type=settings.head_type,
            progress=partial(self._say, "writing the draft"),
        )
        written.note(settings.work, settings.out)

    def write(self, file: Path, content: bytes) -> None:
        """Write a file that belongs to the draft; the next run with this folder may replace it."""
        write_atomically(file, content)
        written.note(self._settings.work, file)

    def _measure(self, draft: Path, samples: Sequence[Sample], stage: str) -> list[MeasuredDraft]:
        settings = self._settings
        options = LoadOptions(
            n_ctx=max(N_CTX_LEAST, settings.longest + settings.report_tokens),
            n_threads=self._n_threads,
            n_gpu_layers=settings.n_gpu_layers,
        )
        return report.measure(
            settings.target,
            draft,
            samples,
            settings.report_tokens,
            options=options,
            on_reply=partial(self._say, stage),
            paused=self._paused,
        )

    def _say(self, stage: str, done: float, total: float, note: str = "") -> None:
        self._on_progress(stage, done, total, note)
