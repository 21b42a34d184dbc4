"""What flags, screen and documentation take from the model."""

from __future__ import annotations

from operator import attrgetter

import msgspec
import pytest

from eaglechat.settings.description import (
    SettingDoc,
    WrongValueError,
    check,
    describe,
    find,
    parse,
    wanted,
    written,
)
from eaglechat.settings.model import ServerSettings, Settings
from eaglechat.settings.said import SAID
from eaglechat.wire.protocol import LoadOptions, Sampling, Speculation

DOCS = list(describe())


def test_every_setting_is_described_once() -> None:
    present = {
        f"{table}.{key}"
        for table, values in msgspec.to_builtins(Settings()).items()
        for key in values
    }
    assert {doc.name for doc in DOCS} == present
    assert len(DOCS) == len(present)
    servers = {f"server.{key}" for key in ServerSettings.__struct_fields__}
    assert {f"{table}.{key}" for table in SAID for key in SAID[table]} == present | servers
    flags = [doc.flag for doc in DOCS if doc.flag]
    assert len(set(flags)) == len(flags)


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)
def test_a_setting_says_what_it_takes_and_takes_its_default_as_it_writes_it(
    doc: SettingDoc,
) -> None:
    assert doc.description.endswith(".")
    assert wanted(doc)
    assert parse(doc, written(doc.default)) == doc.default
    for least_or_most in (doc.range.minimum, doc.range.maximum):
        if least_or_most is not None and doc.kind is not tuple and not doc.range.above_minimum:
            assert check(doc, doc.kind(least_or_most)) == least_or_most


def test_what_fits_is_said_of_each_kind() -> None:
    said = {doc.key: wanted(doc) for doc in DOCS}
    assert said["temperature"] == "a number between 0 and 5"
    assert said["top_k"] == "a whole number, 0 or more"
    assert said["repeat_penalty"] == "a number above 0 and at most 4"
    assert said["n_draft_max"] == "a whole number between 0 and 16, or auto"
    assert said["split_mode"] == "none, layer or row"
    assert said["enabled"] == "true or false"
    assert said["theme"] == "text"
    assert said["folders"] == 'a list of strings, such as ["/data/models"]'


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("generation.temperature", " .5 ", 0.5),
        ("generation.temperature", "1", 1.0),
        ("generation.system_prompt", " be brief ", " be brief "),
        ("speculation.n_draft_max", "auto", "auto"),
        ("speculation.n_draft_max", "16", 16),
        ("speculation.enabled", "off", False),
        ("speculation.enabled", "true", True),
        ("engine.kv_type", "q8_0", "q8_0"),
        ("engine.tensor_split", "3,1", (3.0, 1.0)),
        ("engine.tensor_split", "[3, 0.5]", (3.0, 0.5)),
        ("engine.tensor_split", "", ()),
        ("engine.command", '["ssh", "box"]', ("ssh", "box")),
    ],
)
def test_values_are_typed_as_people_write_them(name: str, text: str, value: object) -> None:
    assert parse(find(*name.split(".")), text) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("generation.temperature", "9", "9 must be between 0 and 5"),
        ("generation.temperature", "nan", "nan must be between 0 and 5"),
        ("generation.temperature", "", '"" must be a number between 0 and 5'),
        ("generation.top_k", "1.5", '"1.5" must be a whole number, 0 or more'),
        ("speculation.enabled", "maybe", '"maybe" must be true or false'),
        ("engine.tensor_split", "3,x", '"3,x" must be a list of at most 16 numbers'),
        ("engine.tensor_split", ",".join("1" * 17), "must be a list of at most 16 numbers"),
        ("engine.command", "ssh", '"ssh" must be a list of strings, such as ["ssh"'),
        ("generation.system_prompt", "\udcff", "not text in UTF-8"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_what_would(
    name: str, text: str, reason: str
) -> None:
    with pytest.raises(WrongValueError) as refused:
        parse(find(*name.split(".")), text)
    assert reason in str(refused.value)


def test_the_engine_gets_what_the_settings_say() -> None:
    defaults = Settings()

    assert defaults.to_sampling().seed is None
    assert type(defaults.to_load_options()) is LoadOptions
    assert defaults.with_value("speculation", "n_draft_max", 5).speculation.n_draft_max == 5


@pytest.mark.parametrize(
    ("table", "wire", "convert"),
    [
        ("generation", Sampling, Settings.to_sampling),
        ("speculation", Speculation, attrgetter("speculation")),
        ("engine", LoadOptions, Settings.to_load_options),
    ],
)
def test_every_field_of_the_wire_is_a_setting_and_arrives(
    table: str, wire: type[msgspec.Struct], convert: object
) -> None:
    assert callable(convert)
    for field in wire.__struct_fields__:
        doc = find(table, field)
        other = _another_value(doc)
        assert getattr(convert(Settings().with_value(table, field, other)), field) == other


def _another_value(doc: SettingDoc) -> object:
    """A value that fits and is not the default."""
    if doc.kind is bool:
        return not doc.default
    if doc.kind is tuple:
        return doc.example
    if doc.choices:
        return next(choice for choice in doc.choices if choice != doc.default)
    assert doc.range.minimum is not None
    return check(doc, doc.kind(doc.range.maximum or 7))
