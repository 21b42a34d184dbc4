"""The model of the settings: the one place that defines them.

The tables of config.toml, the flags, the settings screen, the documentation and the messages to the
engine are made from it. In the Meta of a setting, `examples` holds an example value, and `extra`
may hold:

- `flag`: its flag on the command line, if that is not its key with dashes; "" for none.
- `flag_help`: the help text of the flag, if that is not the description.
- `shorthand`: more flags, which take no value, each with the value that it sets.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.load_options import (
    CHECKPOINTS_MIB,
    DRAFT_WINDOW_DEFAULT,
    BatchSize,
    CheckpointsMib,
    ContextSize,
    DraftWindow,
    FlashAttention,
    GpuIndex,
    GpuLayers,
    GpuShares,
    LoadOptions,
    RpcServers,
    SplitMode,
)
from eaglechat.wire.protocol import (
    AUTO,
    SEED_LIMIT,
    Auto,
    DrafterChoice,
    DraftLength,
    Probability,
    RecommendedSampling,
    RepeatPenalty,
    Sampling,
    Shape,
    Speculation,
    Temperature,
    Thinking,
    TopK,
)
from eaglechat.wire.records import KvType

ThinkingMode = Literal["auto", "on", "off"]


class GenerationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How replies are written."""

    temperature: Annotated[
        Temperature, Meta(description="Randomness of sampling; 0 always takes the likeliest token.")
    ] = 0.7
    top_k: Annotated[
        TopK, Meta(description="Sample among the k likeliest tokens; 0 means all.")
    ] = 40
    top_p: Annotated[
        Probability,
        Meta(description="Sample among the likeliest tokens that add up to this probability."),
    ] = 0.95
    min_p: Annotated[
        Probability,
        Meta(description="Drop tokens less likely than this share of the likeliest."),
    ] = 0.05
    repeat_penalty: Annotated[
        RepeatPenalty, Meta(description="Make recent tokens less likely by this factor; 1 is off.")
    ] = 1.0
    seed: Annotated[
        int,
        Meta(
            ge=-1,
            le=SEED_LIMIT,
            description="Seed of sampling; -1 draws a new one for each reply.",
        ),
    ] = -1
    max_tokens: Annotated[
        int, Meta(ge=0, description="Longest reply in tokens; 0 means until the context is full.")
    ] = 0
    thinking: Annotated[
        ThinkingMode,
        Meta(
            description="Whether the model thinks before it answers; auto: yes, if its chat "
            "template has a switch.",
            extra={"shorthand": {"--no-thinking": "off"}},
        ),
    ] = "auto"
    effort: Annotated[
        str,
        Meta(
            description="How much the model thinks: a word of its chat template, such as low, "
            "medium or high; without one the template decides."
        ),
    ] = ""
    system_prompt: Annotated[
        str,
        Meta(
            description="The system prompt; empty leaves it to the chat template.",
            extra={"flag": "--system"},
        ),
    ] = ""
    role: Annotated[
        str,
        Meta(description="The role of new chats: its file's name without .toml; empty means none."),
    ] = ""


class SpeculationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much the draft drafts."""

    enabled: Annotated[
        bool,
        Meta(
            description="Draft and verify; off is plain decoding, as if there were no draft.",
            extra={
                "flag": "--no-speculation",
                "flag_help": "Decode plainly, as if there were no draft.",
            },
        ),
    ] = True
    n_draft_max: Annotated[
        DraftLength | Auto,
        Meta(
            description='Most tokens drafted per round; 0 is plain decoding, "auto" lets '
            "measurement choose."
        ),
    ] = AUTO
    n_min: Annotated[DraftLength, Meta(description="Drop drafts shorter than this.")] = 0
    p_min: Annotated[
        Probability,
        Meta(description="Stop drafting at a token less probable than this."),
    ] = 0.0
    shape: Annotated[
        Shape,
        Meta(
            description='Draft a chain or a tree of n_draft_max tokens; "auto" lets '
            "measurement choose."
        ),
    ] = AUTO
    ngram: Annotated[
        bool,
        Meta(
            description="Find the latest tokens earlier in the chat and propose what followed; "
            "needs no draft.",
            extra={
                "flag": "--no-ngram",
                "flag_help": "Draft without n-grams.",
            },
        ),
    ] = True
    drafter: Annotated[
        DrafterChoice,
        Meta(
            description='Who drafts behind n-grams: one that the pair has, "ngram" for n-grams '
            'alone, or "none"; "auto" takes the fastest.'
        ),
    ] = AUTO


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the models are loaded and run."""

    n_ctx: Annotated[
        ContextSize,
        Meta(
            description="Context size in tokens; 0: what the target was trained for, up to 32,768, "
            "as memory allows.",
            extra={"flag": "--ctx"},
        ),
    ] = 0
    n_batch: Annotated[BatchSize, Meta(description="Prompt tokens decoded at once.")] = 512
    n_threads: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="Threads of llama.cpp; 0: one for each fast physical core.",
            extra={"flag": "--threads"},
        ),
    ] = 0
    n_gpu_layers: Annotated[
        GpuLayers,
        Meta(
            description="Layers of the models on the GPU; -1 means all.",
            extra={"flag": "--gpu-layers"},
        ),
    ] = -1
    split_mode: Annotated[
        SplitMode,
        Meta(description="How several GPUs share the target; none uses main_gpu alone."),
    ] = "layer"
    main_gpu: Annotated[
        GpuIndex, Meta(description="The GPU for split_mode none, counted from 0.")
    ] = 0
    tensor_split: Annotated[
        GpuShares,
        Meta(
            description="Each GPU's share of the target; empty shares by free memory.",
            examples=[[3, 1]],
        ),
    ] = ()
    rpc_servers: Annotated[
        RpcServers,
        Meta(
            description="RPC servers of llama.cpp; their devices come before this machine's GPUs.",
            examples=[["gpu1:50052"]],
        ),
    ] = ()
    flash_attention: Annotated[
        FlashAttention,
        Meta(description="Flash attention; auto uses it if the backend supports it."),
    ] = "auto"
    kv_type: Annotated[
        KvType,
        Meta(
            description="Number format of the target's KV cache; q8_0 takes half the memory and "
            "needs flash attention."
        ),
    ] = "f16"
    draft_kv_type: Annotated[KvType, Meta(description="Number format of the draft's KV cache.")] = (
        "f16"
    )
    draft_window: Annotated[
        DraftWindow,
        Meta(description="How many of the latest tokens an EAGLE-3 draft sees; 0 means all."),
    ] = DRAFT_WINDOW_DEFAULT
    checkpoints_mib: Annotated[
        CheckpointsMib,
        Meta(
            description="Memory, in MiB, for saved states of a recurrent or hybrid target, from "
            "which a chat goes on; 0 saves none."
        ),
    ] = CHECKPOINTS_MIB
    llama_server: Annotated[
        str,
        Meta(
            description="A llama-server that runs the pairs; empty means eaglechat's own engine.",
        ),
    ] = ""
    command: Annotated[
        tuple[str, ...],
        Meta(
            description="Command line that starts the engine; empty starts it on this machine.",
            examples=[["ssh", "gpu-box", "eaglechat", "engine"]],
            extra={"flag": "--engine-command"},
        ),
    ] = ()


class LibrarySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where models are looked for."""

    folders: Annotated[
        tuple[str, ...],
        Meta(
            description="More folders to search for GGUF files, besides the usual ones.",
            examples=[["/data/models"]],
            extra={"flag": ""},
        ),
    ] = ()


View = Literal["live", "read", "trace"]


class InterfaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the app looks."""

    theme: Annotated[str, Meta(description="Name of a theme.")] = "eagle-dark"
    view: Annotated[
        View,
        Meta(
            description="How replies are shown: text with the guessed part in a second ink, "
            "Markdown, or each token by its origin with the rejected ones.",
            extra={"flag": ""},
        ),
    ] = "live"
    show_panel: Annotated[
        bool, Meta(description="Show the speculation panel.", extra={"flag": ""})
    ] = True
    inspect: Annotated[
        bool,
        Meta(
            description="Record the target's probabilities, to look inside rounds.",
            extra={"flag": ""},
        ),
    ] = False
    notify: Annotated[
        Literal["bell", "desktop", "off"],
        Meta(
            description="How to tell you that a long reply has ended while the terminal does not "
            "have the focus.",
            extra={"flag": ""},
        ),
    ] = "bell"
    notify_after: Annotated[
        int,
        Meta(
            ge=0,
            description="Tell you only of replies that took at least this many seconds.",
            extra={"flag": ""},
        ),
    ] = 10


CommandKeys = Annotated[
    tuple[str, ...] | str,
    Meta(
        description="Keys of a command, in place of its default ones.", examples=[["ctrl+x", "f4"]]
    ),
]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, by the tables of config.toml."""

    generation: GenerationSettings = GenerationSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    engine: EngineSettings = EngineSettings()
    library: LibrarySettings = LibrarySettings()
    interface: InterfaceSettings = InterfaceSettings()
    keys: dict[str, CommandKeys] = {}
    """The keys of commands, by the ids of the commands."""
    server: tuple[ServerSettings, ...] = ()
    """External servers: the tables `[[server]]`. They have neither flags nor a place on the
    settings screen."""
    given: frozenset[str] = frozenset()
    """The settings that the user has set, as `table.key`. This is not a table of config.toml."""

    def with_value(self, table: str, key: str, value: Any) -> Settings:
        """A copy in which one setting has another value, which is not validated."""
        before = getattr(self, table)
        if isinstance(before, dict):
            changed: Any = {**before, key: value}
        else:
            changed = msgspec.structs.replace(before, **{key: value})
        return msgspec.structs.replace(
            self, **{table: changed}, given=self.given | {f"{table}.{key}"}
        )

    def without_value(self, table: str, key: str) -> Settings:
        """A copy in which one setting has its default, as if the user had not set it."""
        name = f"{table}.{key}"
        default = getattr(getattr(Settings(), table), key)
        changed = self.with_value(table, key, default)
        return msgspec.structs.replace(changed, given=self.given - {name})

    def to_sampling(self, recommended: RecommendedSampling | None = None) -> Sampling:
        """The sampling of a reply, for the engine. The recommended values apply to the settings
        that the user has not set."""
        values = _fields(Sampling, self.generation)
        if values["seed"] == -1:
            values["seed"] = None
        of_model = msgspec.structs.asdict(recommended) if recommended else {}
        for key, value in of_model.items():
            if value is not None and f"generation.{key}" not in self.given:
                values[key] = value
        return Sampling(**values)

    def to_speculation(self) -> Speculation:
        """The settings of speculation, for the engine."""
        return Speculation(**_fields(Speculation, self.speculation))

    def to_thinking(self) -> Thinking:
        """The settings of reasoning, for the engine."""
        enabled = {"auto": None, "on": True, "off": False}[self.generation.thinking]
        return Thinking(enabled=enabled, effort=self.generation.effort or None)

    def to_load_options(self) -> LoadOptions:
        """The settings of a load, for the engine."""
        values = _fields(LoadOptions, self.engine)
        return LoadOptions(**{**values, "n_threads": self.engine.n_threads or None})


TABLES = tuple(name for name in Settings.__struct_fields__ if name not in ("given", "server"))
"""The tables of config.toml."""


def _fields(wire: type[msgspec.Struct], table: msgspec.Struct) -> dict[str, Any]:
    """The fields of a message of the wire, from the settings of the same names."""
    return {key: getattr(table, key) for key in wire.__struct_fields__}
