"""The first screen: which pair of models to chat with."""

from __future__ import annotations

from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from eaglechat.engine.gguf import GGUFHeader
from eaglechat.history import SavedChat
from eaglechat.hub.pairs import Pair, PairStatus, inspect
from eaglechat.tui import wording
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall
from eaglechat.tui.screens.chats import ChatsScreen
from eaglechat.tui.screens.message import MessageDialog
from eaglechat.tui.screens.open_files import OpenFilesScreen
from eaglechat.tui.widgets.filter import Filter

OPEN_FILES = "open-files"
PAST_CHATS = "past-chats"


class MenuScreen(EagleScreen[None]):
    """Pairs, filtered by typing. The filter keeps the focus; arrows move through the list."""

    BINDINGS = [
        Binding(
            "ctrl+o",
            "open_files",
            "Open files",
            id="menu.open",
            tooltip="Choose a target and a draft among the GGUF files on this machine",
            priority=True,
        ),
        Binding(
            "ctrl+t",
            "past_chats",
            "Past chats",
            id="menu.chats",
            tooltip="Go on with an earlier chat",
            priority=True,
        ),
        Binding(
            "f5",
            "forget",
            "Forget",
            id="menu.forget",
            tooltip="Drop the pair from the list; its files stay",
            priority=True,
            show=False,
        ),
    ]

    class Inspected(Message):
        """The headers of a pair were read."""

        def __init__(self, status: PairStatus) -> None:
            super().__init__()
            self.status = status

    def __init__(self) -> None:
        super().__init__()
        self._statuses: dict[tuple[Path, Path | None], PairStatus] = {}

    def compose(self) -> ComposeResult:
        yield TitleBar("a target writes, a small draft guesses ahead, the target checks")
        yield Static("Which models do you want to chat with?", id="question")
        pairs = OptionList(id="pairs", compact=True)
        yield Filter(pairs, id="filter")
        with Horizontal(id="choice"):
            yield pairs
            with VerticalScroll(id="details-scroll", can_focus=False):
                yield Static("", id="details")
        yield Footer(show_command_palette=False)
        yield TooSmall()

    def on_mount(self) -> None:
        self._refresh_list()
        self.query_one(Filter).focus()

    def on_screen_resume(self) -> None:
        if self.is_mounted:
            self._refresh_list()
            self._inspect_all()

    # The list

    @on(Input.Changed, "#filter")
    def _refresh_list(self) -> None:
        options = self.query_one("#pairs", OptionList)
        highlighted = options.highlighted or 0
        wanted = self.query_one(Filter).words
        options.clear_options()
        for index, pair in enumerate(self.eagle.pairs.pairs()):
            if all(word in self._searched(pair) for word in wanted):
                options.add_option(Option(self._row(pair), id=f"pair-{index}"))
        options.add_option(
            Option(_entry("Open GGUF files…", "any target, with or without a draft"), id=OPEN_FILES)
        )
        options.add_option(
            Option(_entry("Past chats…", "go on with an earlier chat"), id=PAST_CHATS)
        )
        options.highlighted = min(highlighted, options.option_count - 1)

    @work(thread=True, exclusive=True, group="inspect", exit_on_error=True)
    def _inspect_all(self) -> None:
        for pair in self.eagle.pairs.pairs():
            self.post_message(self.Inspected(inspect(pair)))

    def on_menu_screen_inspected(self, message: Inspected) -> None:
        pair = message.status.pair
        self._statuses[pair.target, pair.draft] = message.status
        self._refresh_list()

    def _status(self, pair: Pair) -> PairStatus | None:
        return self._statuses.get((pair.target, pair.draft))

    def _searched(self, pair: Pair) -> str:
        status = self._status(pair)
        headers = [header for header in (status.target, status.draft) if header] if status else []
        words = [f"{header.architecture} {header.quantization}" for header in headers]
        return " ".join([pair.name, pair.target.name, pair.source, *words]).casefold()

    def _row(self, pair: Pair) -> Content:
        status = self._status(pair)
        second = "reading the headers…"
        mark = ("○ ", "$foreground-muted")
        if status is not None and status.problem:
            mark = ("✗ ", "$text-error")
            second = f"cannot run: {status.problem}"
        elif status is not None and status.target is not None:
            mark = ("● ", "$text-success")
            second = _brief(status.target) + (
                f"  +  draft {_brief(status.draft)}" if status.draft else "  ·  no draft"
            )
        return Content.assemble(
            mark, (pair.name, "bold"), (f"  {pair.source}", "$foreground-muted"), "\n  ",
            (second, "$foreground-muted"),
        )  # fmt: skip

    # The pane beside it

    @on(OptionList.OptionHighlighted)
    def _show_details(self) -> None:
        pair = self._highlighted_pair()
        status = self._status(pair) if pair else None
        self.query_one("#details", Static).update(
            _details(pair, status)
            if pair
            else Content("Models of your own, or a chat to go on with.")
        )

    def _highlighted_pair(self) -> Pair | None:
        option = self.query_one("#pairs", OptionList).highlighted_option
        if option is None or option.id is None or not option.id.startswith("pair-"):
            return None
        return self.eagle.pairs.pairs()[int(option.id.removeprefix("pair-"))]

    # What the keys do

    @on(Input.Submitted, "#filter")
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        option = self.query_one("#pairs", OptionList).highlighted_option
        pair = self._highlighted_pair()
        if option is not None and option.id == OPEN_FILES:
            self.action_open_files()
        elif option is not None and option.id == PAST_CHATS:
            self.action_past_chats()
        elif pair is not None:
            self._choose_pair(pair)

    def _choose_pair(self, pair: Pair) -> None:
        status = self._status(pair) or inspect(pair)
        if status.problem:
            self.app.push_screen(
                MessageDialog(f"{pair.name} cannot run here", wording.sentence(status.problem))
            )
        else:
            self.eagle.open_chat(pair)

    def action_open_files(self) -> None:
        def opened(pair: Pair | None) -> None:
            if pair is not None:
                self.eagle.open_chat(pair)

        self.app.push_screen(OpenFilesScreen(), opened)

    def action_past_chats(self) -> None:
        def chosen(chat: SavedChat | None) -> None:
            if chat is not None:
                self.eagle.go_on(chat)

        self.app.push_screen(ChatsScreen(), chosen)

    def action_forget(self) -> None:
        pair = self._highlighted_pair()
        if pair is None or pair.source == "built-in":
            self.notify("Only recent pairs can be dropped from the list.")
            return
        self.eagle.pairs.forget(pair)
        self._refresh_list()


