"""A loaded pair: a target, with or without a draft, that writes replies."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from eaglechat.engine.auto.calibration import NOT_CALIBRATED, calibrate
from eaglechat.engine.drafters.eagle3.drafter import Eagle3Drafter
from eaglechat.engine.drafters.eagle3.norms import Norms, norms_of
from eaglechat.engine.drafters.ngram import NgramDrafter
from eaglechat.engine.generation.generator import Generator
from eaglechat.engine.generation.prompt import Prompter
from eaglechat.engine.llama import backend, rpc
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.placement import Placement, draft_placement, target_placement
from eaglechat.engine.loading.machine import choose_threads, free_memory
from eaglechat.engine.templates import sandbox
from eaglechat.gguf.header import GGUFHeader, model_info
from eaglechat.gguf.memory import default_context
from eaglechat.gguf.preflight import DRAFT_WINDOW, check_kv_type
from eaglechat.wire.errors import LoadCancelledError, ModelLoadError, SettingsError
from eaglechat.wire.load_options import N_CTX_LEAST, LeaveOut, LoadOptions
from eaglechat.wire.protocol import ModelInfo, PairInfo, RecommendedSampling
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

N_ROLLBACK = 8
"""How many snapshots of a recurrent state llama.cpp keeps, and so the longest draft for such a
target. Each is as large as the state."""

_A_FEW = 4
"""Rows of the second warm-up: llama.cpp's kernels for several rows differ from those for one."""

_DRAFT_UBATCH = 128
"""The draft's logits buffer has this many rows."""

Progress = Callable[[str, float], bool]
"""Gets the stage and the fraction of the whole load that is done; False stops the load."""


class LoadedPair:
    """A target with or without a draft. Close it to free everything."""

    def __init__(
        self,
        headers: tuple[GGUFHeader, GGUFHeader | None],
        options: LoadOptions,
        progress: Progress = lambda _stage, _fraction: True,
        leave_out: tuple[LeaveOut, ...] | None = None,
    ) -> None:
        """Load the models of these headers, which `preflight.check_pair` has accepted.

        `leave_out` is what llama.cpp does without; None for what this process leaves out.

        Raises ModelLoadError, InitError, LoadCancelledError, PromptError (no valid template).
        """
        started = time.perf_counter()
        self._owned: list[Model | Context | Eagle3Drafter | Generator] = []
        self._leave_out = leave_out
        try:
            self._load(headers, options, _Progress(headers, progress))
        except BaseException:
            self.close()
            raise
        self._load_ms = (time.perf_counter() - started) * 1000.0

    def _load(
        self, headers: tuple[GGUFHeader, GGUFHeader | None], options: LoadOptions, report: _Progress
    ) -> None:
        target_header, draft_header = headers
        # The process starts while the models are read.
        sandbox.prepare()
        if 0 < options.n_ctx < N_CTX_LEAST:
            raise SettingsError(
                f"a context holds at least {N_CTX_LEAST} tokens, and engine.n_ctx (--ctx) is "
                f"{options.n_ctx}"
            )
        check_kv_type(target_header, options.kv_type, options.flash_attention)
        if draft_header is not None:
            check_kv_type(draft_header, options.draft_kv_type, options.flash_attention)
        self._n_threads = options.n_threads or choose_threads().count
        # Other machines' come first: the last device holds the output head, and should be near.
        devices = self._devices = (*rpc.connect(options.rpc_servers), *backend.devices())
        n_ctx = options.n_ctx or default_context(
            *headers, free_memory(options, devices), options.kv_type, options.draft_kv_type
        )
        placement = target_placement(options, devices, self._leave_out)
        target = self._open(target_header, placement, report)
        draft = None
        if draft_header is not None:
            beside = draft_placement(placement, len(target.devices))
            draft = self._open(draft_header, beside, report)
        report.stage("context")
        self._target_context = Context(
            target,
            n_ctx=n_ctx,
            n_batch=options.n_batch,
            n_threads=self._n_threads,
            n_outputs=N_DRAFT_MAX_LIMIT + 1,
            n_seq=_paths(target) if draft else 1,
            flash_attention=options.flash_attention,
            n_rollback=N_ROLLBACK,
            kv_type=options.kv_type,
        )
        self._owned.insert(0, self._target_context)
        self._options = options
        self._off = _why_no_speculation(self._target_context)
        self._norms = norms_of(draft_header) if draft_header else Norms()
        self._draft_window = _draft_window(options.draft_window, draft_header)
        eagle3, ngram, calibration = None, None, NOT_CALIBRATED
        self._warm_up()
        if self._off is None:
            eagle3 = self._make_drafter(draft, options) if draft else None
            calibration = calibrate(self._target_context, eagle3, report.is_cancelled)
            ngram = NgramDrafter()
        report.stage("context", 1.0)
        self.generator = Generator(
            self._target_context, eagle3, ngram, calibration, options.checkpoints_mib << 20
        )
        self._owned.insert(0, self.generator)
        self.prompter = Prompter(target)
        self._infos = tuple(
            _info(header, model)
            for header, model in ((target_header, target), (draft_header, draft))
            if header and model
        )
        self._layers = draft.target_layers if draft else ()

    def _open(self, header: GGUFHeader, placement: Placement, report: _Progress) -> Model:
        report.stage("draft" if header.architecture == "eagle3" else "target")
        try:
            model = Model(header.path, placement, report.within_stage)
        except ModelLoadError:
            if report.cancelled:
                raise LoadCancelledError("the load was cancelled") from None
            raise
        self._owned.insert(0, model)
        return model

    def _make_drafter(self, draft: Model, options: LoadOptions) -> Eagle3Drafter:
        context = Context(
            draft,
            n_ctx=self._target_context.n_ctx,
            n_batch=options.n_batch,
            n_ubatch=_DRAFT_UBATCH,
            n_threads=self._n_threads,
            n_seq=self._target_context.n_seq,
            flash_attention=options.flash_attention,
            kv_type=options.draft_kv_type,
            other=self._target_context,
        )
        self._owned.insert(0, context)
        drafter = Eagle3Drafter(
            self._target_context, context, window=self._draft_window, norms=self._norms
        )
        self._owned.insert(0, drafter)
        return drafter

    def _warm_up(self) -> None:
        """Decode one row, then several, with the target; `calibrate` does so with the draft.

        The first reply then need not wait for the weights to be paged in, and a kernel that crashes
        does so here, where the client loads again without it.
        """
        model = self._target_context.model
        with Batch(self._target_context) as batch:
            for rows in (1, _A_FEW):
                batch.clear()
                batch.add_tokens([max(model.bos, 0)] * rows, 0, 0, output=True)
                self._target_context.decode(batch)
                self._target_context.forget(0, 0)

    @property
    def info(self) -> PairInfo:
        return PairInfo(
            target=self._infos[0],
            draft=self._infos[1] if len(self._infos) > 1 else None,
            target_layers=self._layers,
            n_ctx=self._target_context.n_ctx,
            n_threads=self._n_threads,
            devices=tuple(device.description for device in self._devices),
            load_ms=self._load_ms,
            kv_type=self._options.kv_type,
            draft_kv_type=self._options.draft_kv_type,
            draft_window=self._draft_window,
            speculation_off=self._off,
            chains_only=self._why_chains_only(),
            reasoning=self.prompter.reasoning,
            sampling=recommended_sampling(self._target_context.model),
            left_out=self._target_context.model.left_out,
        )

    def _why_chains_only(self) -> str | None:
        if self._off is None and len(self._infos) > 1 and self._target_context.n_seq == 1:
            return (
                "the target is a recurrent or hybrid model: its state cannot follow several paths "
                "at once"
            )
        return None

    def close(self) -> None:
        """Free everything, in the reverse order of its making."""
        while self._owned:
            self._owned.pop(0).close()


