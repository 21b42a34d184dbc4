"""The settings: one typed model validates the TOML file, drives the screens, documents itself.

A value that does not fit is named with its file and key, and the default takes its place; one bad
value never costs the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from eaglechat.wire.protocol import (
    AUTO,
    DRAFT_WINDOW_DEFAULT,
    SEED_LIMIT,
    TENSOR_SPLIT_REFUSED,
    Auto,
    ContextSize,
    DraftLength,
    DraftWindow,
    FlashAttention,
    GpuIndex,
    GpuLayers,
    GpuShares,
    LoadOptions,
    Probability,
    Sampling,
    Speculation,
    SplitMode,
    Temperature,
)
from eaglechat.wire.records import KvType

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class GenerationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How replies are written."""

    temperature: Annotated[
        Temperature, Meta(description="Randomness of sampling; 0 always takes the likeliest token.")
    ] = 0.7
    top_k: Annotated[
        int, Meta(ge=0, description="Sample among the k likeliest tokens; 0 means all.")
    ] = 40
    top_p: Annotated[
        Probability, Meta(description="Sample among the likeliest tokens that make up this share.")
    ] = 0.95
    min_p: Annotated[
        Probability,
        Meta(description="Drop tokens less likely than this share of the likeliest one."),
    ] = 0.05
    repeat_penalty: Annotated[
        float,
        Meta(gt=0.0, le=4.0, description="Divide the odds of recent tokens by this; 1 is off."),
    ] = 1.0
    seed: Annotated[
        int,
        Meta(
            ge=-1, le=SEED_LIMIT, description="Seed of sampling; -1 draws a new one for each reply."
        ),
    ] = -1
    max_tokens: Annotated[
        int, Meta(ge=0, description="Longest reply in tokens; 0 means until the context is full.")
    ] = 0
    system_prompt: Annotated[
        str, Meta(description="The system prompt; empty leaves it to the chat template.")
    ] = ""


class SpeculationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much the draft drafts."""

    enabled: Annotated[bool, Meta(description="Draft at all.")] = True
    n_draft_max: Annotated[
        DraftLength | Auto,
        Meta(
            description='Most tokens drafted in a round; 0 decodes plainly, "auto" chooses what '
            "is fastest here, none included, by measurement."
        ),
    ] = AUTO
    n_min: Annotated[
        DraftLength, Meta(description="Throw a draft away that is shorter than this.")
    ] = 0
    p_min: Annotated[
        Probability, Meta(description="Stop drafting at a token the draft gives less than this.")
    ] = 0.0


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the models are loaded and run."""

    n_ctx: Annotated[
        ContextSize,
        Meta(
            description="Context size in tokens; 0 takes what the target was trained for, "
            "at most 8192.",
        ),
    ] = 0
    n_batch: Annotated[
        int,
        Meta(
            ge=32,
            le=8192,
            description="Prompt tokens decoded at once; a cancel waits for them.",
        ),
    ] = 512
    n_threads: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="Threads of llama.cpp; 0 takes the fast physical cores it may use.",
        ),
    ] = 0
    n_gpu_layers: Annotated[
        GpuLayers, Meta(description="Layers of the models on the GPU; -1 means all.")
    ] = -1
    split_mode: Annotated[
        SplitMode,
        Meta(
            description="How several GPUs share the target: layer by layer, row by row, or none, "
            "which takes main_gpu alone. The draft goes to one GPU."
        ),
    ] = "layer"
    main_gpu: Annotated[
        GpuIndex, Meta(description="The GPU that split_mode none takes, counted from 0.")
    ] = 0
    tensor_split: Annotated[
        GpuShares,
        Meta(
            description="Each GPU's share of the target, for instance [3, 1]; empty shares by "
            "free memory."
        ),
    ] = ()
    flash_attention: Annotated[
        FlashAttention,
        Meta(description="Flash attention; auto uses it where the backend can."),
    ] = "auto"
    kv_type: Annotated[
        KvType,
        Meta(
            description="Number format of the target's KV cache; q8_0 takes half the memory and "
            "needs flash attention."
        ),
    ] = "f16"
    draft_kv_type: Annotated[
        KvType, Meta(description="Number format of the draft's KV cache, a small one.")
    ] = "f16"
    draft_window: Annotated[
        DraftWindow,
        Meta(description="How many of the latest tokens the draft sees; 0 means all of them."),
    ] = DRAFT_WINDOW_DEFAULT
    command: Annotated[
        tuple[str, ...],
        Meta(
            description="Command line that starts the engine, for instance "
            '["ssh", "gpu-box", "eaglechat", "engine"]; empty starts it on this machine.'
        ),
    ] = ()


class LibrarySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where models are looked for."""

    folders: Annotated[
        tuple[str, ...],
        Meta(
            description="Folders with GGUF files, searched besides the Hugging Face cache, "
            "LM Studio's and llama.cpp's folders."
        ),
    ] = ()


class InterfaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the app looks."""

    theme: Annotated[str, Meta(description="Name of a theme.")] = "eagle-dark"
    token_colours: Annotated[
        bool, Meta(description="Colour the tokens of replies by their origin.")
    ] = True
    show_rejected: Annotated[
        bool, Meta(description="Show the first rejected draft token of a round, struck through.")
    ] = True
    show_panel: Annotated[bool, Meta(description="Show the speculation panel.")] = True


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, by the tables of config.toml."""

    generation: GenerationSettings = GenerationSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    engine: EngineSettings = EngineSettings()
    library: LibrarySettings = LibrarySettings()
    interface: InterfaceSettings = InterfaceSettings()

    def with_n_draft_max(self, n_draft_max: int | Auto) -> Settings:
        """The same settings with another draft length."""
        speculation = msgspec.structs.replace(self.speculation, n_draft_max=n_draft_max)
        return msgspec.structs.replace(self, speculation=speculation)

    def to_sampling(self) -> Sampling:
        """The settings as the engine wants them for a reply."""
        generation = self.generation
        return Sampling(
            temperature=generation.temperature,
            top_k=generation.top_k,
            top_p=generation.top_p,
            min_p=generation.min_p,
            repeat_penalty=generation.repeat_penalty,
            seed=None if generation.seed < 0 else generation.seed,
        )

    def to_speculation(self) -> Speculation:
        """The settings as the engine wants them for drafting."""
        return Speculation(
            enabled=self.speculation.enabled,
            n_draft_max=self.speculation.n_draft_max,
            n_min=self.speculation.n_min,
            p_min=self.speculation.p_min,
        )

    def to_load_options(self) -> LoadOptions:
        """The settings as the engine wants them for a load."""
        return LoadOptions(
            n_ctx=self.engine.n_ctx,
            n_batch=self.engine.n_batch,
            n_threads=self.engine.n_threads or None,
            n_gpu_layers=self.engine.n_gpu_layers,
            split_mode=self.engine.split_mode,
            main_gpu=self.engine.main_gpu,
            tensor_split=self.engine.tensor_split,
            flash_attention=self.engine.flash_attention,
            kv_type=self.engine.kv_type,
            draft_kv_type=self.engine.draft_kv_type,
            draft_window=self.engine.draft_window,
        )


@dataclass(frozen=True)
class SettingDoc:
    """One setting as its screen and its documentation show it."""

    table: str
    key: str
    type: str
    default: Any
    description: str
    minimum: float | None
    maximum: float | None
    above_minimum: bool = False
    """The minimum itself does not fit."""
    choices: tuple[str, ...] = ()
    """The only values there are; empty where there are others."""

    @property
    def name(self) -> str:
        return f"{self.table}.{self.key}"

    @property
    def span(self) -> str:
        """The range in words; empty where any value of the type fits."""
        if self.minimum is None:
            return ""
        least = f"{'above ' if self.above_minimum else ''}{_number(self.minimum)}"
        if self.maximum is None:
            return least if self.above_minimum else f"{least} or more"
        return f"{least} to {_number(self.maximum)}"


@dataclass(frozen=True)
class Problem:
    """A value of the configuration that was not used, and why."""

    file: Path
    key: str
    reason: str
    default: Any

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else str(self.file)
        return f"{where}: {self.reason}; using {self.default!r}"


Table = TypeVar("Table", bound=msgspec.Struct)


def load(path: Path) -> tuple[Settings, list[Problem]]:
    """Read a configuration file; a missing one is all defaults."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings(), []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return Settings(), [Problem(path, "", f"cannot be read ({error})", "the defaults")]
    return from_mapping(raw, path)