def _entry(name: str, explanation: str) -> Content:
    return Content.assemble("  ", (name, "bold"), "\n  ", (explanation, "$foreground-muted"))


def _brief(header: GGUFHeader) -> str:
    return f"{header.architecture} {header.quantization} {wording.size(header.size_bytes)}"


def _details(pair: Pair, status: PairStatus | None) -> Content:
    parts: list[Content | str | tuple[str, str]] = [(pair.name, "bold $primary"), "\n"]
    if status is None:
        parts.append("\nreading the headers…")
    elif status.problem:
        parts += [
            "\n",
            ("Cannot run here", "bold $text-error"),
            "\n",
            wording.sentence(status.problem),
        ]
    else:
        parts += ["\n", ("Can run here", "$text-success"), "\n"]
        for role, header in (("Target", status.target), ("Draft", status.draft)):
            if header is not None:
                parts += _header_lines(role, header)
    if pair.note:
        parts += ["\n\n", (pair.note, "$foreground-muted")]
    return Content.assemble(*parts)


def _header_lines(role: str, header: GGUFHeader) -> list[Content | str | tuple[str, str]]:
    rows = [
        ("architecture", header.architecture),
        ("quantisation", header.quantization),
        ("size", wording.size(header.size_bytes)),
        ("layers", f"{header.n_layers}"),
        ("hidden size", f"{header.n_embd:,}"),
        ("vocabulary", f"{header.n_vocab:,}"),
    ]
    if role == "Target":
        rows.append(("trained for", f"{header.n_ctx_train:,} tokens"))
    lines: list[Content | str | tuple[str, str]] = ["\n", (role, "bold"), f"  {header.name}"]
    for label, value in rows:
        lines += ["\n", (f"  {label:<14}", "$foreground-muted"), value]
    return [*lines, "\n"]
