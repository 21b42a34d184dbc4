"""The options with which llama.cpp's programs load a pair as eaglechat's own engine would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.links.llama_server.probe import SPEC_TYPES
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import AUTO, N_DRAFT_MAX_DEFAULT, DrafterKind, Speculation


@dataclass(frozen=True)
class Drafter:
    """What drafts for a target."""

    kind: DrafterKind
    file: GGUFHeader | None = None
    """The draft's; None if the drafter is in the target's file."""
    has_probability: bool = True
    """Whether it knows how probable its tokens are. Where DSpark has no head for that, the program
    ends over a least probability."""


@dataclass(frozen=True)
class Drafting:
    """Who drafts in the program, and how; it cannot be changed while it runs."""

    drafter: Drafter | None = None
    """None: nothing is drafted, and no draft is loaded."""
    n_draft_max: int = 0
    n_min: int = 0
    p_min: float = 0.0


NO_DRAFT = Drafting()


def drafting_of(speculation: Speculation, drafters: Sequence[Drafter]) -> Drafting:
    """The nearest the program can do to what a request asks for; it has no automatic length."""
    wanted = [one for one in drafters if speculation.drafter in (AUTO, one.kind)]
    n_draft_max = speculation.n_draft_max
    if n_draft_max == AUTO:
        n_draft_max = N_DRAFT_MAX_DEFAULT
    if not wanted or not speculation.enabled or n_draft_max == 0:
        return NO_DRAFT
    drafter = wanted[0]
    p_min = speculation.p_min if drafter.has_probability else 0.0
    return Drafting(drafter, n_draft_max, speculation.n_min, p_min)


def server_options(target: Path, drafting: Drafting, options: LoadOptions) -> list[str]:
    """llama-server's options, without its address."""
    threads = ["-t", str(options.n_threads)] if options.n_threads else []
    kv = ["-ctk", options.kv_type, "-ctv", options.kv_type] if options.kv_type != "f16" else []
    return [
        *("-m", str(target), "-c", str(options.n_ctx), "-b", str(options.n_batch), "-np", "1"),
        *("--no-webui", "--offline", *threads, *kv, *gpu_options(options)),
        *(_draft_options(drafting.drafter, drafting, options) if drafting.drafter else ()),
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


def _draft_options(drafter: Drafter, drafting: Drafting, options: LoadOptions) -> list[str]:
    kv_type = options.draft_kv_type
    kv = ["-ctkd", kv_type, "-ctvd", kv_type] if kv_type != "f16" else []
    file = ["-md", str(drafter.file.path), *draft_gpu_options(options)] if drafter.file else []
    return [
        *(*file, "--spec-type", SPEC_TYPES[drafter.kind]),
        *("--spec-draft-n-max", str(drafting.n_draft_max)),
        *("--spec-draft-n-min", str(drafting.n_min), "--spec-draft-p-min", f"{drafting.p_min:g}"),
        *kv,
    ]


def _layers(options: LoadOptions) -> str:
    return "all" if options.n_gpu_layers < 0 else str(options.n_gpu_layers)