def from_mapping(raw: Mapping[str, Any], path: Path) -> tuple[Settings, list[Problem]]:
    """Validate tables of values, each key by itself. `path` is named in the problems."""
    problems: list[Problem] = []
    defaults = Settings()
    tables: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        given = raw.get(field.name, {})
        default = getattr(defaults, field.name)
        if isinstance(given, Mapping):
            tables[field.name] = _table(default, field.name, given, path, problems)
        else:
            problems.append(Problem(path, field.name, "is a table of settings", "the defaults"))
    known = {field.name for field in msgspec.structs.fields(Settings)}
    problems += [
        Problem(path, key, f"unknown table (known: {', '.join(sorted(known))})", "nothing of it")
        for key in raw.keys() - known
    ]
    return Settings(**tables), problems


def _table(
    default: Table, name: str, given: Mapping[str, Any], path: Path, problems: list[Problem]
) -> Table:
    hints = get_type_hints(type(default), include_extras=True)
    values: dict[str, Any] = {}
    for key, value in given.items():
        full = f"{name}.{key}"
        if key not in hints:
            known = ", ".join(hints)
            problems.append(Problem(path, full, f"unknown setting (known: {known})", "nothing"))
            continue
        try:
            values[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            reason = _plain(error, value, _choices(hints[key]))
            problems.append(Problem(path, full, reason, getattr(default, key)))
    return msgspec.structs.replace(default, **values)


def _plain(error: msgspec.ValidationError, value: object, choices: tuple[str, ...]) -> str:
    if choices:
        why = f"; {TENSOR_SPLIT_REFUSED}" if value == "tensor" else ""
        return f"{value!r} is not one of {', '.join(choices)}{why}"
    reason = str(error).replace("`", "")
    return f"{value!r} does not fit: {reason[:1].lower()}{reason[1:]}"


def describe() -> Iterator[SettingDoc]:
    """Every setting with its type, default, range and description."""
    for table in msgspec.structs.fields(Settings):
        for key, hint in get_type_hints(table.type, include_extras=True).items():
            metas = list(_metas(hint))
            yield SettingDoc(
                table=table.name,
                key=key,
                type=_type_name(hint),
                default=getattr(table.default, key),
                description=next(m.description for m in reversed(metas) if m.description),
                minimum=next((v for m in metas for v in (m.ge, m.gt) if v is not None), None),
                maximum=next((v for m in metas for v in (m.le, m.lt) if v is not None), None),
                above_minimum=any(m.gt is not None for m in metas),
                choices=_choices(hint),
            )


def _metas(hint: Any) -> Iterator[Meta]:
    if get_origin(hint) is Annotated:
        inner, *metas = get_args(hint)
        yield from _metas(inner)
        yield from (meta for meta in metas if isinstance(meta, Meta))
    elif get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _metas(member)


def _choices(hint: Any) -> tuple[str, ...]:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return get_args(hint) if get_origin(hint) is Literal else ()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _type_name(hint: Any) -> str:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_type_name(member) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(f'"{value}"' for value in get_args(hint))
    if get_origin(hint) is tuple:
        return "list of strings" if get_args(hint)[0] is str else "list of numbers"
    return str(hint.__name__)
