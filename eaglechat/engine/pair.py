"""A loaded pair: a target, with or without a draft, that writes replies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import msgspec

from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration, calibrate
from eaglechat.engine.auto.kept import Kept
from eaglechat.engine.drafters.base import Drafter, Opening, open_drafter
from eaglechat.engine.llama import backend, workarounds
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.placement import (
    chosen_devices,
    for_the_draft,
    free_memory,
)
from eaglechat.engine.loop import Generator
from eaglechat.engine.prompt import Prompter
from eaglechat.engine.templates import sandbox
from eaglechat.gguf.header import GGUFHeader, model_info
from eaglechat.gguf.memory import check_kv_type, context_size
from eaglechat.gguf.pairing import KINDS, pairings, why_no_heads, without_stripped_blocks
from eaglechat.gguf.preflight import Pairing
from eaglechat.machine import choose_threads
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.errors import ModelLoadError, SettingsError
from eaglechat.wire.protocol import (
    N_CTX_LEAST,
    DrafterInfo,
    LeaveOut,
    LoadOptions,
    ModelInfo,
    PairInfo,
    Recommended,
    Sampling,
)
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from eaglechat.wire.worker import check, whether_cancelled

N_ROLLBACK = 8
"""How many snapshots of a recurrent state llama.cpp keeps, and so the longest draft for such a
target. Each is as large as the state."""

_A_FEW = 4
"""Rows of the second warm-up: llama.cpp's kernels for several rows differ from those for one."""

OnProgress = Callable[[str, float], None]
"""Gets the stage and the fraction of the whole load that is done."""


class LoadedPair:
    """A target with or without a draft. Close it to free everything."""

    def __init__(
        self,
        headers: tuple[GGUFHeader, GGUFHeader | None],
        options: LoadOptions,
        on_progress: OnProgress = lambda _stage, _fraction: None,
        leave_out: tuple[LeaveOut, ...] = (),
        *,
        calibrates: bool = True,
    ) -> None:
        """Load the models of these headers, which `pairing.check_pair` has accepted.

        `leave_out` is what llama.cpp does without, beside what it does without in every load.
        Without `calibrates`, nothing is timed for the automatic draft length.

        Raises ModelLoadError, Cancelled, PromptError (no valid template).
        """
        with ExitStack() as owned:
            report = _Progress(headers, on_progress)
            self.info = self._load(
                owned, headers, options, leave_out, report, calibrates=calibrates
            )
            self._owned = owned.pop_all()

    def _load(
        self,
        owned: ExitStack,
        headers: tuple[GGUFHeader, GGUFHeader | None],
        options: LoadOptions,
        leave_out: tuple[LeaveOut, ...],
        report: _Progress,
        *,
        calibrates: bool,
    ) -> PairInfo:
        """Load everything into `owned`, which frees it in the reverse order."""
        started = time.perf_counter()
        target_header, draft_header = headers
        # The process starts while the models are read.
        sandbox.prepare()
        _check_options(options, *headers)
        n_threads = options.n_threads or choose_threads().count
        # Other machines' come first: the last device holds the output head, and should be near.
        devices = (*backend.rpc_devices(options.rpc_servers), *backend.devices())
        n_ctx = context_size(*headers, free_memory(options, devices), options)
        found = pairings(*headers)
        with_heads = any(one.file is None for one in found)
        gpus = chosen_devices(options, devices, leave_out)
        open_model = partial(_open, report, devices=gpus, leave_out=leave_out)
        target = owned.enter_context(
            open_model("target", target_header, options, with_heads=with_heads)
        )
        draft = None
        if draft_header is not None:
            beside = for_the_draft(options, len(target.devices))
            draft = owned.enter_context(
                open_model("draft", draft_header, beside, with_heads=found[0].kind == "mtp")
            )
        report.stage("context")
        # A sequence for each path of a tree. They share KV cells, so they take no memory. Each
        # would need a recurrent state of its own, so a target that has one verifies chains only.
        no_trees = [KINDS[one.kind].no_trees for one in found]
        grows_trees = None in no_trees and target.keeps_whole_history
        context = owned.enter_context(
            Context(
                target,
                n_ctx=n_ctx,
                n_batch=options.n_batch,
                n_threads=n_threads,
                n_outputs=N_DRAFT_MAX_LIMIT + 1,
                n_seq=N_DRAFT_MAX_LIMIT if grows_trees else 1,
                flash_attention=options.flash_attention,
                n_rollback=N_ROLLBACK,
                kv_type=options.kv_type,
            )
        )
        off = None
        if context.n_rollback == 0:
            off = (
                "the target is a recurrent or hybrid model of a kind whose state cannot take back "
                "rejected tokens"
            )
        chains_only = None
        if off is None and found and not grows_trees:
            chains_only = no_trees[0] or (
                "the target is a recurrent or hybrid model: its state cannot follow several paths "
                "at once"
            )
        why = None if "mtp" in [one.kind for one in found] else why_no_heads(target_header)
        undrafted: dict[DrafterKind, str] = {"mtp": why} if why else {}
        opened: list[tuple[Pairing, Model, Drafter]] = []
        for one in found if off is None else ():
            model = target if draft is None or one.file is None else draft
            header = one.file or target_header
            try:
                opening = Opening(owned, context, model, header, options, n_threads)
                opened.append((one, model, open_drafter(one.kind, opening)))
            except ModelLoadError as error:
                # The user asked for a draft, but not for what the target brings.
                if one.file is not None:
                    raise
                undrafted[one.kind] = str(error)
        drafters = [drafter for *_, drafter in opened]
        # After that: heads that share the target's KV cache would find it emptied.
        _warm_up(context)
        calibrations: dict[str, Calibration] = {}
        if off is None and calibrates:
            calibrations = _calibrations(context, drafters)
        # As calibrated for the first.
        verify_ms = dict(next(iter(calibrations.values()), NOT_CALIBRATED).verify)
        most = context.longest_draft
        report.stage("context", 1.0)
        self.generator = Generator(
            context,
            drafters,
            calibrations,
            options.checkpoints_mib << 20,
            _kept(headers, options, n_threads, target) if calibrations else None,
        )
        owned.callback(self.generator.close)
        self.prompter = Prompter(target)
        return PairInfo(
            target=_info(target_header, target),
            drafters=tuple(
                DrafterInfo(
                    kind=one.kind,
                    file=_info(one.file, model) if one.file is not None else None,
                    layers=model.target_layers if one.file is not None else (),
                    longest=min(most, calibrations.get(drafter.name, NOT_CALIBRATED).longest),
                )
                for one, model, drafter in opened
            ),
            undrafted=undrafted,
            n_ctx=context.n_ctx,
            n_threads=n_threads,
            devices=tuple(device.description for device in devices),
            load_ms=(time.perf_counter() - started) * 1000.0,
            verify_ms=verify_ms,
            speculation_off=off,
            chains_only=chains_only,
            reasoning=self.prompter.template.reasoning,
            untemplated=self.prompter.template.untemplated,
            sampling=recommended_sampling(target),
            left_out=target.left_out,
        )

    def close(self) -> None:
        self._owned.close()


