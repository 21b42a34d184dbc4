"""Writing one setting leaves the rest of the file alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat import settings
from eaglechat.settings.writing import SettingsFileError, save_setting


def test_comments_and_other_values_survive(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    before = "# hello\n[generation] # how\ntop_k = 20 # few\n\n[other]\nx = 1\n"
    file.write_text(before)
    save_setting(file, "generation", "temperature", 0.25)
    save_setting(file, "engine", "command", ("ssh", "box"))
    text = file.read_text()
    assert "# hello" in text
    assert "top_k = 20 # few" in text
    loaded, _problems = settings.load(file)
    assert loaded.generation.temperature == 0.25
    assert loaded.generation.top_k == 20
    assert loaded.engine.command == ("ssh", "box")


def test_a_setting_is_taken_out_again(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[generation]\ntop_k = 20 # few\n")
    save_setting(file, "generation", "temperature", 0.25)
    save_setting(file, "generation", "temperature", None)
    save_setting(file, "generation", "top_p", None)
    assert file.read_text() == "[generation]\ntop_k = 20 # few\n"


def test_what_nobody_set_needs_no_table(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n")
    save_setting(file, "generation", "top_k", None)
    assert file.read_text() == "# mine\n"


def test_the_line_ends_and_the_mark_of_a_windows_editor_stay(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbf# mine\r\n[generation]\r\ntop_k = 3 # few\r\n")
    save_setting(file, "generation", "top_p", 0.5)
    save_setting(file, "generation", "top_k", 4)
    assert file.read_bytes() == (
        b"\xef\xbb\xbf# mine\r\n[generation]\r\ntop_k = 4 # few\r\ntop_p = 0.5\r\n"
    )


def test_a_missing_file_is_made_with_its_directory(tmp_path: Path) -> None:
    save_setting(tmp_path / "new" / "config.toml", "interface", "theme", "eagle-light")
    loaded, problems = settings.load(tmp_path / "new" / "config.toml")
    assert loaded.interface.theme == "eagle-light"
    assert not problems


@pytest.mark.parametrize("value", [3, None])
@pytest.mark.parametrize("content", ["not = = toml", "generation = 3\n", "[[generation]]\nx = 1\n"])
def test_a_file_that_cannot_be_changed_is_left_and_named(
    tmp_path: Path, content: str, value: int | None
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(content)
    with pytest.raises(SettingsFileError, match=r"config\.toml was not changed"):
        save_setting(file, "generation", "top_k", value)
    assert file.read_text() == content
