"""Settings, files, palette, notices, and what the terminal cannot do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.filter import Monochrome, NoColor
from textual.widgets import OptionList, Static

from eaglechat import paths
from eaglechat.settings.config_file import load
from eaglechat.settings.description import describe
from eaglechat.settings.model import InterfaceSettings, Settings
from eaglechat.tui.app import EagleApp
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.help import HelpScreen
from eaglechat.tui.screens.menu.files import is_path, places
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.wire import protocol
from tests.tui.driving import WIDE, Driver

Drive = Callable[..., Driver]


async def test_a_value_that_does_not_fit_is_said_at_its_setting(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive() as user:
        await user.open_settings()
        await user.press("enter", "9", "enter")
        await user.sees("Not saved: 9 must be between 0 and 5")
        await user.press("a", "enter")
        await user.sees("must be a number between 0 and 5")
        await user.press("escape")
        await user.until(lambda: "Not saved" not in user.text, "the list again")
        await user.press("escape", to=MenuScreen)
    assert not (tmp_path / "config.toml").exists()
    assert user.app.services.settings.current == Settings()


async def test_settings_are_found_by_typing_and_changed_by_arrows_and_enter(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_settings()
        await user.type("gpus share")
        await user.sees("How several GPUs share the target; none uses main_gpu alone.")
        await user.sees("[layer]")
        assert "temperature" not in user.text
        await user.press("left")
        await user.sees("[none]")
        await user.press("right", "right", "left", "left")
        # Escape empties the filter, and the setting stays the highlighted one.
        await user.press("escape", "down", "down", "enter")
        await user.type("[3, 1]", "enter")
        await user.sees("tensor_split      [3.0, 1.0]")
        await user.type("no such")
        await user.sees("No setting has “no such”")
        await user.press("enter", "right", "escape", "escape", to=MenuScreen)
    loaded, problems = load(tmp_path / "config.toml")
    assert problems == []
    assert (loaded.engine.split_mode, loaded.engine.tensor_split) == ("none", (3, 1))


@pytest.mark.parametrize("size", [(60, 15), WIDE])
async def test_each_setting_has_a_line_and_its_whole_help(
    drive: Drive, size: tuple[int, int]
) -> None:
    async with drive(size=size) as user:
        await user.open_settings()
        rows = user.app.screen.query_one("#list", OptionList)
        meaning = user.app.screen.query_one("#meaning", Static)
        seen = []
        for doc in describe():
            await user.until(lambda doc=doc: doc.key in user.text, doc.name)
            assert user.inside(meaning.region)
            said = " ".join(user.text.split())
            seen += [doc.name] if doc.description.split()[0] in said else []
            await user.press("down")
        assert seen == [doc.name for doc in describe()]
        assert rows.option_count == len(describe()) + len({doc.table for doc in describe()})


async def test_files_of_your_own(drive: Drive, models: Path) -> None:
    async with drive(size=(80, 24)) as user:
        await user.type(f"{models}/dra")
        await user.sees_row("draft.gguf", "cannot run")
        await user.press("enter", to=Ask)
        await user.sees("is a draft (architecture eagle3)")
        await user.press("escape", "ctrl+u")
        await user.type(str(models))
        await user.press("tab")
        await user.sees_row("target.gguf", "fits", "no draft")
        await user.type("tar")
        await user.press("tab", "enter", to=ChatScreen)
        load = user.engine.requests(protocol.Load)[-1]
        assert (load.target, load.draft) == (str(models / "target.gguf"), None)
        await user.press("ctrl+o", to=MenuScreen)
        await user.sees_row("target", "fits", "no draft")


async def test_the_search_turns_controls_and_changes_the_theme(
    drive: Drive, tmp_path: Path
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.press("ctrl+p", to=HelpScreen)
        await user.type("shape tree")
        await user.sees("shape: tree")
        await user.press("enter")
        await user.until(lambda: user.chat.session.controls.shape == "tree", "trees")
        await user.on(ChatScreen)
        await user.press("ctrl+p", to=HelpScreen)
        await user.type("theme")
        await user.sees("Choose a theme")
        await user.press("enter")
        await user.sees("interface.theme: eagle-light")
        await user.type(" eagle-light")
        await user.until(lambda: "textual-dark" not in user.text, "the search for the theme")
        await user.press("enter")
        await user.until(lambda: user.app.theme == "eagle-light", "the theme")
    assert 'theme = "eagle-light"' in (tmp_path / "config.toml").read_text()


async def test_bad_configuration_and_themes_are_told_in_one_notice(
    drive: Drive, tmp_path: Path
) -> None:
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "mine.toml").write_text('name = "mine"\nprimary = "no colour"\n')
    config = tmp_path / "config.toml"
    config.write_text('[generation]\ntop_k = -3\n[keys]\n"chat.stp" = "ctrl+x"\n')
    settings, problems = load(config)
    dirs = [paths.builtin_themes_dir(), tmp_path / "themes"]
    async with drive(settings=settings, problems=problems, theme_dirs=dirs) as user:
        await user.sees("Some of your configuration was ignored")
        assert len(user.app.screen.query("Toast")) == 1
        await user.sees("mine.toml")
        await user.sees("generation.top_k")
        await user.sees("keys.chat.stp")


async def test_the_last_reply_is_copied_without_control_characters(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        user.engine.reply = "one\n\x1b[31mred"
        await user.ask("Why?")
        await user.command("chat.copy")
        await user.until(lambda: user.app.clipboard == "one\n␛[31mred", "the copy")


async def test_control_c_copies_a_selection_and_otherwise_says_how_to_quit(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.type("copy me")
        await user.press("ctrl+c")
        await user.sees("Nothing is selected to copy; Ctrl+Q quits")
        await user.press("shift+home", "ctrl+c")
        await user.until(lambda: user.app.clipboard == "copy me", "the copy")
        await user.sees("Copied the selection through the terminal")
        assert isinstance(user.app.screen, ChatScreen)


async def test_control_c_stops_a_reply_whatever_is_selected(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("Why?", rounds=2)
        await user.sees("Esc stop")
        await user.type("copy me")
        await user.press("shift+home", "ctrl+c")
        await user.idle()
        assert user.app.clipboard == ""
        await user.sees("continue")
        assert "Esc" not in user.text.splitlines()[-1]


@pytest.mark.parametrize("ansi", [True, False])
def test_without_colour_the_kind_of_theme_is_known_before_textual_asks(
    make_app: Callable[..., EagleApp],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ansi: bool,
) -> None:
    shipped = (paths.builtin_themes_dir() / "eagle-dark.toml").read_text()
    own = shipped.replace('"eagle-dark"', '"mine"').replace(
        "ansi = false", f"ansi = {ansi}".lower()
    )
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "mine.toml").write_text(own)
    monkeypatch.setenv("NO_COLOR", "1")
    settings = Settings(interface=InterfaceSettings(theme="mine"))
    app = make_app(settings=settings, theme_dirs=[tmp_path / "themes"])
    assert app.theme == "mine"
    kinds = {type(line_filter) for line_filter in app.get_line_filters()}
    assert (NoColor in kinds, Monochrome in kinds) == (ansi, not ansi)


@pytest.mark.parametrize("path", ["~nobody-of-this-name/m.gguf", f"/{'x' * 5000}", "/nul\0byte"])
def test_a_path_that_cannot_exist_completes_to_nothing(path: str) -> None:
    assert is_path(path)
    assert places(path) == []


async def test_long_keys_in_help_keep_clear_of_what_they_do(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.press("f1")
        await user.type("undelete")
        await user.sees("Ctrl+G Backspace Undo a deletion: Restore")


async def test_a_second_question_is_asked_and_the_same_one_is_not_asked_twice(
    drive: Drive,
) -> None:
    agreed: list[str] = []
    async with drive() as user:
        await user.open_chat()
        for title in ("Delete a?", "Delete b?", "Delete b?"):
            dialog = Ask(title, f"{title} It is gone then.", "deletes it")
            user.chat.open(dialog, lambda _yes, title=title: agreed.append(title))
        await user.sees("Delete b? It is gone")
        await user.press("y")
        await user.until(lambda: agreed == ["Delete b?"], "the second")
        await user.sees("Delete a? It is gone")
        await user.press("y")
        await user.until(lambda: agreed == ["Delete b?", "Delete a?"], "the first")
        await user.on(ChatScreen)
