"""Commands that are typed: what a line with a slash is, and what it can become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.tui.commands import slash
from eaglechat.tui.commands.slash import BY_SLASH, SlashError
from eaglechat.tui.commands.table import COMMANDS, Command


def names(_command: Command) -> list[tuple[str, str]]:
    return [("writer", "writes"), ("smollm2-135m", "small")]


def test_a_name_is_one_commands() -> None:
    named = [command.slash_name for command in COMMANDS if command.slash_name]
    assert len(named) == len(set(named)) == len(BY_SLASH)
    assert {"new", "n", "p_min", "temp", "auto", "library", "copy", "compare", "help", "quit"} <= {
        *BY_SLASH
    }


@pytest.mark.parametrize(
    ("text", "id", "value"),
    [
        ("/new", "chat.new", None), ("/n 5", "chat.n_draft_max", 5),
        ("/n auto", "chat.n_draft_max", "auto"), ("/temp 0.8", "chat.temperature", 0.8),
        ("/temperature 0.8", "chat.temperature", 0.8), ("/te 1 ", "chat.temperature", 1.0),
        ("/model", "menu.library", None), ("/role a b", "chat.role", "a b"),
        ("/qu", "app.quit", None), ("/help\n", "app.help", None),
        ("/shape tree", "chat.shape", "tree"), ("/export json", "chat.export", "json"),
        ("/retry", "chat.again", None), ("/system", "chat.role", None),
        ("/history", "chats.open", None), ("/search fox", "chats.open", "fox"),
        ("/exit", "app.quit", None), ("/benchmark", "chat.compare", None),
    ],
)  # fmt: skip
def test_a_line_is_a_command(text: str, id: str, value: object) -> None:
    command, given = slash.parse(text)
    assert (command.id, given) == (id, value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/", "Type a command after the slash"),
        ("/etc/hosts", "There is no command /etc/hosts. To send it as text"),
        ("/tree", "There is no command /tree."),
        ("/hlep", "Did you mean /help?"),
        ("/th", "Did you mean /theme or /think or /thought?"),
        ("/n", "/n takes a whole number between 0 and 16, or auto."),
        ("/n 99", "/n: 99 must be between 0 and 16, or auto."),
        ("/new chat", "/new takes no value."),
        ("/new\nand more", "/new takes no value."),
    ],
)
def test_what_is_no_command_is_said(text: str, said: str) -> None:
    with pytest.raises(SlashError) as error:
        slash.parse(text)
    assert said in str(error.value)


def test_two_slashes_are_one_that_is_sent() -> None:
    assert slash.literal("//etc/hosts?") == "/etc/hosts?"
    assert slash.literal("and/or") == "and/or"
    assert slash.literal("/new") is None


@given(st.text(max_size=30))
def test_whatever_is_typed_is_a_command_a_text_or_refused_in_words(typed: str) -> None:
    text = f"/{typed}"
    assert slash.literal(slash.escaped(text)) == text
    if slash.literal(text) is not None:
        assert slash.literal(text) == typed
        return
    said = "-"
    try:
        slash.parse(text)
    except SlashError as error:
        said = str(error)
    assert said.strip()


@given(st.one_of(st.text(max_size=20), st.sampled_from(sorted(BY_SLASH))), st.text(max_size=8))
def test_each_way_to_go_on_goes_on_from_what_is_typed(name: str, value: str) -> None:
    before = f"/{name} {value}" if value else f"/{name}"
    if (offered := slash.completions_of(before, names)) is None:
        return
    for completion in offered.completions:
        if completion.text:
            whole = before[: offered.start] + completion.text
            again = slash.completions_of(whole, names)
            assert again is None or not completion.is_whole or again.start >= offered.start
            if completion.is_whole:
                assert slash.parse(whole)


def test_commands_are_offered_with_what_they_take() -> None:
    offered = slash.completions_of("/te", names)
    assert offered is not None
    (completion, *_) = offered.completions
    assert (completion.shown, completion.text, completion.is_whole) == (
        "/temp 0-5",
        "/temp ",
        False,
    )
    (hint,) = getattr(slash.completions_of("/temp ", names), "completions", ())
    assert (hint.shown, hint.text) == ("a number between 0 and 5", "")
    words = getattr(slash.completions_of("/think o", names), "completions", ())
    assert [completion.text for completion in words] == ["auto", "on", "off"]
    (role,) = getattr(slash.completions_of("/role smol", names), "completions", ())
    assert (role.text, role.is_whole) == ("smollm2-135m", True)
    assert slash.completions_of("//te", names) is None
    assert slash.completions_of("te", names) is None
    assert slash.completions_of("/new ", names) is None
