"""The documentation says what the program does."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.theme import Theme

from eaglechat import cli
from eaglechat.settings.description import describe
from eaglechat.tui.themes import read_theme
from eaglechat.wire import errors, protocol, records, stats
from eaglechat.wire.protocol import LoadOptions, decode_event, decode_request, encode

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]

REQUESTS = {type_.__struct_config__.tag: type_ for type_ in protocol.Request.__subclasses__()}
EVENTS = {type_.__struct_config__.tag: type_ for type_ in protocol.Event.__subclasses__()}
STEPS = {type_.__struct_config__.tag: type_ for type_ in protocol.Step.__args__}
RECORDS = {
    type_.__name__: type_
    for type_ in (
        LoadOptions, protocol.Message, protocol.Sampling, protocol.Speculation,
        protocol.PairInfo, protocol.DrafterInfo, protocol.ModelInfo,
        records.AutoDraft, records.ReplyEnd, stats.SpeculationStats,
        protocol.Capabilities, protocol.Thinking, protocol.Reasoning,
    )
}  # fmt: skip


def _load_generator() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["settings", "keys", "servers"])
def test_generated_parts_are_up_to_date(name: str) -> None:
    generator = _load_generator()
    written = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert written == generator.with_part(written, generator.PARTS[name]()), (
        "run: python docs/generate.py"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", _text(page)):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in _anchors(file), f"{page.name} links to {target}#{anchor}"


def test_pages_name_only_keys_of_commands() -> None:
    key = re.compile(r"`(Ctrl\+G [^`]+|Ctrl\+[A-Z]|F\d+|Alt\+.)`")
    # In a terminal it interrupts; in the app Textual copies what is selected.
    known = {*key.findall(_text(DOCS / "keys.md")), "Ctrl+C"}
    named = {(page.name, name) for page in PAGES for name in key.findall(_text(page))}
    assert len(named) > 60
    assert sorted(pair for pair in named if pair[1] not in known) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_only_flags_that_exist(page: Path) -> None:
    for line in re.findall(r"`[^`\n]*eaglechat [^`\n]*`|^[^|\n]*eaglechat .*$", _text(page), re.M):
        command = line.split("&&")[-1]
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", command)) <= _flags(), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_only_flags_of_tools_that_exist(page: Path) -> None:
    for tool, rest in re.findall(r"-m tests\.tools\.(\w+)([^`\n]*)", _text(page)):
        source = _text(ROOT / "tests" / "tools" / f"{tool}.py")
        for flag in re.findall(r"--[a-z][a-z-]*", rest):
            assert f'"{flag}"' in source, f"{tool} has no {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_one(page: Path) -> None:
    for line in _commands(page):
        cli.parse(shlex.split(line, comments=True))


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(_text(ROOT / "README.md").split()) < 700


def test_pictures_are_made_by_the_script() -> None:
    calls = r'(?:save|save_film|write|mid_reply)\("(\w+)"'
    made = set(re.findall(calls, _text(DOCS / "pictures.py")))
    used = {name for page in PAGES for name in re.findall(r"images/(\w+)\.svg", _text(page))}
    assert {file.stem for file in (DOCS / "images").iterdir()} == made == used


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_flag_of_a_command_is_explained_in_its_section(command: str) -> None:
    """Those of a model stand above all, and settings have a page of their own. Of bench
    and train, `--help` has all, and the pages show those that a reader chooses by."""
    page = DOCS / "commands.md"
    section = _section(page, f"`eaglechat {command}`")
    if command == "train":
        section = _text(DOCS / "training.md")
    explained = _flags_in(section)
    shared = _flags_in(_text(page).partition("\n## ")[0])
    of_settings = {flag for doc in describe() for flag in (doc.flag, *dict(doc.shorthand))}
    flags = _flags_of(_parser_of(command)) - {"--help", "-h", "-o"}
    assert command in ("bench", "train") or flags - of_settings - shared <= explained
    assert explained <= flags


def test_every_setting_s_flag_is_on_the_settings_page() -> None:
    flags = set(re.findall(r"^- `\w+`, `(--[a-z-]+)` ", _text(DOCS / "settings.md"), re.M))
    assert {doc.flag for doc in describe()} - {""} <= flags


@pytest.mark.parametrize("tag", [*REQUESTS, *EVENTS, *STEPS])
def test_protocol_shows_a_line_of_every_message(tag: str) -> None:
    """Each message, and each step of progress, has a section with an example that is one, and a
    line for each field; what an `id` is stands above all."""
    section = _section(DOCS / "protocol.md", f"`{tag}`")
    example = _json_blocks(section)[0]
    is_request = tag in REQUESTS
    decode = decode_request if is_request else decode_event
    message = decode(example.encode())
    if not is_request:
        assert encode(message).decode().strip() == example
    shown = message.step if tag in STEPS else message
    assert type(shown) is (REQUESTS | EVENTS | STEPS)[tag]
    fields = [field for field in shown.__struct_fields__ if field != "id"]
    assert _documented_fields(section) == fields


@pytest.mark.parametrize("name", RECORDS)
def test_protocol_explains_every_field_of_a_record(name: str) -> None:
    type_ = RECORDS[name]
    fields = [field.name for field in msgspec.inspect.type_info(type_).fields]  # type: ignore[union-attr]
    assert _documented_fields(_section(DOCS / "protocol.md", f"`{name}`")) == fields


def test_protocol_lists_only_codes_that_are_sent() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", _section(DOCS / "protocol.md", "`error`"), re.M))
    known = {type_.code for type_ in _subclasses(errors.EngineError)}
    assert listed <= known | {"protocol", "no_pair", "internal"}


def test_the_theme_in_the_documentation_is_one(tmp_path: Path) -> None:
    example = re.findall(r"```toml\n(name = .*?)```", _text(DOCS / "settings.md"), re.DOTALL)[0]
    file = tmp_path / "paper.toml"
    file.write_text(example, encoding="utf-8")
    assert isinstance(read_theme(file), Theme)


def test_architecture_names_only_what_is_there() -> None:
    names = re.findall(r"`([\w/]+\.(?:py|toml|md)|[\w/]+/)`", _text(DOCS / "architecture.md"))
    there = {
        f"/{path.relative_to(ROOT).as_posix()}" + "/" * path.is_dir()
        for folder in ("eaglechat", "docs", "themes")
        for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
    }
    assert [n for n in names if n != "config.toml" and not _ends(there, f"/{n}")] == []


@pytest.mark.real
def test_commands_explains_what_run_prints(tmp_path: Path, loaded_before: None) -> None:
    page = DOCS / "commands.md"
    trace = tmp_path / "trace.jsonl"
    flags = ["--json", "--trace", str(trace), "--temperature", "0", "--max-tokens", "6"]
    command = [sys.executable, "-m", "eaglechat", "run", "--threads", "1", *flags, "Hello"]
    printed = subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout
    fields = list(_leaves(json.loads(printed)))
    section = _section(page, "`--json`")
    items = re.findall(r"^- ((?:`[\w.]+`(?:, )?)+): ", section, re.M)
    listed = re.findall(r"`([\w.]+)`", " ".join(items))
    for field in fields:
        assert any(field == name or field.startswith(f"{name}.") for name in listed), field
    for name in listed:
        assert any(field == name or field.startswith(f"{name}.") for field in fields), name
    assert list(_leaves(json.loads(_json_blocks(section)[0]))) == fields
    for line in trace.read_text().splitlines():
        assert msgspec.json.decode(line, type=records.Round).tokens


def _ends(paths: set[str], end: str) -> bool:
    return any(path.endswith(end) for path in paths)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _section(page: Path, title: str) -> str:
    """The text under a heading, up to the next heading of its level or above."""
    text = _text(page)
    heading = re.search(rf"^(#+) {re.escape(title)}$", text, re.M)
    assert heading is not None, f"{page.name} has no section {title}"
    rest = text[heading.end() :]
    end = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.M)
    return rest[: end.start()] if end else rest


def _flags_in(section: str) -> set[str]:
    """The flags at the beginning of its list items."""
    items = re.findall(r"^- ((?:`-[^`]*`(?:, )?)+): ", section, re.M)
    return {flag for item in items for flag in re.findall(r"`(--[a-z-]+)", item)}


def _json_blocks(section: str) -> list[str]:
    return [block.strip() for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL)]


def _documented_fields(section: str) -> list[str]:
    """The fields at the beginning of the section's list items, in order."""
    items = re.findall(r"^- ((?:`\w+`(?:, )?)+)(?::|$)", section, re.M)
    return re.findall(r"`(\w+)`", " ".join(items))


