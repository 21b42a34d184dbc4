"""The options with which llama.cpp's programs load a pair as eaglechat's own engine would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eaglechat.gguf.preflight import Pairing
from eaglechat.wire.drafters import DRAFTERS
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import AUTO, N_DRAFT_MAX_DEFAULT, Speculation


def chosen_drafter(speculation: Speculation, drafters: Sequence[Pairing]) -> Pairing | None:
    """Who drafts for a request; None if nothing is to be drafted."""
    if speculation.is_plain:
        return None
    return next((one for one in drafters if speculation.drafter in (AUTO, one.kind)), None)


def server_options(
    target: Path, drafter: Pairing | None, speculation: Speculation, options: LoadOptions
) -> list[str]:
    """llama-server's options, without its address. Without a drafter, no draft is loaded."""
    threads = ["-t", str(options.n_threads)] if options.n_threads else []
    kv = ["-ctk", options.kv_type, "-ctv", options.kv_type] if options.kv_type != "f16" else []
    return [
        *("-m", str(target), "-c", str(options.n_ctx), "-b", str(options.n_batch), "-np", "1"),
        *("--no-webui", "--offline", *threads, *kv, *gpu_options(options)),
        *(_draft_options(drafter, speculation, options) if drafter else ()),
    ]


def gpu_options(options: LoadOptions) -> list[str]:
    """Places the target as eaglechat's own engine does; `-fit` would choose another placement."""
    layers = _layers(options)
    shares = ",".join(f"{share:g}" for share in options.tensor_split)
    return [
        *("-ngl", layers, "-fit", "off", "-sm", options.split_mode),
        *("-mg", str(options.main_gpu), "-fa", options.flash_attention),
        *(("-ts", shares) if shares else ()),
        *(("--rpc", ",".join(options.rpc_servers)) if options.rpc_servers else ()),
    ]


def draft_gpu_options(options: LoadOptions) -> list[str]:
    """Places the draft as eaglechat's own engine does."""
    return ["-ngld", _layers(options)]


def _draft_options(drafter: Pairing, speculation: Speculation, options: LoadOptions) -> list[str]:
    kv_type = options.draft_kv_type
    kv = ["-ctkd", kv_type, "-ctvd", kv_type] if kv_type != "f16" else []
    file = ["-md", str(drafter.file.path), *draft_gpu_options(options)] if drafter.file else []
    word = DRAFTERS[drafter.kind].spec_type
    # The program has no automatic length.
    longest = N_DRAFT_MAX_DEFAULT if speculation.n_draft_max == AUTO else speculation.n_draft_max
    p_min = speculation.p_min if drafter.has_probability else 0.0
    return [
        *(*file, "--spec-type", word, "--spec-draft-n-max", str(longest)),
        *("--spec-draft-n-min", str(speculation.n_min), "--spec-draft-p-min", f"{p_min:g}", *kv),
    ]


def _layers(options: LoadOptions) -> str:
    return "all" if options.n_gpu_layers < 0 else str(options.n_gpu_layers)
