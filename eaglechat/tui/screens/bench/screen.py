"""The bench: measures the loaded pair plainly and with each draft length, and keeps the best."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, HorizontalScroll, Vertical, VerticalScroll
from textual.widgets import Button, DataTable, Input, SelectionList, Static

from eaglechat.chat.controls import Controls
from eaglechat.engine.bench.measure import builtin_prompts
from eaglechat.hub.local.pair import Pair
from eaglechat.links.base import ENGINE_DIED, Died, Lifecycle
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall
from eaglechat.tui.screens.bench import view
from eaglechat.tui.screens.bench.session import (
    BenchPlan,
    BenchSession,
    best_setting,
    length_of,
    parse_count,
    parse_lengths,
)
from eaglechat.tui.services.services import Services
from eaglechat.tui.texts import wording
from eaglechat.tui.widgets.key_line import KeyLine
from eaglechat.tui.widgets.meters import Bar
from eaglechat.tui.widgets.readouts import Line
from eaglechat.wire import protocol
from eaglechat.wire.protocol import Auto, PairInfo

_FULL = {"lengths": "0, 1, 2, 3, 5, 8, auto", "repeats": "3", "max-tokens": "128"}
_QUICK = {"lengths": "0, 1, 3, 5, auto", "repeats": "1", "max-tokens": "64"}
_QUICK_PROMPTS = 2
_FIELDS = {
    "lengths": "Draft lengths",
    "repeats": "Repeats",
    "max-tokens": "Longest reply, in tokens",
}


class BenchScreen(EagleScreen[None]):
    """Over a chat, which stays as it is; `keep` puts a draft length in force there."""

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
        self._session: BenchSession | None = None
        self._request_id = 0
        self._stopping = False

    def compose(self) -> ComposeResult:
        yield TitleBar(f"bench of {wording.pair_in_short(self._info, self._pair.name)}")
        with VerticalScroll(id="bench", can_focus=False):
            with Horizontal(id="choices"):
                prompts = [(prompt.name, i, True) for i, prompt in enumerate(self._prompts)]
                yield SelectionList(*prompts, id="prompts", compact=True)
                with Vertical(id="fields"):
                    for id, label in _FIELDS.items():
                        yield Static(label, classes="muted")
                        yield Input(_FULL[id], id=id, compact=True)
                    yield Line("", id="kept")
            yield Line("", id="said")
            yield Bar(id="done")
            yield view.SpeedChart(id="chart")
            yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
        with HorizontalScroll(id="buttons", can_focus=False):
            yield Button("Measure", id="start", variant="primary", compact=True)
            yield Button("Quick", id="quick", compact=True)
            yield Button("Use for this pair", id="keep-here", variant="primary", compact=True)
            yield Button("Use for all pairs", id="keep-all", compact=True)
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
            plan = self._plan()
        except ValueError as error:
            self._say(wording.sentence(str(error)))
            return
        self._say(
            f"{plan.replies:,} replies of at most {plan.max_tokens:,} tokens, including plain "
            f"decoding, interleaved. {view.drafts_like(plan, self._info)} Your chat stays as it is."
        )

    def _plan(self) -> BenchPlan:
        """What is chosen. Raises ValueError in words."""
        chosen = self.query_one("#prompts", SelectionList).selected
        if not chosen:
            raise ValueError("choose at least one prompt")
        lengths, repeats, longest = (self.query_one(f"#{id}", Input).value for id in _FIELDS)
        return BenchPlan(
            prompts=tuple(self._prompts[i] for i in sorted(chosen)),
            lengths=parse_lengths(lengths),
            shape="chain" if self._info.chains_only else self._controls.shape,
            ngram=self._controls.ngram,
            repeats=parse_count(repeats, "the number of repeats"),
            max_tokens=parse_count(longest, "the length of a reply"),
        )

    @on(Button.Pressed, "#quick")
    def action_quick(self) -> None:
        if self._is_running:
            return
        for id, value in _QUICK.items():
            self.query_one(f"#{id}", Input).value = value
        prompts = self.query_one("#prompts", SelectionList)
        prompts.deselect_all()
        for i in range(_QUICK_PROMPTS):
            prompts.select(i)
        self.action_start()

    # Measuring

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Dim while it measures.
        return None if action in ("start", "quick") and self._is_running else True

    @property
    def _is_running(self) -> bool:
        return self.has_class("-running")

    @on(Button.Pressed, "#start")
    def action_start(self) -> None:
        if self._is_running:
            return
        try:
            plan = self._plan()
        except ValueError as error:
            self._choose()
            self._say(wording.sentence(str(error)))
            return
        self._session = BenchSession(plan)
        self._stopping = False
        self._phase("running", "measuring…")
        self._show_results()
        self._show_progress()
        self._focus("stop")
        self._request_id = self._services.engine.request(plan.request(), self._hear)

    def _hear(self, event: protocol.Answer) -> None:
        is_ours = event.id == self._request_id and self._is_running and self.is_open
        if self._session is None or not is_ours:
            return
        if isinstance(event, protocol.Error):
            self._ended(_why_it_failed(event))
        elif isinstance(event, protocol.BenchProgress):
            self._session.progress = event
        elif isinstance(event, protocol.BenchRunDone):
            self._session.runs.append(event.run)
            self._show_results()
        elif isinstance(event, protocol.BenchDone):
            self._ended("Stopped. The tables show what was measured so far.")
        if self._is_running:
            self._show_progress()

    def _follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Died) and self._is_running and self.is_open:
            self._ended(wording.engine_stopped(news))

    def _ended(self, said: str) -> None:
        """Measuring is over; `said` is why, unless all was measured."""
        session = self._session
        assert session is not None
        report = session.report()
        best = best_setting(report.settings)
        if best is not None and len(session.runs) == session.plan.replies:
            said = view.verdict(best, report)
        elif best is not None:
            said = f"{said} {view.verdict(best, report)}"
        self._phase("ended", "done")
        self.set_class(best is None, "-nothing")
        self._say(said)
        self._show_results()
        self._focus("keep-here" if best is not None else "again")

    # Showing

    def _phase(self, name: str, state: str) -> None:
        for phase in ("choosing", "running", "ended"):
            self.set_class(phase == name, f"-{phase}")
        self.refresh_bindings()
        self.query_one(TitleBar).show(state=state)

    def _focus(self, id: str) -> None:
        # Not before the phase shows it.
        self.call_after_refresh(self.query_one(f"#{id}", Button).focus)

    def _say(self, text: str) -> None:
        self.query_one("#said", Line).show(text)

    def _show_progress(self) -> None:
        assert self._session is not None
        self._say("Stopping…" if self._stopping else view.doing(self._session))
        self.query_one("#done", Bar).show(self._session.share_done)

    def _show_results(self) -> None:
        if self._session is None:
            return
        report = self._session.report()
        self.query_one(view.SpeedChart).show(report)
        table = self.query_one("#table", DataTable)
        table.clear(columns=True)
        columns, rows = view.columns(report), list(view.rows(report))
        # Widths that the table finds by itself come a moment later, or too late to be drawn.
        for label, cells in zip(columns, zip(columns, *rows, strict=True), strict=True):
            table.add_column(label, width=max(map(cell_len, cells)))
        table.fixed_columns = 1
        table.add_rows(rows)

    # Keeping, and leaving

    @property
    def _best(self) -> int | Auto | None:
        best = best_setting(self._session.report().settings) if self._session else None
        return length_of(best) if best is not None else None

    @on(Button.Pressed, "#keep-here")
    def _keep_here(self) -> None:
        if (best := self._best) is None:
            return
        self._services.pairs.keep_length(self._pair, best)
        self._kept(best, f"{self._pair.name} starts with n_draft_max {best} from now on.")

    @on(Button.Pressed, "#keep-all")
    def _keep_all(self) -> None:
        if (best := self._best) is None:
            return
        self._services.pairs.keep_length(self._pair, None)
        self._services.settings.change("speculation", "n_draft_max", best)
        self._kept(best, f"speculation.n_draft_max is {best} from now on, for all pairs.")

    def _kept(self, best: int | Auto, said: str) -> None:
        self._keep(best)
        problem = self._services.pairs.problem
        self.notify(problem or said, severity="warning" if problem else "information", markup=False)
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
            self._show_progress()

    def leave(self) -> None:
        """Stop what is being measured."""
        if self._is_running and not self._stopping:
            self._stopping = True
            self._services.engine.send(protocol.Cancel(id=self._request_id))


def _why_it_failed(error: protocol.Error) -> str:
    said = wording.sentence(error.message)
    again = with_keys("{chat.load_again} in the chat loads the models again.")
    return f"{said} {again}" if error.code == ENGINE_DIED else said
