"""The model of the settings: the one place that defines them.

The tables of config.toml, the flags, the settings screen and the documentation are made from it,
and from what `said.py` says of each. A setting that a message to the engine has is inherited from
there.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from eaglechat.wire.protocol import (
    AUTO,
    SEED_LIMIT,
    LoadOptions,
    Recommended,
    Sampling,
    Speculation,
    Thinking,
)

ThinkingMode = Literal["auto", "on", "off"]


class GenerationSettings(Sampling, frozen=True, kw_only=True):
    """How replies are written."""

    seed: Annotated[int, Meta(ge=-1, le=SEED_LIMIT)] = -1
    max_tokens: Annotated[int, Meta(ge=0)] = 0
    thinking: ThinkingMode = "auto"
    effort: str = ""
    system_prompt: str = ""
    role: str = ""


class EngineSettings(LoadOptions, frozen=True, kw_only=True):
    """How the models are loaded and run, and by which engine."""

    llama_server: str = ""
    command: tuple[str, ...] = ()


class LibrarySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where models are looked for."""

    folders: tuple[str, ...] = ()


View = Literal["live", "read", "trace"]
PanelPlace = Literal["beside", "below"]


class InterfaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the app looks."""

    theme: str = "eagle-dark"
    view: View = "live"
    show_panel: bool = True
    panel: PanelPlace = "beside"
    inspect: bool = False
    notify: Literal["bell", "desktop", "off"] = "bell"
    notify_after: Annotated[int, Meta(ge=0)] = 10


SERVER_KEY = "EAGLECHAT_SERVER_KEY"
"""The environment variable that holds the API key of a server without an entry."""

Seconds = Annotated[float, Meta(gt=0.0, le=86_400.0)]
Text = Annotated[str, Meta(min_length=1)]
HeaderName = Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Meta(pattern=r"^[ -~]*$")]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry `[[server]]` of config.toml."""

    name: Text
    url: Text
    model: str = ""
    plain_model: str = ""
    key_env: str = ""
    key_command: tuple[str, ...] = ()
    headers: dict[HeaderName, HeaderValue] = {}
    ca_file: str = ""
    connect_timeout: Seconds = 10.0
    timeout: Seconds = 300.0


def key_variable() -> str:
    """The name of the environment variable with the API key of a server without an entry; empty if
    the variable is not set."""
    return SERVER_KEY if os.environ.get(SERVER_KEY) else ""


CommandKeys = tuple[str, ...] | str


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
