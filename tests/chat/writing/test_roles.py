"""Roles: files that are checked, their settings, and the chat that remembers its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.chat.writing.roles import (
    TEMPLATE,
    Role,
    find_role,
    load_roles,
    read_role,
)
from eaglechat.settings.model import GenerationSettings, Settings
from tests.chat.headless import Headless, saved_chats

PIRATE = 'description = "Talks\\n like one"\nsystem_prompt = "Arr."\ntemperature = 1.5\n'


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    folder = tmp_path / "roles"
    folder.mkdir()
    (folder / "pirate.toml").write_text(PIRATE)
    (folder / "plain.toml").write_text("")
    return folder


def test_a_role_is_settings_with_a_name(roles: Path) -> None:
    (pirate, plain), problems = load_roles(roles)
    assert (pirate.name, pirate.description, problems) == ("pirate", "Talks like one", [])
    applied = pirate.applied(Settings())
    assert (applied.generation.system_prompt, applied.generation.temperature) == ("Arr.", 1.5)
    assert applied.generation.top_k == Settings().generation.top_k
    assert plain.applied(Settings()) == Settings()
    assert load_roles(roles / "nowhere") == ([], [])


def test_a_name_that_no_file_can_have_is_a_problem(roles: Path) -> None:
    found = find_role(roles, "a" * 300)
    assert isinstance(found, str)
    assert "cannot be read" in found


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"temperature = 9", "temperature 9 must be"),
        (b"temprature = 1", "temprature is no key of a role"),
        (b"system_prompt = [1]", "system_prompt"),
        (b"description = 3", "description must be text"),
        (b"[generation]\ntemperature = 1", "generation is no key of a role"),
        (b"role = 'x'", "role is no key of a role"),
        (b"= 3", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"a = " + b"[" * 100_000, "cannot be read"),
        (b"#" * 300_000, "is longer than"),
    ],
    ids=["range", "key", "list", "description", "table", "role", "toml", "bytes", "deep", "long"],
)
def test_a_bad_file_is_said_and_skipped(roles: Path, content: bytes, said: str) -> None:
    (roles / "bad.toml").write_bytes(content)
    good, [problem] = load_roles(roles)
    assert [role.name for role in good] == ["pirate", "plain"]
    assert "bad.toml" in problem
    assert said in problem


@given(st.binary(max_size=60))
def test_whatever_is_in_a_file_it_is_a_role_or_a_problem(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    read = read_role(file)
    assert isinstance(read, Role) or read


def test_a_name_leads_nowhere_else(roles: Path) -> None:
    (roles.parent / "outside.toml").write_text(PIRATE)
    assert isinstance(find_role(roles, "pirate"), Role)
    for name in ("../outside", "", ".", "nobody", "a\0b", "a\nb"):
        assert find_role(roles, name) is None


def test_a_new_role_begins_as_one(roles: Path) -> None:
    (roles / "new.toml").write_text(TEMPLATE)
    assert isinstance(read_role(roles / "new.toml"), Role)


def test_a_chat_is_asked_in_its_role_and_remembers_it(tmp_path: Path, roles: Path) -> None:
    chat = Headless(tmp_path, roles=roles)
    role = find_role(roles, "pirate")
    assert isinstance(role, Role)
    before = chat.session.controls.temperature
    chat.session.choose_role(role)
    chat.ask("why?")
    request = chat.last_request
    assert [message.role for message in request.messages] == ["system", "user"]
    assert (request.messages[0].content, request.sampling.temperature) == ("Arr.", 1.5)
    chat.leave()

    again = Headless(tmp_path, *saved_chats(tmp_path), roles=roles)
    assert again.session.role == role
    assert again.session.controls.temperature == 1.5
    again.session.choose_role(None)
    assert again.session.controls.temperature == before
    again.ask("and now?")
    assert again.last_request.messages[0].role == "user"
    again.leave()

    assert Headless(tmp_path, *saved_chats(tmp_path), roles=roles).session.role is None


def test_a_role_that_is_gone_or_wrong_is_said(tmp_path: Path, roles: Path) -> None:
    chat = Headless(tmp_path, roles=roles)
    role = find_role(roles, "pirate")
    assert isinstance(role, Role)
    chat.session.choose_role(role)
    chat.ask("why?")
    chat.leave()
    (roles / "pirate.toml").write_text("temperature = 9")
    wrong = Headless(tmp_path, *saved_chats(tmp_path), roles=roles)
    (roles / "pirate.toml").unlink()
    gone = Headless(tmp_path, *saved_chats(tmp_path), roles=roles)
    assert wrong.session.role is gone.session.role is None
    assert any("must be between 0 and 5. This chat continues" in text for text in wrong.shown)
    assert any("The role “pirate” no longer exists" in text for text in gone.shown)


def test_new_chats_begin_in_the_role_of_the_settings(tmp_path: Path, roles: Path) -> None:
    settings = Settings(generation=GenerationSettings(role="pirate"))
    chat = Headless(tmp_path, settings=settings, roles=roles)
    assert chat.session.controls.temperature == 1.5
    chat.session.open()
    assert chat.session.role is not None
