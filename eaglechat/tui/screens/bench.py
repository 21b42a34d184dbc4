"""The bench: measures the loaded pair plainly and with each draft length, again and again until it
is certain whether drafting is worth it, or its time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

import msgspec
from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, HorizontalScroll, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Button, Collapsible, DataTable, Input, SelectionList, Static

from eaglechat.chat.controls import Controls
from eaglechat.engine.bench.looks import Looks, minutes_for
from eaglechat.engine.bench.measure import settings_of
from eaglechat.engine.bench.prompts import builtin_prompts
from eaglechat.engine.bench.report import report_of
from eaglechat.engine.bench.verdict import Verdict, judge
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.speeds import note_bench, setup_of
from eaglechat.hub.units import format_seconds
from eaglechat.links.base import ENGINE_DIED, Died, Lifecycle
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall
from eaglechat.tui.services.services import Services
from eaglechat.tui.texts import wording
from eaglechat.tui.texts.bench import (
    Span,
    chart,
    gain_chart,
    length_chart,
    length_labels,
    prompt_table,
    verdict_in_words,
)
from eaglechat.tui.widgets.key_line import KeyLine
from eaglechat.tui.widgets.meters import Bar
from eaglechat.tui.widgets.readouts import Line
from eaglechat.tui.widgets.tick_list import TickList
from eaglechat.wire import protocol
from eaglechat.wire.bench_records import PLAIN, BenchRun
from eaglechat.wire.protocol import AUTO, Auto, Bench, BenchProgress, PairInfo
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_FULL = {"lengths": "1, 2, 3, 5, 8, auto", "max-tokens": "128"}
_QUICK = {"lengths": "1, 3, 5, auto", "max-tokens": "64"}
_FULL_MINUTES, _QUICK_MINUTES = 4, 1
_FIELDS = {
    "lengths": "Draft lengths",
    "max-tokens": "Longest reply, in tokens",
    "minutes": "Longest time, in minutes",
}


def _parsed_lengths(text: str) -> tuple[int | Auto, ...]:
    """Draft lengths such as `0, 3, auto`, each once. Raises ValueError with a sentence."""
    lengths: list[int | Auto] = []
    for part in filter(None, map(str.strip, text.split(","))):
        if part.casefold() == AUTO:
            lengths.append(AUTO)
        elif part.isdecimal() and int(part) <= N_DRAFT_MAX_LIMIT:
            lengths.append(int(part))
        else:
            raise ValueError(f"a draft length is 0 to {N_DRAFT_MAX_LIMIT} or auto, not {part}")
    if not lengths:
        raise ValueError("name at least one draft length, such as 3 or auto")
    return tuple(dict.fromkeys(lengths))


def _parsed_count(text: str, what: str) -> int:
    """A whole number of at least 1. Raises ValueError with a sentence."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"{what} is a whole number of at least 1, not {text.strip() or 'empty'}")
    return int(text)


def _n_replies(bench: Bench) -> int:
    """How many replies one pass over all prompts has."""
    settings = settings_of(bench.n, bench.shapes, bench.ngram, bench.drafters)
    return len(bench.prompts) * len(settings)


