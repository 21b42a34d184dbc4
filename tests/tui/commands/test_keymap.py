"""`[keys]`: other keys for commands, checked with a sentence for each that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.settings.config_file import load
from eaglechat.settings.model import Settings
from eaglechat.tui.commands.keys import clashes, read_keymap
from eaglechat.tui.commands.table import COMMANDS
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.help import HelpScreen
from eaglechat.tui.screens.more import MoreScreen
from tests.tui.driving import Driver

Drive = Callable[..., Driver]
IDS = [command.id for command in COMMANDS]


def read(**keys: str | tuple[str, ...]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    named = {id.replace("__", "."): key for id, key in keys.items()}
    keymap, problems = read_keymap(named, Path("config.toml"))
    return dict(keymap), [f"{problem.key} {problem.reason}" for problem in problems]


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("Ctrl+X", "ctrl+x"), ("alt+Up", "alt+up"), ("F4", "f4"), ("esc", "escape"),
        ("ctrl+/", "ctrl+slash"), ("shift+ctrl+a", "ctrl+shift+a"), ("ctrl++", "ctrl+plus"),
        ("leader v", "leader v"), ("Leader ?", "leader question_mark"), ("PgUp", "pageup"),
    ],
)  # fmt: skip
def test_a_key_is_read_as_people_write_it(written: str, key: str) -> None:
    others = ("chat.view", "app.help", "chat.find", "chat.more", "chat.stop")
    elsewhere = {id: f"f{20 + n}" for n, id in enumerate(others)}
    keymap, problems = read_keymap({**elsewhere, "chat.new": written}, Path("c"))
    assert (keymap["chat.new"], problems) == ((key,), [])


@pytest.mark.parametrize(
    ("id", "keys", "said"),
    [
        ("chat.stp", "ctrl+x", "is not a command (did you mean chat.stop?), and is ignored"),
        ("chat.stop", "ctrl+", "ctrl+ is not a key; write one as ctrl+x, alt+up, f5 or ?"),
        ("chat.stop", "hyper+x", "hyper+x is not a key"),
        ("chat.stop", "", " is not a key"),
        ("chat.stop", (), "needs at least one key"),
        ("chat.stop", "ctrl+i", "ctrl+i cannot be told from Tab in a terminal"),
        ("chat.new", "n", "n types text; add ctrl or alt, or use a function key or “leader n”"),
        ("list.choose", "k", "k types text"),
        ("chat.new", "ctrl+l", "ctrl+l belongs to chat.load_again on the same screen"),
        ("chat.new", "ctrl+q", "ctrl+q belongs to app.quit on the same screen"),
        ("chat.temperature", "f20", "takes a value and cannot have a key"),
        ("chat.new", "ctrl+g v", "two keys start with leader, as in “leader v”"),
        ("app.leader", "leader v", "the leader cannot follow itself"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_and_costs_only_itself(
    id: str, keys: str | tuple[str, ...], said: str
) -> None:
    keymap, [problem] = read_keymap({id: keys, "chat.compare": "f20"}, Path("config.toml"))
    assert keymap == {"chat.compare": ("f20",)}
    assert said in str(problem)
    assert str(problem).startswith(f"config.toml: keys.{id} ")


def test_two_commands_may_change_keys() -> None:
    swapped = {"chat.new": "ctrl+t", "chats.open": "ctrl+n"}
    keymap, problems = read_keymap(swapped, Path("c"))
    assert (keymap, problems) == ({"chat.new": ("ctrl+t",), "chats.open": ("ctrl+n",)}, [])


def test_of_two_on_one_key_the_later_gives_way() -> None:
    keymap, [problem] = read_keymap({"chat.new": "f20", "chat.stop": "f20"}, Path("c"))
    assert list(keymap) in (["chat.new"], ["chat.stop"])
    assert "f20 belongs to" in str(problem)


KEYS = st.one_of(
    st.sampled_from([key for command in COMMANDS for key in command.keys]),
    st.text(max_size=12),
    st.from_regex(r"(ctrl|alt|shift)\+[a-z]", fullmatch=True),
)


@given(st.dictionaries(st.sampled_from([*IDS, "nothing"]), st.one_of(KEYS, st.tuples(KEYS, KEYS))))
def test_whatever_is_written_no_key_has_two_meanings(
    given: dict[str, str | tuple[str, ...]],
) -> None:
    keymap, problems = read_keymap(given, Path("c"))
    assert list(clashes(keymap)) == []
    assert len(keymap) + len(problems) == len(given)


def test_the_configuration_file_has_a_table_for_them(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[keys]\n"chat.stop" = "ctrl+x"\n"chat.new" = ["f20", "f21"]\n"x.y" = 5\n')
    settings, [problem] = load(file)
    assert settings.keys == {"chat.stop": "ctrl+x", "chat.new": ("f20", "f21")}
    assert str(problem).endswith('a list of strings, such as ["ctrl+x", "f4"]; it is ignored')


async def test_remapped_keys_hold_in_bindings_help_search_footer_and_sentences(
    drive: Drive,
) -> None:
    # Ctrl+X is cut in the prompt: a key that is given to a command is the command's.
    keys = {"chat.stop": "ctrl+x", "app.leader": "ctrl+k", "chat.view": ("leader 0", "f20")}
    async with drive(settings=Settings(keys=keys)) as user:
        await user.open_chat()
        await user.sees("^K commands")
        await user.ask("hello", rounds=2)
        await user.sees("^X stop")
        assert "Esc stop" not in user.text
        await user.command("chat.again")
        await user.sees("A reply is being written: Ctrl+X stops it")
        await user.press("escape")
        assert user.chat.session.running is not None
        await user.press("ctrl+x")
        await user.idle()

        await user.press("ctrl+k")
        await user.on(MoreScreen)
        await user.sees("0  View live")
        await user.press("0")
        await user.on(ChatScreen)
        await user.until(lambda: user.chat.transcript.view == "read", "the view to read")
        await user.press("f20")
        await user.until(lambda: user.chat.transcript.view == "trace", "the tokens")

        await user.press("f1")
        await user.on(HelpScreen)
        await user.sees("Ctrl+K 0, F20")
        await user.press("escape", "ctrl+p")
        await user.type("rendered")
        await user.sees("View: Show replies")