def _commands(page: Path) -> Iterator[str]:
    """What follows `eaglechat` in a page's blocks, up to a pipe or the next command."""
    text = re.sub(r"\\\n\s*", "", _text(page))
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.M):
        for line in block.splitlines() if kind in ("", "sh") else ():
            for command in re.split(r" && | \| | < | 2?> ", line.strip()):
                found = re.match(
                    r"(?:\S+=\S+ )?(?:\S*[/\\])?eaglechat(?= --?[a-z]| [a-z]+( |$))", command
                )
                if found:
                    yield command[found.end() :]


def _anchors(page: Path) -> list[str]:
    """What GitHub calls the page's headings; a repeated one gets a number."""
    prose = re.sub(r"```.*?```", "", _text(page), flags=re.DOTALL)
    anchors: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", prose, re.M):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", one) is not None for one in anchors)
        anchors.append(f"{name}-{again}" if again else name)
    return anchors


def _parser_of(command: str) -> argparse.ArgumentParser:
    return cli.parser_of(command)[1]


def _flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", parser.format_help()))


def _flags() -> set[str]:
    """Every flag of every command."""
    return set().union(*(_flags_of(_parser_of(command)) for command in ("", *cli.COMMANDS)))


def _subclasses(type_: type[errors.EngineError]) -> Iterator[type[errors.EngineError]]:
    for one in type_.__subclasses__():
        yield one
        yield from _subclasses(one)


def _leaves(value: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name
