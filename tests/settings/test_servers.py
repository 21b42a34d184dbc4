"""The servers of config.toml: each entry by itself."""

from __future__ import annotations

from pathlib import Path

from eaglechat.settings import config_file
from eaglechat.settings.model import ServerSettings


def load(tmp_path: Path, text: str) -> tuple[tuple[ServerSettings, ...], list[str]]:
    file = tmp_path / "config.toml"
    file.write_text(text)
    loaded, problems = config_file.load(file)
    return loaded.server, [problem.reason for problem in problems]


def test_an_entry_is_read_with_all_that_it_may_say(tmp_path: Path) -> None:
    servers, problems = load(
        tmp_path,
        '[[server]]\nname = "a"\nurl = "h:1"\nkey_command = ["pass", "a"]\n'
        'headers = { X-Team = "birds" }\ntimeout = 5\n[[server]]\nname = "b"\nurl = "h:2"\n',
    )
    assert problems == []
    assert [server.name for server in servers] == ["a", "b"]
    assert servers[0].key_command == ("pass", "a")
    assert servers[0].headers == {"X-Team": "birds"}
    assert (servers[0].timeout, servers[1].timeout) == (5.0, 300.0)


def test_a_wrong_entry_costs_only_itself(tmp_path: Path) -> None:
    servers, problems = load(
        tmp_path,
        '[[server]]\nname = "a"\nurl = "h:1"\n[[server]]\nname = "b"\n'
        '[[server]]\nname = "c"\nurl = "h"\nkey = "secret"\n'
        '[[server]]\nname = "a"\nurl = "h:3"\n[[server]]\nname = "d"\nurl = "h"\ntimeout = 0\n'
        '[[server]]\nname = "e"\nurl = "h"\nheaders = { X-Key = "two\\nlines" }\n'
        '[[server]]\nname = "f"\nurl = "h"\nheaders = { "no name" = "x" }\n',
    )
    assert [server.url for server in servers] == ["h:1"]
    assert [problem.split(":")[0] for problem in problems] == [
        "number 2 is left out", "number 3 is left out", "number 4 is left out",
        "number 5 is left out", "number 6 is left out", "number 7 is left out",
    ]  # fmt: skip
    assert not any("secret" in problem for problem in problems)


def test_a_table_is_no_list_of_servers(tmp_path: Path) -> None:
    servers, (problem,) = load(tmp_path, '[server]\nname = "a"\n')
    assert servers == ()
    assert "[[server]]" in problem
