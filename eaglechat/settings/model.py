"""The model of the settings: the one place that defines them.

The tables of config.toml, the flags, the settings screen and the documentation are made from it. A
setting that a message to the engine has is inherited from there. In the Meta of a setting,
`examples` holds an example value, and `extra` may hold:

- `flag`: its flag on the command line, if that is not its key with dashes; "" for none.
- `flag_help`: the help text of the flag, if that is not the description.
- `shorthand`: more flags, which take no value, each with the value that it sets.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import (
    AUTO,
    SEED_LIMIT,
    Recommended,
    Sampling,
    Speculation,
    Thinking,
)

ThinkingMode = Literal["auto", "on", "off"]


class GenerationSettings(Sampling, frozen=True, kw_only=True):
    """How replies are written."""

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


class EngineSettings(LoadOptions, frozen=True, kw_only=True):
    """How the models are loaded and run, and by which engine."""

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
PanelPlace = Literal["beside", "below"]


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
    panel: Annotated[
        PanelPlace,
        Meta(
            description="Where the panel is: beside the chat, from 100 columns; or below it, from "
            "80.",
            extra={"flag": ""},
        ),
    ] = "beside"
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
    speculation: Speculation = Speculation(n_draft_max=AUTO, shape=AUTO, ngram=True)
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

    def to_sampling(self, recommended: Recommended | None = None) -> Sampling:
        """The sampling of a reply, for the engine. The recommended values apply to the settings
        that the user has not set."""
        values = {key: getattr(self.generation, key) for key in Sampling.__struct_fields__}
        if values["seed"] == -1:
            values["seed"] = None
        for key, value in (recommended or {}).items():
            if value is not None and key in values and f"generation.{key}" not in self.given:
                values[key] = value
        return Sampling(**values)

    def to_thinking(self) -> Thinking:
        """The settings of reasoning, for the engine."""
        enabled = {"auto": None, "on": True, "off": False}[self.generation.thinking]
        return Thinking(enabled=enabled, effort=self.generation.effort or None)

    def to_load_options(self) -> LoadOptions:
        """The settings of a load, for the engine."""
        return msgspec.convert(self.engine, LoadOptions, from_attributes=True)


TABLES = tuple(name for name in Settings.__struct_fields__ if name not in ("given", "server"))
"""The tables of config.toml."""
