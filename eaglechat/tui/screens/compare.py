"""Compare: the last question, or prompts that come with the program, are answered plainly and with
drafts in turn until it is certain which is faster, or time is up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from eaglechat.chat.compared import Result
from eaglechat.chat.comparing import Asked, Comparison, contenders
from eaglechat.chat.session import ChatSession
from eaglechat.engine.bench.prompts import builtin_prompts
from eaglechat.hub.units import format_seconds
from eaglechat.paths import write_atomically
from eaglechat.tui.commands.keys import ENTER, bindings_of, moves, with_keys
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall
from eaglechat.tui.screens.dialogs import ListDialog
from eaglechat.tui.services.engine import FramePace
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.key_line import KeyLine
from eaglechat.wire.protocol import AUTO, PLAINLY, Speculation
from eaglechat.words import comparing, wording
from eaglechat.words.bars import bar
from eaglechat.words.card import card, shipped_with, why_no_card, why_not
from eaglechat.words.export import free_file
from eaglechat.words.gain import at_most, figure
from eaglechat.words.tables import aligned
from eaglechat.words.timeline import before_writing
from eaglechat.words.wording import percent, plural

_NUMBERS = 36
"""Cells of `123.4 tok/s  1.38x ±0.06   kept 100%`."""
_AROUND = 5
"""Cells of the mark, and of the space on both sides of the bar and of the line."""
_WIDEST = 98
"""As wide as the text."""


class CompareScreen(EagleScreen[Speculation]):
    """Opens above a chat, which stays as it is; dismisses with how to draft from now on."""

    CSS_PATH = "compare.tcss"
    BINDINGS = bindings_of("compare")

    def __init__(self, services: Services, session: ChatSession, asked: Asked) -> None:
        """Without a prompt in `asked`, those that come with the program are measured."""
        super().__init__()
        self._services, self._session, self._asked = services, session, asked
        info, hello = session.info, session.hello
        assert info is not None
        assert hello is not None
        self._info, self._hello = info, hello
        self._is_of_question = bool(asked.prompts)
        self._now = asked.terms.speculation
        self._all = comparing.named(contenders(self._now, info, hello), hello.can)
        self._who = [*self._all][:1]
        self._comparison = self._new()
        self._pace = FramePace()

    def compose(self) -> ComposeResult:
        yield TitleBar(f"compare {wording.pair_in_short(self._info, self._session.pair.name)}")
        yield Static(id="lanes")
        with VerticalScroll(id="text"):
            yield Static(id="written")
        yield KeyLine()
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#text").focus()
        self._start()

    def on_resize(self) -> None:
        if self.is_mounted:
            self.call_after_refresh(self._draw)

    # Measuring

    def _new(self) -> Comparison:
        asked = self._asked
        if not self._is_of_question:
            shipped = {prompt.name: prompt.messages for prompt in builtin_prompts()}
            asked = Asked(shipped, asked.terms, in_a_row=2, least_minutes=4)
        engine, hello, info = self._services.engine, self._hello, self._info
        who = {comparing.name(PLAINLY): PLAINLY, **{name: self._all[name] for name in self._who}}
        return Comparison(engine, hello, info, asked, who, changed=self._follow)

    def _start(self) -> None:
        self.query_one(TitleBar).state = "measuring…"
        self._comparison.start()
        self._draw()
        self.refresh_bindings()

    def _follow(self) -> None:
        if not self.is_open:
            return
        if self._result is not None:
            self._ended(self._result)
        elif not self._pace.wait_s():
            self._draw()

    @property
    def _result(self) -> Result | None:
        """None until it is over."""
        return self._comparison.result

    def _ended(self, result: Result) -> None:
        if result.scores:
            speeds, engine = self._services.pairs.speeds, self._services.settings.current.engine
            result.note(
                speeds, self._session.pair, engine, "question" if self._is_of_question else "bench"
            )
            self._session.note(comparing.sentence(result))
        self.query_one(TitleBar).state = ""
        self.refresh_bindings()
        self._draw()

    # What the keys do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        allowed = super().check_action(action, parameters)
        kept = self._services.pairs.kept_length(self._session.pair)
        can = {"let_auto": self._hello.can.own, "forget": kept is not None}
        is_early = action in ("use", "let_auto", "choose", "card") and self._result is None
        return None if allowed and (is_early or not can.get(action, True)) else allowed

    @property
    def _best(self) -> Speculation:
        """How to draft from now on: as it is if no difference was measured."""
        best = self._result.best if self._result else None
        if best is not None and best.verdict == "faster":
            return best.who
        return PLAINLY if best is not None and best.verdict == "slower" else self._now

    def action_use(self) -> None:
        self._use(self._best)

    def action_let_auto(self) -> None:
        self._use(msgspec.structs.replace(next(iter(self._all.values())), n_draft_max=AUTO))

    def _use(self, chosen: Speculation) -> None:
        """Draft so from now on. What the prompts of the program have shown holds for the pair, also
        in later chats."""
        pairs, pair = self._services.pairs, self._session.pair
        if not self._is_of_question and pair.server is None:
            length = chosen.n_draft_max if chosen.enabled else 0
            pairs.keep_length(pair, length)
            said = f"{pair.name} starts with n_draft_max {length} from now on."
            problem = pairs.problem
            self.notify(problem or said, severity="warning" if problem else "information")
        self.dismiss(chosen)

    def action_forget(self) -> None:
        self._services.pairs.keep_length(self._session.pair, None)
        self.notify("From the next chat on, the pair follows the settings.")
        self.refresh_bindings()

    def action_choose(self) -> None:
        prompts = f"with {len(builtin_prompts())} prompts, not your last question"
        prompts = prompts if self._asked.prompts else ""

        def compare(chosen: Sequence[str]) -> None:
            self._is_of_question = bool(prompts) and prompts not in chosen
            self._who = [row for row in chosen if row != prompts]
            self._comparison = self._new()
            self._start()

        ticked = self._who if self._is_of_question else [*self._who, prompts]
        self.open(ContendersDialog([*self._all], prompts, ticked), compare)

    def action_card(self) -> None:
        """Write a card of the result to a new file, or say why there is none."""
        comparison, engine = self._comparison, self._services.settings.current.engine
        source = "the last question of a chat, whose text is not here"
        if not self._is_of_question:
            source = shipped_with(self._hello)
        reason = why_no_card(self._hello, self._info, engine) or why_not(comparison)
        if reason:
            self.notify(f"No card: {reason}.", severity="warning")
            return
        self.notify("Writing the card: the model files are read for it.")
        file = free_file(Path.cwd(), f"card {self._session.pair.name}", "markdown")

        def fail(error: Exception) -> None:
            said = f"The card was not written: {wording.why(error)} ({file})."
            self.notify(said, severity="warning")

        self.in_background(
            lambda: write_atomically(file, card(comparison, engine, source, {}).encode()),
            lambda _: self.notify(f"The card is in {file}."),
            fail,
        )

    def action_back(self) -> None:
        if self._result is None:
            self.leave()
        else:
            self.dismiss(None)

    def leave(self, *, ends: bool = False) -> None:
        self._comparison.stop()
        self._draw()

    # Drawing

    def _draw(self) -> None:
        comparison, result = self._comparison, self._result
        so_far = result or comparison.so_far()
        lines = [*self._lanes(so_far)]
        if result is not None and len(result.prompts) > 1:
            by_prompt = [*comparing.category_rows(result, {})]
            lines += [Content(""), *map(Content, aligned(by_prompt, range(1, len(by_prompt[0]))))]
        if result is not None and (most := at_most(self._info, result.best)):
            lines += [Content(""), Content.styled(most, MUTED)]
        advice, failure = "", comparison.failure
        if result is None:
            said = self._progress()
        elif failure is not None:
            said = wording.sentence(failure.message)
        else:
            best, said = self._best, comparing.sentence(result)
            does = f"drafts with {comparing.name(best)}" if best.enabled else "decodes plainly"
            does = f"keeps {comparing.name(best)}" if best == self._now else does
            advice = with_keys(f"{{compare.use}} {does}.")
        lines += [Content(""), Content(said), *filter(None, [Content.styled(advice, MUTED)])]
        self.query_one("#lanes", Static).update(Content("\n").join(lines))
        behind, ahead = "", ""
        if result is None:
            behind = comparison.written
            ahead = "".join(round_.text for round_ in comparison.leg.rounds)
        else:
            behind = comparing.texts(result)
        mark = "▌" if ahead else ""
        self.query_one("#written", Static).update(
            Content.assemble(behind, (mark, "$primary"), (ahead, "$foreground-muted"))
        )
        self.query_one("#text", VerticalScroll).scroll_end(animate=False)

    def _progress(self) -> str:
        comparison = self._comparison
        if comparison.is_stopping:
            return "Stopping…"
        now = f"{comparison.running} writes"
        if not comparison.leg.rounds and not comparison.heats:
            now = before_writing(comparison.loading, comparison.prefill)
        limit = plural(round(comparison.minutes), "minute")
        left = format_seconds(comparison.seconds_left)
        prompt = comparison.prompt
        prompt = prompt if self._is_of_question else f"the prompt “{prompt}”"
        where = f"{prompt}, heat {len(comparison.heats) + 1}"
        return (
            f"Up to {limit}, until it can tell; at most {left} left. Of {where}: {now}. "
            "All continue the same text in turn."
        )

    def _lanes(self, result: Result) -> Iterator[Content]:
        """A bar for each contender, as long as it was fast, and its figures."""
        comparison = self._comparison
        scores = {one.name: one for one in result.scores}
        cells = max(map(cell_len, comparison.who))
        width = max(min(self.size.width, _WIDEST) - cells - _NUMBERS - _AROUND, 4)
        fastest = max((one.tokens_per_second for one in scores.values()), default=0.0) or 1.0
        for name, who in comparison.who.items():
            is_writing = self._result is None and name == comparison.running
            score = scores.get(name)
            speed = score.tokens_per_second if score else 0.0
            numbers = f"{speed:5.1f} tok/s" if score else ""
            if score and who != PLAINLY:
                gain = figure(score.gain.speed_up, score.gain.error)
                rate = score.stats.acceptance_rate
                kept = f"  kept {percent(rate):>4}" if rate is not None else ""
                numbers += f"  {gain:12}{kept}"
            style = "$foreground-muted" if who == PLAINLY else "$primary"
            yield Content.assemble(
                "▸" if is_writing else " ",
                f"{name:{cells}} ",
                (bar(speed / fastest, width), style),
                f" {numbers}",
            )


class ContendersDialog(ListDialog[Sequence[str], str]):
    """Ticks who is compared with plain decoding, and whether on the prompts of the program, which
    is the row `prompts` if that is not empty. Dismisses with the ticked rows."""

    HEADING = "What is compared with plain decoding?"
    KEYS = f"Space chooses, {ENTER} measures, {{dialog.back}} back"
    PLACEHOLDER = ""
    DEFAULT_CLASSES = "-short"
    BINDINGS = moves({"space": "tick", "enter": "measure"}, priority=True)

    def __init__(self, who: Sequence[str], prompts: str, ticked: Sequence[str]) -> None:
        super().__init__()
        self._who, self._prompts, self._ticked = who, prompts, {*ticked}

    def on_mount(self) -> None:
        self._list()

    def _list(self) -> None:
        rows = filter(None, (*self._who, self._prompts))
        # It reads without colour.
        marks = {True: "[X]", False: "[ ]"}
        self.fill(
            ((row, Content(f"{marks[row in self._ticked]} {row}")) for row in rows),
            self.highlighted,
        )

    def choose(self, thing: str | None) -> None:
        if thing is not None:
            self._ticked ^= {thing}
            self._list()

    def action_tick(self) -> None:
        self.choose(self.highlighted)

    def action_measure(self) -> None:
        if self._ticked - {self._prompts}:
            self.dismiss([row for row in (*self._who, self._prompts) if row in self._ticked])
        else:
            self.notify("Choose at least one to compare with plain decoding.")