def _open(
    report: _Progress,
    stage: str,
    header: GGUFHeader,
    options: LoadOptions,
    *,
    devices: Sequence[int],
    leave_out: Sequence[LeaveOut],
    with_heads: bool,
) -> Model:
    report.stage(stage)
    try:
        return Model(
            header.path,
            options,
            report.within_stage,
            devices=devices,
            leave_out=leave_out,
            with_heads=with_heads,
            fields=without_stripped_blocks(header),
        )
    except ModelLoadError as error:
        check()
        if stage == "target" and header.number("{arch}.nextn_predict_layers") > header.n_mtp_heads:
            raise ModelLoadError(
                f"{error}. The likely cause: {why_no_heads(header)}. Take a file that has the "
                "heads, or one that does not declare them"
            ) from error
        raise


def _check_options(options: LoadOptions, target: GGUFHeader, draft: GGUFHeader | None) -> None:
    """Raises SettingsError."""
    if 0 < options.n_ctx < N_CTX_LEAST:
        raise SettingsError(
            f"a context holds at least {N_CTX_LEAST} tokens, and engine.n_ctx (--ctx) is "
            f"{options.n_ctx}"
        )
    check_kv_type(target, options.kv_type, options.flash_attention)
    if draft is not None:
        check_kv_type(draft, options.draft_kv_type, options.flash_attention)


def _calibrations(target: Context, models: Sequence[Drafter]) -> dict[str, Calibration]:
    """What batches and drafts cost with each draft model, or with none."""
    if not models:
        return {"": calibrate(target, None)}
    measured = {}
    for model in models:
        for other in models:
            other.set_export(False)
        model.set_export(True)
        measured[model.name] = calibrate(target, model)
    return measured


def _kept(
    headers: Sequence[GGUFHeader | None], options: LoadOptions, n_threads: int, target: Model
) -> Kept:
    """What auto has learnt of the same files, run in the same way; how much fits into the context
    does not matter."""
    same = msgspec.structs.replace(options, n_threads=n_threads, n_ctx=0, checkpoints_mib=0)
    files = [header.path for header in headers if header is not None]
    return Kept(workarounds.key_of(files, same, target.left_out))


def _warm_up(target: Context) -> None:
    """Decode one row, then several, with the target; `calibrate` does so with the draft.

    The first reply then need not wait for the weights to be paged in, and a kernel that crashes
    does so here, where the client loads again without it.
    """
    with Batch(target) as batch:
        for rows in (1, _A_FEW):
            batch.clear()
            batch.add_tokens([max(target.model.bos, 0)] * rows, 0, 0, output=True)
            target.decode(batch)
            target.forget(0, 0)


class _Progress:
    """Turns the progress of each stage into that of the load; a stage weighs its bytes, and the
    context a tenth of all."""

    def __init__(
        self, headers: tuple[GGUFHeader, GGUFHeader | None], on_progress: OnProgress
    ) -> None:
        sizes = [header.size_bytes if header else 0 for header in headers]
        self._sizes = {"target": sizes[0], "draft": sizes[1], "context": sum(sizes) * 0.1}
        self._on_progress, self._is_cancelled = on_progress, whether_cancelled()
        self._done = self._reported = 0.0
        self._stage = ""

    def stage(self, stage: str, fraction: float = 0.0) -> None:
        """Raises Cancelled."""
        check()
        if stage != self._stage:
            self._done += self._sizes.get(self._stage, 0.0)
            self._stage = stage
        self._reported = -1.0
        self.within_stage(fraction)

    def within_stage(self, fraction: float) -> bool:
        """Whether to go on."""
        done = self._done + self._sizes[self._stage] * fraction
        done /= sum(self._sizes.values())
        # llama.cpp reports every tensor; every percent is enough.
        if done - self._reported >= 0.01 or fraction >= 1.0:
            self._reported = done
            self._on_progress(self._stage, done)
        return not self._is_cancelled()


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


def recommended_sampling(model: Model) -> Recommended:
    """The sampling that a model's file recommends, without values that are out of range."""
    found: Recommended = {}
    for name, key in _SAMPLING_KEYS.items():
        text = model.metadata(f"general.sampling.{key}")
        if text is not None:
            with suppress(msgspec.ValidationError):
                value = msgspec.convert({name: text}, Sampling, strict=False)
                found[name] = getattr(value, name)
    return found
