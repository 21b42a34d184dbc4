"""The form in which the built-in target is loaded: its packaged file, or a copy in another type.

A draft pays where llama.cpp verifies several rows in little more than the time of one. In which
type of weights that is so differs between processors. So the first load writes copies, measures all
forms for about 4 seconds, and keeps the one that drafts fastest. What was measured is forms.json,
beside the copy; it is measured again with another llama.cpp or on another processor.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import filelock
import msgspec
from gguf import LlamaFileType

from eaglechat.engine.bench.forms import FormsToMeasure, measure_apart
from eaglechat.engine.llama.quantise import QuantiseError, quantise
from eaglechat.gguf.header import GGUFError, read_header
from eaglechat.gguf.memory import f16_bytes
from eaglechat.hub.local.cache import free_bytes
from eaglechat.hub.local.fingerprint import sha256
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.units import format_bytes
from eaglechat.machine import cpu_info
from eaglechat.paths import reencoded_dir, replacing
from eaglechat.settings.model import Settings
from eaglechat.state_file import StateFile
from eaglechat.wire.errors import EngineError

_WRITTEN = 0.6
"""The share of the progress that writing the copies takes; the rest is measuring."""

OnProgress = Callable[[float], None]
"""Gets a fraction several times per second; an exception it raises stops everything and is passed
on."""


class _Measured(msgspec.Struct, frozen=True):
    """forms.json. Speeds are in tokens per second."""

    key: str
    form: str
    """The fastest with the draft: the type of a copy, or empty for the packaged file."""
    drafted: float
    plain: float
    """Of the packaged file."""


@dataclass(frozen=True)
class LoadFile:
    """The file to load. `problem` says why its form was not chosen by measuring, if that failed;
    `note` what was measured, if it was."""

    target: Path
    problem: str | None = None
    note: str | None = None


def target_to_load(pair: Pair, settings: Settings, on_progress: OnProgress) -> LoadFile:
    """The target of a pair in the form that drafts fastest on this machine, which is measured now
    if that was not done; or the target itself for pairs of which there is one form, and for an
    engine that may run elsewhere."""
    if not pair.reencode or settings.engine.command:
        return LoadFile(pair.target)
    try:
        digest = sha256(pair.target)[:16]
        reencoded_dir().mkdir(parents=True, exist_ok=True)
        # Another eaglechat may write or measure the same copies.
        with filelock.FileLock(reencoded_dir() / f"{digest}.lock"):
            return _fastest(pair, digest, settings, on_progress)
    except (OSError, GGUFError, QuantiseError) as error:
        why = str(error)
        if isinstance(error, OSError) and error.strerror:
            why = f"{error.filename}: {error.strerror}"
        return LoadFile(
            pair.target,
            f"No copy of {pair.target.name} in another form can be written ({why}). The packaged "
            "file is loaded: its replies are as good, and drafting gains less.",
        )


def _fastest(pair: Pair, digest: str, settings: Settings, on_progress: OnProgress) -> LoadFile:
    """Raises OSError, GGUFError, QuantiseError."""
    flags = cpu_info("flags").split()
    # BF16 holds the same weights as F16, and is faster only where the processor computes with it.
    half = "BF16" if {"avx512_bf16", "amx_bf16"} & {*flags} else "F16"
    copies = {
        name: reencoded_dir() / f"{pair.target.stem}-{digest}.{name.lower()}.gguf"
        for name in ("Q4_0", half)
    }
    cpu = cpu_info("model name") or platform.processor()
    options = settings.to_load_options()
    run_by = f"{version('llama-cpp-python')} {options.n_threads} {options.n_gpu_layers}"
    key, record = f"{digest} {cpu} {run_by}", StateFile("forms.json", _Measured, reencoded_dir())
    measured = record.read(None)
    if measured is None or measured.key != key or measured.form not in ("", *copies):
        measured = _measure(pair, copies, settings, on_progress, key=key)
        if measured is None:
            return LoadFile(
                pair.target,
                f"This machine was too busy to measure which form of {pair.target.name} drafts "
                "fastest: the packaged file is loaded. The next load measures again.",
            )
        record.write(measured)
    target = copies.get(measured.form, pair.target)
    if not target.is_file():
        _write(pair.target, target, measured.form, on_progress)
    where = f"a {measured.form} copy" if measured.form else "the packaged file"
    packaged = f"the packaged {read_header(pair.target).quantization}"
    note = (
        f"Drafted {measured.drafted:,.0f} tok/s in {where}; {packaged} runs plainly at "
        f"{measured.plain:,.0f} tok/s."
    )
    if measured.drafted <= measured.plain:
        note += " Plain decoding is fastest here: this small pair is there to show the mechanism."
    return LoadFile(target, note=note)


def _measure(
    pair: Pair, copies: Mapping[str, Path], settings: Settings, on_progress: OnProgress, *, key: str
) -> _Measured | None:
    """Only the copy in the fastest form is left. None if there was not enough time. Raises OSError,
    GGUFError, QuantiseError."""
    assert pair.draft is not None
    assert isinstance(pair.n_draft_max, int)
    share = _WRITTEN / len(copies)
    for place, (name, copy) in enumerate(copies.items()):
        if not copy.is_file():

            def written(done: float, place: int = place) -> None:
                on_progress(share * (place + done))

            _write(pair.target, copy, name, written)
    forms = {str(pair.target): "", **{str(copy): name for name, copy in copies.items()}}
    how = settings.to_load_options(), settings.to_sampling()
    wanted = FormsToMeasure(tuple(forms), str(pair.draft), pair.n_draft_max, *how)
    try:
        speeds = measure_apart(wanted, lambda done: on_progress(_WRITTEN + (1 - _WRITTEN) * done))
    except EngineError as error:
        raise QuantiseError(f"the forms could not be compared: {error}") from error
    if speeds is None:
        return None
    plain = speeds.pop("")
    fastest = max(speeds, key=speeds.__getitem__)
    for copy in copies.values():
        if str(copy) != fastest:
            copy.unlink(missing_ok=True)
    return _Measured(key, forms[fastest], speeds[fastest], plain)


def _write(target: Path, copy: Path, form: str, on_progress: OnProgress) -> None:
    """Write a copy completely or not at all. Raises OSError, GGUFError, QuantiseError."""
    needed, free = f16_bytes(read_header(target)), free_bytes(copy.parent)
    if needed > free:
        raise OSError(
            f"it takes {format_bytes(needed)}, and {copy.parent} has {format_bytes(free)} free"
        )
    kind = LlamaFileType[f"MOSTLY_{form}"]
    with replacing(copy, ".part") as part:
        quantise(target, part, kind, lambda done, total: on_progress(done / total))