class _Progress:
    """Turns the progress of each stage into that of the load; a stage weighs its bytes."""

    def __init__(self, headers: tuple[GGUFHeader, GGUFHeader | None], progress: Progress) -> None:
        sizes = [header.size_bytes if header else 0 for header in headers]
        context = sum(sizes) * 0.1
        total = sum(sizes) + context
        self._spans = {
            "target": (0.0, sizes[0] / total),
            "draft": (sizes[0] / total, sum(sizes) / total),
            "context": (sum(sizes) / total, 1.0),
        }
        self._progress = progress
        self._stage = "target"
        self._reported = -1.0
        self.cancelled = False

    def stage(self, stage: str, fraction: float = 0.0) -> None:
        self._stage = stage
        self._reported = -1.0
        if not self.within_stage(fraction):
            raise LoadCancelledError("the load was cancelled")

    def is_cancelled(self) -> bool:
        """Report the same progress again, to ask whether to go on."""
        self.cancelled = self.cancelled or not self._progress(self._stage, max(0.0, self._reported))
        return self.cancelled

    def within_stage(self, fraction: float) -> bool:
        start, end = self._spans[self._stage]
        done = start + (end - start) * fraction
        # llama.cpp reports every tensor; every percent is enough.
        if done - self._reported >= 0.01 or fraction >= 1.0:
            self._reported = done
            self.cancelled = self.cancelled or not self._progress(self._stage, done)
        return not self.cancelled


def _why_no_speculation(target: Context) -> str | None:
    if target.n_rollback == 0:
        return (
            "the target is a recurrent or hybrid model of a kind whose state cannot take back "
            "rejected tokens"
        )
    return None


def _draft_window(wanted: int, draft: GGUFHeader | None) -> int:
    """How many positions the draft looks back, 0 for all; at most as many as in its training."""
    trained = max(draft.number(DRAFT_WINDOW), 0) if draft else 0
    return min(wanted, trained) if wanted and trained else wanted or trained


def _paths(target: Model) -> int:
    """How many sequences a context needs: one per path of a tree.

    They share KV cells, so they take no memory. Each would need a recurrent state of its own, so a
    target that has one gets a single sequence, and verifies chains only.
    """
    return N_DRAFT_MAX_LIMIT if target.keeps_whole_history else 1


def _info(header: GGUFHeader, model: Model) -> ModelInfo:
    """What the header says of a model, with llama.cpp's own vocabulary and context sizes."""
    return msgspec.structs.replace(
        model_info(header), n_vocab=model.n_vocab, n_ctx_train=model.n_ctx_train
    )


_SAMPLING_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "penalty_repeat",
}
"""Our names -> the keys below `general.sampling` in a GGUF."""


def recommended_sampling(model: Model) -> RecommendedSampling:
    """The sampling that a model's file recommends, without values that are out of range."""
    found: dict[str, Any] = {}
    for name, key in _SAMPLING_KEYS.items():
        text = model.metadata(f"general.sampling.{key}")
        if text is not None:
            with suppress(msgspec.ValidationError):
                value = msgspec.convert({name: text}, RecommendedSampling, strict=False)
                found[name] = getattr(value, name)
    return RecommendedSampling(**found)
