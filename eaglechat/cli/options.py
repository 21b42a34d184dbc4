"""Options that several commands share: which pair, how it is loaded, how much is drafted."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from eaglechat import paths, settings
from eaglechat.cli.status import complain
from eaglechat.settings import Settings
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import (
    AUTO,
    N_CTX_LIMIT,
    SEED_LIMIT,
    TENSOR_SPLIT_REFUSED,
    Auto,
    FlashAttention,
    SplitMode,
)
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, KvType

if TYPE_CHECKING:
    from eaglechat.hub.local.pair import Pair
    from eaglechat.hub.local.pairs import PairLibrary


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the pair")
    group.add_argument("--pair", metavar="NAME", help="a pair by name, such as smollm2-135m")
    group.add_argument("--target", type=Path, metavar="FILE", help="the target's GGUF")
    group.add_argument("--draft", type=Path, metavar="FILE", help="its EAGLE-3 draft's GGUF")


def wrong_pair_usage(args: argparse.Namespace) -> str | None:
    """What is wrong with the way a pair was asked for."""
    if args.draft is not None and args.target is None:
        return "--draft needs --target: a draft fits one target only"
    if args.pair is not None and args.target is not None:
        return "--pair and --target name two pairs; give one of them"
    return None


def chosen_pair(args: argparse.Namespace, library: PairLibrary) -> Pair | None:
    """The pair the flags name, or None where they name none. Raises EngineError."""
    from eaglechat.hub.local.pairs import NotInstalledError, pair_of_files

    if args.target is not None:
        return pair_of_files(args.target, args.draft)
    if args.pair is None:
        return None
    try:
        pair = library.find(args.pair)
    except NotInstalledError as error:
        raise EngineError(str(error)) from error
    if pair is None:
        known = ", ".join(pair.name for pair in library.pairs())
        raise EngineError(
            f"there is no pair named {args.pair!r}; known: {known}, and those that "
            "`eaglechat models` lists"
        )
    return pair


def add_setting_options(parser: argparse.ArgumentParser) -> None:
    """Flags that override the configuration; None means they were not given."""
    draft = parser.add_argument_group("speculation")
    draft.add_argument(
        "--n-draft-max",
        type=draft_length,
        metavar="N",
        help=f"most tokens drafted in a round, 0 to {N_DRAFT_MAX_LIMIT} (0: plain decoding), "
        "or auto: the fastest, by measurement",
    )
    draft.add_argument(
        "--p-min",
        type=number(float, 0.0, 1.0),
        metavar="P",
        help="stop drafting at a token the draft gives less than this",
    )
    draft.add_argument(
        "--no-speculation", action="store_true", help="decode plainly, as if there were no draft"
    )
    reply = parser.add_argument_group("the reply")
    reply.add_argument(
        "--temperature",
        type=number(float, 0.0, 5.0),
        metavar="T",
        help="randomness; 0 always takes the likeliest token",
    )
    reply.add_argument(
        "--seed", type=number(int, 0, SEED_LIMIT), metavar="S", help="seed of the sampling"
    )
    reply.add_argument(
        "--max-tokens", type=number(int, 1, None), metavar="N", help="longest reply, in tokens"
    )
    reply.add_argument("--system", metavar="TEXT", help="the system prompt")
    add_load_options(parser)


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Flags for how the models are loaded."""
    load = parser.add_argument_group("the engine")
    load.add_argument(
        "--ctx", type=number(int, 0, N_CTX_LIMIT), metavar="N", help="context size in tokens"
    )
    load.add_argument("--threads", type=number(int, 1, 1024), metavar="N", help="llama.cpp threads")
    load.add_argument(
        "--gpu-layers",
        type=number(int, -1, 2**31 - 1),
        metavar="N",
        help="layers on the GPU, -1 for all",
    )
    load.add_argument(
        "--split-mode",
        type=_split_mode,
        metavar="MODE",
        help="how several GPUs share the target: layer, row, or none (one GPU only)",
    )
    load.add_argument(
        "--main-gpu",
        type=number(int, 0, 255),
        metavar="N",
        help="the GPU that --split-mode none takes, counted from 0",
    )
    load.add_argument(
        "--tensor-split",
        type=_shares,
        metavar="LIST",
        help="each GPU's share of the target, such as 3,1",
    )
    load.add_argument(
        "--flash-attention",
        choices=get_args(FlashAttention),
        help="flash attention; auto uses it where the backend can",
    )
    load.add_argument(
        "--kv-type", choices=get_args(KvType), help="number format of the target's KV cache"
    )
    load.add_argument(
        "--draft-window",
        type=number(int, 0, N_CTX_LIMIT),
        metavar="N",
        help="how many of the latest tokens the draft sees, 0 for all",
    )


def _split_mode(text: str) -> str:
    """An argparse type for split modes."""
    if text not in get_args(SplitMode):
        why = TENSOR_SPLIT_REFUSED if text == "tensor" else "it is layer, row or none"
        raise argparse.ArgumentTypeError(f"{text!r} cannot be used: {why}")
    return text


def _shares(text: str) -> tuple[float, ...]:
    """An argparse type for the shares of GPUs."""
    share = number(float, 0.0, 1e6)
    return tuple(share(part) for part in text.split(","))


def draft_length(text: str) -> int | Auto:
    """An argparse type for draft lengths."""
    return AUTO if text == AUTO else int(number(int, 0, N_DRAFT_MAX_LIMIT)(text))


def load_settings(args: argparse.Namespace) -> tuple[Settings, list[settings.Problem]]:
    """The configuration file's settings, with the flags a command has on top."""
    loaded, problems = settings.load(paths.config_file())
    flags = vars(args)
    generation = _given(
        temperature=flags.get("temperature"),
        seed=flags.get("seed"),
        max_tokens=flags.get("max_tokens"),
        system_prompt=flags.get("system"),
    )
    speculation = _given(
        n_draft_max=flags.get("n_draft_max"),
        p_min=flags.get("p_min"),
        enabled=False if flags.get("no_speculation") else None,
    )
    engine = _given(
        n_ctx=args.ctx,
        n_threads=args.threads,
        n_gpu_layers=args.gpu_layers,
        split_mode=args.split_mode,
        main_gpu=args.main_gpu,
        tensor_split=args.tensor_split,
        flash_attention=args.flash_attention,
        kv_type=args.kv_type,
        draft_window=args.draft_window,
    )
    replace = msgspec.structs.replace
    merged = replace(
        loaded,
        generation=replace(loaded.generation, **generation),
        speculation=replace(loaded.speculation, **speculation),
        engine=replace(loaded.engine, **engine),
    )
    return merged, problems


def report(problems: list[settings.Problem]) -> None:
    """Name the settings that were not used."""
    for problem in problems:
        complain(str(problem))


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def number(
    kind: Callable[[str], Any], minimum: float, maximum: float | None
) -> Callable[[str], Any]:
    """An argparse type for numbers in a range."""

    def parse(text: str) -> Any:
        span = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
        noun = "a whole number" if kind is int else "a number"
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {noun}") from None
        if not (minimum <= value and (maximum is None or value <= maximum)):
            raise argparse.ArgumentTypeError(f"{text} is out of range, it must be {span}")
        return value

    return parse
