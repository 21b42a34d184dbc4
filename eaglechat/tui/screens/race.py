"""The race: the last question is answered plainly and with drafts in turn until it is certain which
is faster, or time is up; then it can be played side by side at the pace that was measured."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import msgspec
from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Button, SelectionList, Static

from eaglechat.chat.conversation.session import ChatSession
from eaglechat.chat.racing import Asked, Heat, Race, Result, contenders
from eaglechat.engine.bench.measure import PLAINLY
from eaglechat.hub.local.speeds import Gain, setup_of
from eaglechat.hub.units import format_seconds
from eaglechat.links.base import ENGINE_DIED
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import ENTER, TAB, with_keys
from eaglechat.tui.screens.base import EagleModal, EagleScreen, TitleBar, TooSmall
from eaglechat.tui.services.pace import FramePace
from eaglechat.tui.services.services import Services
from eaglechat.tui.texts import racing, wording
from eaglechat.tui.texts.bars import bar
from eaglechat.tui.texts.gain import figure
from eaglechat.tui.texts.replies import before_writing
from eaglechat.tui.texts.wording import plural
from eaglechat.tui.widgets.frame import Frame
from eaglechat.tui.widgets.key_line import KeyLine
from eaglechat.tui.widgets.readouts import Line
from eaglechat.tui.widgets.tick_list import TickList
from eaglechat.wire.protocol import AUTO, Hello, PairInfo, Speculation

_FRAMES_PER_SECOND, _FEWEST_FRAMES_PER_SECOND = 15, 4
_NUMBERS = 24
"""Cells of `123.4 tok/s  1.38x ±0.06`."""
_PLAYED_HEATS = 16
_WIDEST = 98
"""As wide as the text."""


class RaceScreen(EagleScreen[Speculation]):
    """Opens above a chat, which stays as it is; dismisses with how to draft from now on."""

    CSS_PATH = "race.tcss"
    BINDINGS = bindings_of("race")

    def __init__(
        self, services: Services, session: ChatSession, asked: Asked, info: PairInfo, hello: Hello
    ) -> None:
        super().__init__()
        self._services, self._session = services, session
        self._asked, self._info, self._hello = asked, info, hello
        self._now = asked.terms.speculation
        self._all = contenders(self._now, info, hello)
        self._who = self._all[:1]
        self._race: Race
        self._result: Result | None = None
        """None until the race is over."""
        self._film: Film | None = None
        """While the race is played."""
        self._pace = FramePace(_FEWEST_FRAMES_PER_SECOND)

    def compose(self) -> ComposeResult:
        yield TitleBar(f"race of {wording.pair_in_short(self._info, self._session.pair.name)}")
        yield Static(id="lanes")
        yield Line("", id="said")
        yield Line("", id="advice")
        with VerticalScroll(id="text"):
            yield Static(id="written")
        yield KeyLine()
        yield TooSmall()

    def on_mount(self) -> None:
        self._frames: Timer = self.set_interval(1 / _FRAMES_PER_SECOND, self._play, pause=True)
        self.query_one("#text").focus()
        self._start()

    def on_resize(self) -> None:
        if self.is_mounted:
            self.call_after_refresh(self._draw)

    # Measuring

    def _start(self) -> None:
        self._result = self._film = None
        self._race = Race(self._services.engine, self._hello, self._asked, self._who, self._follow)
        self.query_one(TitleBar).show(state="measuring…")
        self._say("", "")
        self._race.start()
        self._draw()
        self.refresh_bindings()

    def _follow(self) -> None:
        if not self.is_open:
            return
        if self._race.is_over and self._result is None:
            self._ended()
        elif self._pace.is_due():
            self._draw()

    def _ended(self) -> None:
        race, failure = self._race, self._race.failure
        self._result = result = race.so_far()
        if result.scores:
            self._note(result)
            self._session.raced(result)
        self.query_one(TitleBar).show(state="")
        self.refresh_bindings()
        if failure is not None:
            why = wording.sentence(failure.message)
            if failure.code == ENGINE_DIED:
                why += with_keys(" {chat.load_again} in the chat loads the models again.")
            self._say(why, "")
            self._draw()
        else:
            self._show_result()

    def _note(self, result: Result) -> None:
        """Keep what was measured, for the menu."""
        engine = self._services.settings.current.engine
        for score in result.scores[1:]:
            gain, who = score.gain, score.who
            if score.is_drafted and gain.error is not None:
                known = Gain(gain.speed_up, gain.error, who.n_draft_max, "race", time.time())
                setup = setup_of(self._session.pair, engine, who.drafter)
                self._services.pairs.speeds.note(setup, known)

    # Playing

    def action_replay(self) -> None:
        """Play what was measured."""
        if self._result is not None and self._race.heats:
            self._film = Film(self._race.heats[-_PLAYED_HEATS:], self._race.who)
            self._say("Played at the measured pace. Any key skips it.", "")
            self._frames.resume()

    def _play(self) -> None:
        film = self._film
        if film is None or film.now >= film.seconds:
            self._skip()
        else:
            self._draw()

    def _skip(self) -> None:
        self._frames.pause()
        self._film = None
        self._show_result()

    def _is_skipped(self) -> bool:
        """Whether a key has only skipped the film."""
        if self._film is None:
            return False
        self._skip()
        return True

    def on_key(self, event: events.Key) -> None:
        if self._is_skipped():
            event.stop()
            event.prevent_default()

    # The result

    def _show_result(self) -> None:
        assert self._result is not None
        advice = f"{{race.use}} {self._use_in_words()}"
        if self._hello.can.auto and self._best.n_draft_max != AUTO:
            advice += ", {race.let_auto} lets auto choose"
        self._say(racing.sentence(self._result), with_keys(f"{advice}."))
        self._draw()

    @property
    def _best(self) -> Speculation:
        """How to draft from now on: as it is if no difference was measured."""
        best = self._result.best if self._result else None
        if best is not None and best.verdict == "faster":
            return best.who
        return PLAINLY if best is not None and best.verdict == "slower" else self._now

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        allowed = super().check_action(action, parameters)
        if allowed and action in ("use", "let_auto", "replay", "choose"):
            can_auto = action != "let_auto" or self._hello.can.auto
            return True if self._result is not None and can_auto else None
        return allowed

    def _use_in_words(self) -> str:
        best = self._best
        if best == self._now:
            return f"keeps {racing.name(best)}"
        return f"drafts with {racing.name(best)}" if best.enabled else "decodes plainly"

    def action_use(self) -> None:
        if not self._is_skipped():
            self.dismiss(self._best)

    def action_let_auto(self) -> None:
        if not self._is_skipped():
            self.dismiss(msgspec.structs.replace(self._all[0], n_draft_max=AUTO))

    def action_choose(self) -> None:
        def race(chosen: tuple[Speculation, ...]) -> None:
            self._who = list(chosen)
            self._start()

        if not self._is_skipped():
            self.open(ContendersDialog(self._all, self._who), race)

    def action_back(self) -> None:
        if self._result is None:
            self.leave()
        elif not self._is_skipped():
            self.dismiss(None)

    def leave(self) -> None:
        """Stop what is being measured."""
        self._race.stop()
        self._draw()

    # Drawing

    def _say(self, said: str, advice: str) -> None:
        self.query_one("#said", Line).show(said)
        self.query_one("#advice", Line).show(advice)

    def _draw(self) -> None:
        race, film = self._race, self._film
        if self._result is None:
            self._say(self._progress(), "")
            places = {who: _written(race, who) for who in race.who}
            whole = race.next_look * race.heat_tokens
            lap = "" if race.begins else _lap(race.heats)
            behind, ahead = lap, "".join(round_.text for round_ in race.leg.rounds)
        else:
            shown = film or Film(race.heats, race.who)
            at = shown.now if film else shown.seconds
            places = {who: shown.place(who, at) for who in race.who}
            whole = shown.tokens
            last = int(min(places.values(), default=0)) if film else whole
            behind, ahead = shown.text(last, int(max(places.values(), default=0)))
            best = self._result.best
            if film is None and best is not None and best.fork is not None:
                behind, ahead = racing.both_texts(best.who, best.fork), ""
        lines = [*self._lanes(places, whole)]
        self.query_one("#lanes", Static).update(Content("\n").join(lines))
        mark = "▌" if ahead else ""
        self.query_one("#written", Static).update(
            Content.assemble(behind, (mark, "$primary"), (ahead, "$foreground-muted"))
        )
        self.query_one("#text", VerticalScroll).scroll_end(animate=False)

    def _progress(self) -> str:
        race = self._race
        if race.is_stopping:
            return "Stopping…"
        now = f"{racing.name(race.running)} writes"
        if not race.leg.rounds and not race.heats:
            now = before_writing(race.loading, race.prefill)
        limit, left = plural(race.minutes, "minute"), format_seconds(race.seconds_left)
        return (
            f"Up to {limit}, until it can tell; at most {left} left. Heat {len(race.heats) + 1}: "
            f"{now}. All continue the same text in turn."
        )

    def _lanes(self, places: Mapping[Speculation, float], whole: int) -> Iterator[Content]:
        scores = {one.who: one for one in (self._result or self._race.so_far()).scores}
        names = {who: racing.name(who) for who in places}
        cells = max(map(cell_len, names.values()))
        width = max(min(self.size.width, _WIDEST) - cells - _NUMBERS - 6, 4)
        for who, place in places.items():
            is_writing = self._result is None and who == self._race.running
            score = scores.get(who)
            numbers = f"{score.tokens_per_second:5.1f} tok/s" if score else ""
            is_told = self._result is not None and self._film is None and who != PLAINLY
            if score and is_told and score.verdict != "early":
                numbers += f"  {figure(score.gain.speed_up, score.gain.error)}"
            style = "$foreground-muted" if who == PLAINLY else "$primary"
            yield Content.assemble(
                "▸" if is_writing else " ",
                f"{names[who]:{cells}} ",
                (bar(place / (whole or 1), width), style),
                f" {numbers}",
            )


class Film:
    """The heats of a race side by side, each contender at its measured pace, until the first is
    done."""

    def __init__(self, heats: Sequence[Heat], who: Sequence[Speculation]) -> None:
        self._began = time.monotonic()
        rounds = (round_ for heat in heats for round_ in heat.legs[PLAINLY].recording.rounds)
        self._texts = [token.text for round_ in rounds for token in round_.tokens]
        self.tokens = len(self._texts)
        lengths = [heat.legs[PLAINLY].tokens for heat in heats]
        places = accumulate(lengths, initial=0)
        self._laps = [at for heat, at in zip(heats, places, strict=False) if heat.start == 0]
        self._steps = {one: [*_steps(heats, one)] for one in who}
        self.seconds = min((steps[-1][0] for steps in self._steps.values() if steps), default=0.0)

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def place(self, who: Speculation, at: float) -> float:
        """Tokens of the text that a contender has written after so many seconds."""
        steps = self._steps[who]
        done = bisect_right(steps, (at, float("inf")))
        return steps[done - 1][1] if done else 0.0

    def text(self, last: int, first: int) -> tuple[str, str]:
        """The text up to the contender that is last, and from there up to the first one; both
        from where the reply began for the first one."""
        lap = max((at for at in self._laps if at < first), default=0)
        return "".join(self._texts[lap:last]), "".join(self._texts[max(lap, last) : first])


def _steps(heats: Sequence[Heat], who: Speculation) -> Iterator[tuple[float, float]]:
    """Seconds and place in the text after each round."""
    seconds = place = 0.0
    for heat in heats:
        leg = heat.legs[who]
        scale = heat.legs[PLAINLY].tokens / leg.tokens
        for tokens, ms in leg.pace:
            seconds += ms * scale / 1000.0
            place += tokens * scale
            yield seconds, place


def _lap(heats: Sequence[Heat]) -> str:
    """The text of the finished heats since the reply last began."""
    begins = max((i for i, heat in enumerate(heats) if heat.start == 0), default=0)
    lap = (heat.legs[PLAINLY].recording.rounds for heat in heats[begins:])
    return "".join(round_.text for rounds in lap for round_ in rounds)


def _written(race: Race, who: Speculation) -> float:
    """Tokens that a contender has written so far."""
    # A reply that ended early completes its heat too.
    done = len(race.heats) + (who in race.legs)
    is_running = who == race.running and who not in race.legs and not race.is_over
    running = race.leg.stats.tokens if is_running else 0
    return float(done * race.heat_tokens + min(running, race.heat_tokens))


class ContendersDialog(EagleModal[tuple[Speculation, ...]]):
    """Chooses who races against plain decoding."""

    def __init__(self, who: Sequence[Speculation], chosen: Sequence[Speculation]) -> None:
        super().__init__()
        self._who, self._chosen = who, chosen

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog") as dialog:
            dialog.border_title = "Who races against plain decoding?"
            dialog.border_subtitle = with_keys(
                f"Space chooses, {TAB} and {ENTER} race, {{dialog.back}} back"
            )
            rows = [(racing.name(who), i, who in self._chosen) for i, who in enumerate(self._who)]
            yield TickList(*rows, id="contenders", compact=True)
            with Horizontal(classes="buttons"):
                yield Button("Race", id="race", variant="primary", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#contenders").focus()

    @on(SelectionList.SelectedChanged)
    def _follow(self) -> None:
        chosen = self.query_one("#contenders", SelectionList).selected
        self.query_one("#race", Button).disabled = not chosen

    @on(Button.Pressed)
    def _race(self) -> None:
        chosen = self.query_one("#contenders", SelectionList).selected
        self.dismiss(tuple(self._who[i] for i in sorted(chosen)))