class Chart(Widget):
    """Lines drawn as wide as there is room."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._draw: Callable[[int], Sequence[Sequence[Span]]] = lambda _width: ()

    def show(self, draw: Callable[[int], Sequence[Sequence[Span]]]) -> None:
        """`draw` makes the lines for a width in cells."""
        self._draw = draw
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._draw(width))

    def render(self) -> Content:
        lines = self._draw(self.content_size.width)
        return Content("\n").join(Content.assemble(*line) for line in lines)


class BenchScreen(EagleScreen[None]):
    """Opens above a chat, which does not change. `keep` puts a draft length in force there."""

    CSS_PATH = "bench.tcss"

    BINDINGS = bindings_of("bench")

    def __init__(
        self,
        services: Services,
        pair: Pair,
        info: PairInfo,
        controls: Controls,
        keep: Callable[[int | Auto], None],
    ) -> None:
        super().__init__(classes="-choosing")
        self._services = services
        self._pair, self._info, self._keep = pair, info, keep
        self._controls = controls
        self._prompts = builtin_prompts()
        self._bench: Bench | None = None
        """The pass that is measured, or was measured last; None before that."""
        self._request_id = 0
        self._began, self._limit_s = 0.0, 0.0
        self._looks = Looks(1)
        self._runs: list[BenchRun] = []
        self._progress: BenchProgress | None = None
        """Of the reply that is being written, until it has ended."""
        self._stopping = self._is_time_up = False
        self._verdict: Verdict | None = None
        self._advised: int | Auto = AUTO
        """The draft length that the verdict advises."""

    def compose(self) -> ComposeResult:
        yield TitleBar(f"bench of {wording.pair_in_short(self._info, self._pair.name)}")
        with VerticalScroll(id="bench", can_focus=False):
            with Horizontal(id="choices"):
                prompts = [(prompt.name, i, True) for i, prompt in enumerate(self._prompts)]
                yield TickList(*prompts, id="prompts", compact=True)
                with Vertical(id="fields"):
                    for id, label in _FIELDS.items():
                        yield Static(label, classes="muted")
                        yield Input(_FULL.get(id, ""), id=id, compact=True)
                    yield Line("", id="kept")
            yield Line("", id="said")
            yield Bar(id="done")
            yield Chart(id="gains")
            yield Chart(id="speeds")
            with Collapsible(
                title="Details", collapsed_symbol="▸", expanded_symbol="▾", id="details"
            ):
                yield Chart(id="chart")
                yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
        with HorizontalScroll(id="buttons", can_focus=False):
            yield Button("Measure", id="start", variant="primary", compact=True)
            yield Button("Quick", id="quick", compact=True)
            yield Button("", id="use", variant="primary", compact=True)
            yield Button("Follow the settings", id="forget", compact=True)
            yield Button("Again", id="again", compact=True)
            yield Button("Stop", id="stop", variant="error", compact=True)
            yield Button("Back", id="back", compact=True)
        yield KeyLine()
        yield TooSmall()

    def on_unmount(self) -> None:
        self._unwatch()

    def on_mount(self) -> None:
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self._offer_minutes(_FULL_MINUTES)
        self._choose()

    # Choosing

    @on(Button.Pressed, "#again")
    def _choose(self) -> None:
        self._phase("choosing", "")
        kept = self._services.pairs.kept_length(self._pair)
        self.set_class(kept is not None, "-kept")
        self.query_one("#kept", Line).show(
            "" if kept is None else f"This pair starts with n_draft_max {kept}."
        )
        self._estimate()
        self._focus("start")

    @on(Input.Changed)
    @on(SelectionList.SelectedChanged)
    def _estimate(self) -> None:
        if not self.has_class("-choosing"):
            return
        try:
            bench, minutes = self._chosen()
        except ValueError as error:
            self._say(wording.sentence(str(error)))
            return
        if self._info.drafter is None:
            drafts = "There is no draft: n-grams alone."
        else:
            drafter = "n-grams ahead of the draft" if bench.ngram[0] else "the draft alone"
            drafts = f"As in your chat: shape {bench.shapes[0]}, {drafter}."
        self._say(
            f"Up to {wording.plural(minutes, 'minute')}: {_n_replies(bench):,} replies of at most "
            f"{bench.max_tokens:,} tokens, plain decoding and drafts interleaved, again and again "
            f"until it can tell. {drafts} Your chat stays as it is."
        )

    def _chosen(self) -> tuple[Bench, int]:
        """The first pass over what is chosen, and the longest time in minutes. Raises ValueError
        with a sentence."""
        chosen = self.query_one("#prompts", SelectionList).selected
        if not chosen:
            raise ValueError("choose at least one prompt")
        lengths, longest, minutes = (self.query_one(f"#{id}", Input).value for id in _FIELDS)
        bench = Bench(
            prompts=tuple(self._prompts[i] for i in sorted(chosen)),
            n=_parsed_lengths(lengths),
            shapes=("chain" if self._info.chains_only else self._controls.shape,),
            ngram=(self._controls.ngram,),
            drafters=(self._controls.drafter,),
            repeats=1,
            max_tokens=_parsed_count(longest, "the length of a reply"),
        )
        return bench, _parsed_count(minutes, "the longest time")

    def _offer_minutes(self, least: int) -> None:
        """Set the longest time to what two passes take at the speed of plain decoding, at least
        `least` minutes."""
        lengths, longest = (self.query_one(f"#{id}", Input).value for id in _FULL)
        n_replies = len(self._prompts) * (1 + len(_parsed_lengths(lengths)))
        minutes = minutes_for(n_replies * int(longest), self._info.plain_ms, least)
        self.query_one("#minutes", Input).value = str(minutes)

    @on(Button.Pressed, "#quick")
    def _measure_quickly(self) -> None:
        for id, value in _QUICK.items():
            self.query_one(f"#{id}", Input).value = value
        self._offer_minutes(_QUICK_MINUTES)
        self.action_bench()

    # Measuring

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # None dims the command while it measures.
        return None if action == "bench" and self._is_running else True

    @property
    def _is_running(self) -> bool:
        return self.has_class("-running")

    @on(Button.Pressed, "#start")
    def action_bench(self) -> None:
        if self._is_running:
            return
        try:
            bench, minutes = self._chosen()
        except ValueError as error:
            self._choose()
            self._say(wording.sentence(str(error)))
            return
        self._began, self._limit_s = monotonic(), 60.0 * minutes
        self._runs, self._looks = [], Looks(1)
        self._stopping = self._is_time_up = False
        self._phase("running", "measuring…")
        self._show_results()
        self._focus("stop")
        self._measure(bench)

    def _measure(self, bench: Bench) -> None:
        self._bench, self._progress = bench, None
        self._request_id = self._services.engine.request(bench, self._hear)
        self._show_progress(bench)

    def _hear(self, event: protocol.Answer) -> None:
        is_ours = event.id == self._request_id and self._is_running and self.is_open
        if self._bench is None or not is_ours:
            return
        if isinstance(event, protocol.Error):
            said = wording.sentence(event.message)
            again = with_keys("{chat.load_again} in the chat loads the models again.")
            self._ended(f"{said} {again}" if event.code == ENGINE_DIED else said)
        elif isinstance(event, protocol.BenchProgress):
            self._progress = event
        elif isinstance(event, protocol.BenchRunDone):
            self._runs.append(event.run)
            self._show_results()
        elif isinstance(event, protocol.BenchDone):
            self._pass_ended(self._bench, event.cancelled)
        if self._is_running:
            if not self._stopping and monotonic() - self._began >= self._limit_s:
                self._is_time_up = True
                self.leave()
            self._show_progress(self._bench)

    def _pass_ended(self, bench: Bench, is_stopped: bool) -> None:
        """Look at the results if that is due, and go on if it cannot tell yet."""
        n_passes = bench.first_repeat + 1
        if self._is_time_up or is_stopped or self._stopping:
            self._ended("Time is up." if self._is_time_up else "Stopped early.")
            return
        if n_passes == self._looks.next:
            verdict = judge(report_of(self._runs), self._looks.take())
            if verdict is None or verdict.is_certain:
                self._ended("" if verdict else "Nothing was drafted.", verdict)
                return
        self._measure(msgspec.structs.replace(bench, first_repeat=n_passes))

    def _follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Died) and self._is_running and self.is_open:
            self._ended(wording.engine_stopped(news))

    def _ended(self, said: str, verdict: Verdict | None = None) -> None:
        """Show the results. `said` is why it ended without being certain, if so."""
        report = report_of(self._runs)
        self._verdict = verdict = verdict or judge(report, self._looks.last())
        sentence = verdict_in_words(verdict, length_labels(report)) if verdict else ""
        engine = self._services.settings.current.engine
        setup = setup_of(self._pair, engine, self._controls.drafter)
        note_bench(self._services.pairs.speeds, setup, report)
        self._phase("ended", "done")
        self._say(f"{said} {sentence}".strip())
        self._show_results()
        self._offer()

    def _offer(self) -> None:
        """Offer what follows from the verdict."""
        verdict, what = self._verdict, ""
        advice = verdict.advice if verdict is not None else "nothing"
        if advice == "length" and verdict is not None:
            self._advised = int(verdict.best.n or 0)
            what = f"Use {wording.plural(self._advised, 'token')} a round"
        elif advice != "nothing":
            self._advised = AUTO if advice == "auto" else 0
            what = "Let auto choose" if advice == "auto" else "Chat plainly"
        self.set_class(not what, "-nothing")
        self.set_class(not self._runs, "-empty")
        self.query_one("#use", Button).label = what
        self._focus("use" if what else "again")

    # Showing

    def _phase(self, name: str, state: str) -> None:
        for phase in ("choosing", "running", "ended"):
            self.set_class(phase == name, f"-{phase}")
        self.refresh_bindings()
        self.query_one(TitleBar).show(state=state)

    def _focus(self, id: str) -> None:
        # The button is visible only after the phase has changed.
        self.call_after_refresh(self.query_one(f"#{id}", Button).focus)

    def _say(self, text: str) -> None:
        self.query_one("#said", Line).show(text)

    def _show_progress(self, bench: Bench) -> None:
        """Show what is being measured, and how much time is left."""
        progress, n_replies = self._progress, _n_replies(bench)
        now = "reading the prompt"
        if progress is not None:
            is_plain = progress.setting == PLAIN
            now = f"{progress.prompt}, {PLAIN if is_plain else f'n = {progress.setting}'}"
        gone_s = monotonic() - self._began
        self.query_one("#done", Bar).show(min(gone_s / self._limit_s, 1.0))
        left = format_seconds(max(self._limit_s - gone_s, 0.0))
        number = min(len(self._runs) - bench.first_repeat * n_replies + 1, n_replies)
        where = f"Pass {bench.first_repeat + 1}, reply {number} of {n_replies}"
        self._say("Stopping…" if self._stopping else f"{where}: {now} · at most {left} left")

    def _show_results(self) -> None:
        report = report_of(self._runs)
        labels, verdict = length_labels(report), self._verdict
        if self._is_running:
            verdict = judge(report, None)
        self.query_one("#gains", Chart).show(partial(gain_chart, verdict, labels))
        self.query_one("#speeds", Chart).show(partial(length_chart, report, labels))
        self.query_one("#chart", Chart).show(partial(chart, report, labels))
        table = self.query_one("#table", DataTable)
        table.clear(columns=True)
        head, *rows = prompt_table(report, labels)
        # Widths that the table finds by itself come a moment later, or too late to be drawn.
        for label, *cells in zip(head, head, *rows, strict=True):
            table.add_column(label, width=max(map(cell_len, cells)))
        table.fixed_columns = 1
        table.add_rows(rows)

    # Keeping, and leaving

    @on(Button.Pressed, "#use")
    def _use(self) -> None:
        pairs, length = self._services.pairs, self._advised
        pairs.keep_length(self._pair, length)
        self._keep(length)
        said = f"{self._pair.name} starts with n_draft_max {length} from now on."
        problem = pairs.problem
        self.notify(problem or said, severity="warning" if problem else "information")
        self.dismiss(None)

    @on(Button.Pressed, "#forget")
    def _forget(self) -> None:
        self._services.pairs.keep_length(self._pair, None)
        self.notify("From the next chat on, the pair follows the settings.")
        self._choose()

    @on(Button.Pressed, "#stop")
    @on(Button.Pressed, "#back")
    def action_back(self) -> None:
        if not self._is_running:
            self.dismiss(None)
        elif not self._stopping:
            self.leave()
            self._say("Stopping…")

    def leave(self) -> None:
        """Stop what is being measured."""
        if self._is_running and not self._stopping:
            self._stopping = True
            self._services.engine.send(protocol.Cancel(id=self._request_id))
