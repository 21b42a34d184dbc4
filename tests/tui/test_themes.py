"""Themes: what ships is readable by everyone; a bad file is named and never breaks the app."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from textual.app import App
from textual.color import Color, rgb_to_lab
from textual.constants import DIM_FACTOR
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import Button, Footer, Markdown, TextArea

from eaglechat.paths import builtin_themes_dir
from eaglechat.settings.config_file import Problem, load
from eaglechat.settings.model import InterfaceSettings, Settings
from eaglechat.tui.app import EagleApp
from eaglechat.tui.themes import (
    REJECTED,
    TOKEN_KINDS,
    load_themes,
    read_theme,
)
from tests.tui.driving import Driver
from tests.tui.textual_private import drawn_strips
from tests.tui.widgets.transcript_app import token_looks, until

SHIPPED, SHIPPED_PROBLEMS = load_themes(builtin_themes_dir())

# Linear-RGB simulation of full colour-vision deficiencies: Machado, Oliveira and Fernandes,
# "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), severity 1.
VISIONS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}

GOOD = """
name = "mine"
primary = "#3366cc"
[variables]
border = "white 40%"
text-muted = "auto 50%"
link-style = "bold not underline"
[tokens]
accepted = { colour = "green", style = ["bold"] }
correction = { colour = "#ffaa00", style = ["underline"] }
bonus = { colour = "rgb(90,200,250)", style = ["italic"] }
plain = { colour = "white", style = [] }
rejected = { colour = "red", style = ["strike", "dim"] }
"""


GROUNDS = ("background", "surface", "panel")
TEXTS = (
    "foreground", "foreground-muted", "primary", "accent", "text-warning", "text-error",
    "text-success", "text-accent", "footer-key-foreground", "footer-description-foreground",
)  # fmt: skip


def ink(theme: Theme, kind: str) -> Color:
    """The colour a kind of token is drawn in: Textual draws dim text nearer to the background."""
    colour, styles = token_looks(theme)[kind]
    if "dim" in styles:
        return Color.parse(theme.background).blend(colour, DIM_FACTOR)
    return colour


def linear(channel: int) -> float:
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def encoded(value: float) -> int:
    value = min(1.0, max(0.0, value))
    return round(
        255 * (12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055)
    )


def contrast(one: Color, other: Color) -> float:
    """WCAG 2 contrast ratio."""
    weights = (0.2126, 0.7152, 0.0722)
    dark, bright = sorted(
        sum(weight * linear(channel) for weight, channel in zip(weights, colour.rgb, strict=True))
        for colour in (one, other)
    )
    return (bright + 0.05) / (dark + 0.05)


def seen(colour: Color, vision: str) -> tuple[float, float, float]:
    """The colour in CIELAB as that vision sees it."""
    channels = [linear(channel) for channel in colour.rgb]
    mixed = (
        encoded(sum(factor * channel for factor, channel in zip(row, channels, strict=True)))
        for row in VISIONS[vision]
    )
    return rgb_to_lab(Color(*mixed))[:3]


def test_every_shipped_theme_loads() -> None:
    assert SHIPPED_PROBLEMS == []
    assert {loaded.name: loaded.dark for loaded in SHIPPED} == {
        "eagle-dark": True,
        "eagle-light": False,
    }


@pytest.mark.parametrize("theme", SHIPPED, ids=lambda theme: theme.name)
class TestShippedTheme:
    def test_text_has_readable_contrast(self, theme: Theme) -> None:
        grounds = [Color.parse(theme.background), Color.parse(theme.surface)]
        inks = {kind: ink(theme, kind) for kind in TOKEN_KINDS}
        inks |= {
            name: Color.parse(getattr(theme, name))
            for name in (
                "foreground",
                "primary",
                "secondary",
                "accent",
                "warning",
                "error",
                "success",
            )
        }
        low = {
            name: round(contrast(ink, ground), 2)
            for name, ink in inks.items()
            for ground in grounds
            if contrast(ink, ground) < 4.5
        }
        assert low == {}

    def test_nothing_but_tokens_has_their_colours(self, theme: Theme) -> None:
        names = ("primary", "secondary", "accent", "warning", "error", "success")
        others = {name: getattr(theme, name) for name in names}
        others |= {name: theme.variables[name] for name in ("border", "footer-key-foreground")}
        # Plain tokens are ordinary text.
        labs = {k: seen(ink(theme, k), "normal") for k in TOKEN_KINDS if k != "plain"}
        close = {
            (name, kind)
            for name, colour in others.items()
            for kind, lab in labs.items()
            if math.dist(lab, seen(Color.parse(colour), "normal")) < 20
        }
        assert close == set()

    def test_selected_text_stays_readable(self, theme: Theme) -> None:
        ground = Color.parse(theme.variables["screen-selection-background"])
        copied = [kind for kind in TOKEN_KINDS if kind != REJECTED]
        low = {kind: c for kind in copied if (c := contrast(ink(theme, kind), ground)) < 4.5}
        assert low == {}

    def test_kinds_of_tokens_differ_without_colour(self, theme: Theme) -> None:
        styles = {frozenset(styles) for _, styles in token_looks(theme).values()}
        assert len(styles) == len(TOKEN_KINDS)

    def test_rejected_reads_as_rejected_where_nothing_can_be_struck_through(
        self, theme: Theme
    ) -> None:
        looks = {kind: styles for kind, (_, styles) in token_looks(theme).items()}
        left = looks.pop(REJECTED) - {"strike"}
        assert left
        assert left not in looks.values()

    @pytest.mark.parametrize("vision", VISIONS)
    def test_kinds_of_tokens_differ_for_colour_blind_eyes(self, theme: Theme, vision: str) -> None:
        labs = {kind: seen(ink(theme, kind), vision) for kind in TOKEN_KINDS}
        close = {
            (one, other): round(distance)
            for one, other in itertools.combinations(TOKEN_KINDS, 2)
            if (
                distance := sum((a - b) ** 2 for a, b in zip(labs[one], labs[other], strict=True))
                ** 0.5
            )
            < 20
        }
        assert close == {}

    def test_a_file_states_every_field(self, theme: Theme) -> None:
        assert None not in vars(theme).values()


async def test_text_can_be_read_in_every_theme(drive: Callable[..., Driver]) -> None:
    async with drive() as user:
        low: dict[tuple[str, str], float] = {}
        for theme in user.app.available_themes:
            user.app.theme = theme
            values = user.app.get_css_variables()
            if not values["background"].startswith("#"):
                continue  # the terminal's own
            inks = {name: value for name, value in values.items() if name in TEXTS}
            tokens = [f"token-{kind}" for kind in TOKEN_KINDS]
            inks |= {name: values[name] for name in tokens if not theme.startswith("eagle-")}
            for name, value in inks.items():
                behind = ("footer-background",) if "footer" in name else GROUNDS
                for ground in (Color.parse(values[one]) for one in behind):
                    ratio = contrast(ground + Color.parse(value), ground)
                    if ratio < (3.0 if "muted" in name else 4.5):
                        low[theme, name] = round(ratio, 2)
        assert low == {}


def write(directory: Path, text: str, name: str = "mine.toml") -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_user_theme_becomes_variables(tmp_path: Path) -> None:
    loaded = read_theme(write(tmp_path, GOOD))
    assert isinstance(loaded, Theme)
    variables = loaded.variables
    assert variables["token-accepted"] == Color.parse("green").hex
    assert variables["token-rejected-style"] == "strike dim"
    assert variables["token-plain-style"] == "none"
    assert Color.parse(variables["border"]).a == pytest.approx(0.4)


def test_two_files_of_one_name_are_not_chosen_between_silently(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "a.toml")
    write(tmp_path, GOOD.replace("#3366cc", "#ffffff"), "b.toml")
    themes, problems = load_themes(tmp_path)
    assert [loaded.primary for loaded in themes] == ["#3366CC"]
    assert [problem.file.name for problem in problems] == ["b.toml"]


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ("#3366cc", "#33x6cc", "primary", "'#33x6cc' is not a colour"),
        ('primary = "#3366cc"', "", "", "missing required field `primary`"),
        ('"#3366cc"', "7", "primary", "Expected `str`, got `int`"),
        ('"mine"', '"my own"', "name", "has more than letters"),
        ("[variables]", "colour = 1\n[variables]", "", "a theme has no 'colour'"),
        ("[variables]", "text_alpha = 1.5\n[variables]", "text_alpha", "not between 0 and 1"),
        ("[variables]", "text_alpha = nan\n[variables]", "text_alpha", "not between 0 and 1"),
        ('"white 40%"', '"whit 40%"', "variables.border", "did you mean 'white'"),
        ('"white 40%"', '""', "variables.border", "'' is not a colour"),
        ('"white 40%"', '"auto 40%"', "variables.border", "'auto 40%' is not a colour"),
        ('"white 40%"', "4", "variables", "Expected `str`, got `int`"),
        ("border =", "broder =", "variables", "broder is not a variable"),
        ("bold not underline", "bold not", "variables.link-style", "is not a text style"),
        ('["italic"]', '["slanted"]', "tokens.bonus.style[0]", "'slanted'"),
        ('"green"', '"gren"', "tokens.accepted.colour", "did you mean 'green'"),
        ("plain =", "plian =", "tokens", "unknown field `plian`"),
        ('plain = { colour = "white", style = [] }', "", "tokens", "missing required field"),
        ("style = []", "weight = 1", "tokens.plain", "unknown field `weight`"),
        ('{ colour = "white", style = [] }', '"white"', "tokens.plain", "Expected `table`"),
    ],
)
def test_a_bad_value_is_named_once(
    tmp_path: Path, old: str, new: str, key: str, reason: str
) -> None:
    assert old in GOOD
    file = write(tmp_path, GOOD.replace(old, new))
    themes, problems = load_themes(tmp_path)
    assert themes == []
    [problem] = problems
    assert (problem.file, reason in problem.reason) == (file, True), problem
    assert problem.key.startswith(key)
    assert bool(problem.key) == bool(key)
    assert str(file) in str(problem)


@pytest.mark.parametrize("content", [b"name = ", b"name = '\xff'"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    problem = read_theme(file)
    assert isinstance(problem, Problem)
    assert "cannot be read" in str(problem)


def test_a_users_theme_replaces_the_shipped_one_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace('"mine"', '"eagle-dark"'))
    themes, problems = load_themes(builtin_themes_dir(), tmp_path)
    assert problems == []
    dark = next(loaded for loaded in themes if loaded.name == "eagle-dark")
    assert dark.primary == "#3366CC"
    assert len(themes) == len(SHIPPED)


def test_a_directory_that_is_not_there_has_no_themes(tmp_path: Path) -> None:
    assert load_themes(tmp_path / "none") == ([], [])


@pytest.mark.parametrize("name", ["eagle-light", "nord", "atom-one-dark"])
def test_a_theme_that_was_chosen_is_there_at_the_next_start(
    make_app: Callable[..., EagleApp], name: str
) -> None:
    app = make_app(settings=Settings(interface=InterfaceSettings(theme=name)))
    assert name in app.available_themes
    assert app.theme == name


@pytest.mark.parametrize("name", ["nord", "catppuccin-mocha", "flexoki", "rose-pine"])
def test_variables_of_textuals_own_themes_are_accepted(tmp_path: Path, name: str) -> None:
    given = BUILTIN_THEMES[name].variables
    lines = "\n".join(f'{key} = "{value}"' for key, value in given.items())
    start, end = GOOD.index("border"), GOOD.index("[tokens]")
    loaded = read_theme(write(tmp_path, f"{GOOD[:start]}{lines}\n{GOOD[end:]}"))
    assert isinstance(loaded, Theme), loaded
    assert given.keys() <= loaded.variables.keys()


async def test_an_app_runs_on_whatever_the_loader_let_through(tmp_path: Path) -> None:
    """Every variable set, in each form the loader accepts: Textual's own styles must parse it."""
    plain = read_theme(write(tmp_path, GOOD))
    assert isinstance(plain, Theme)
    known = plain.to_color_system().generate()
    forms = itertools.cycle(["#abc", "red 30%", "ansi_blue", "hsl(10,50%,50%)", "transparent"])
    lines = [
        f'{name} = "{"bold not italic" if "style" in name else next(forms)}"'
        for name in known
        if not name.startswith("token-")
    ]
    start, end = GOOD.index("border"), GOOD.index("[tokens]")
    text = GOOD[:start] + "\n".join(lines) + "\n" + GOOD[end:]
    loaded = read_theme(write(tmp_path, text))
    assert isinstance(loaded, Theme), loaded

    class Themed(App[None]):
        def compose(self):
            yield Button("press")
            yield TextArea("text")
            yield Markdown("# head\n\n[link](https://example.org)")
            yield Footer()

    app = Themed()
    app.register_theme(loaded)
    async with app.run_test() as pilot:
        app.theme = "mine"
        await until(pilot, lambda: "-theme-mine" in app.classes)
        assert app.current_theme is loaded


@given(st.text(max_size=80))
@example("a=" + "[" * 5000)
@example('" - at `$.x" = 1')
@example("name = " + "9" * 5000)
def test_a_theme_of_any_text_is_read_or_named(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mine.toml")
        file.write_text(text, encoding="utf-8", newline="")
        assert str(read_theme(file))


async def test_of_several_changes_in_a_row_the_last_theme_stays(
    drive: Callable[..., Driver],
) -> None:
    chosen, told = ["eagle-light", "nord", "dracula"], []

    def follow(change: tuple[Settings, Settings]) -> None:
        told.append(change[1].interface.theme)
        # Fails at once: themes that set each other back leave no time for anything else.
        assert told == chosen[: len(told)]

    async with drive() as user:
        app, settings = user.app, user.app.services.settings
        settings.changed.subscribe(app, follow)
        drawn: list[str] = []
        app.theme_changed_signal.subscribe(app, lambda theme: drawn.append(theme.name))
        for name in chosen:
            settings.change("interface", "theme", name)
        await user.until(lambda: drawn == chosen, "the themes one after the other")
        assert app.theme == settings.current.interface.theme == chosen[-1]
        assert load(settings.file)[0].interface.theme == chosen[-1]


@pytest.mark.parametrize("theme", ["eagle-dark", "eagle-light"])
async def test_all_of_a_highlighted_row_is_readable(
    drive: Callable[..., Driver], theme: str
) -> None:
    async with drive() as user:
        await user.open_chat()
        user.app.theme = theme
        await user.ask("hello")
        for command, row in (("chat.export", "the questions"), ("chat.role", "the settings as")):
            await user.command(command)
            await user.sees(row)
            await user.pilot.pause()
            strips = drawn_strips(user.app.screen)
            strip = next(strip for strip in strips if row in strip.text)
            (muted,) = [one for one in strip if row in one.text]
            assert muted.style is not None
            ink, ground = (
                Color.from_rich_color(one) for one in (muted.style.color, muted.style.bgcolor)
            )
            assert contrast(ink, ground) > 3
            await user.press("escape")


@pytest.mark.parametrize("theme", ["eagle-light", "solarized-light", "solarized-dark"])
async def test_the_keys_at_the_bottom_stand_out_from_their_ground(
    drive: Callable[..., Driver], theme: str
) -> None:
    async with drive() as user:
        user.app.theme = theme
        await user.sees("commands")
        await user.pilot.pause()
        strips = drawn_strips(user.app.screen)
        drawn = [one for one in strips[-1] if one.text.strip()]
        assert drawn
        for one in drawn:
            assert one.style is not None
            ink, ground = (
                Color.from_rich_color(colour) for colour in (one.style.color, one.style.bgcolor)
            )
            assert contrast(ink, ground) > 3, one.text


async def test_what_is_behind_a_dialog_stays_readable_in_the_terminal_s_own_colours(
    drive: Callable[..., Driver],
) -> None:
    async with drive(size=(120, 36)) as user:
        await user.open_chat()
        user.app.theme = "ansi-dark"
        await user.ask("behind")
        await user.command("chat.export")
        await user.pilot.pause()
        strips = drawn_strips(user.app.screen)
        (shown,) = [one for strip in strips for one in strip if "behind" in one.text]
        assert shown.style is not None
        assert shown.style.bgcolor is not None
        assert shown.style.bgcolor.is_default


async def test_a_notice_stands_once_however_often_it_is_told(drive: Callable[..., Driver]) -> None:
    async with drive() as user:
        await user.open_chat()
        for _ in range(3):
            await user.command("chat.copy")
        await user.command("chat.copy_code")
        await user.sees("There is no code block")
        assert user.text.count("There is no reply to copy yet") == 1
