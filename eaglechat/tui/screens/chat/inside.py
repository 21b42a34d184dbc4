"""The inside of a round: the drafted tokens, the target's probabilities at each position, and the
tokens it sampled."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import set_cell_size
from textual.content import Content

from eaglechat.chat.inspecting import CandidateToken, Position, look_inside
from eaglechat.chat.recording import Recording
from eaglechat.chat.session import ChatSession
from eaglechat.chat.turns import TurnId
from eaglechat.tui.commands.keys import bindings_of, moves, with_keys
from eaglechat.tui.screens.dialogs import TextDialog
from eaglechat.tui.services.services import SettingsService
from eaglechat.tui.themes import MUTED
from eaglechat.wire.records import FinishReason, Origin, Round, Token
from eaglechat.words.bars import bar
from eaglechat.words.wording import drafter, fitting, not_reported, plural, visible

TOKEN_CELLS, LONG_CELLS = 16, 80
BAR_CELLS = 8
CONTEXT_CHARACTERS = 160
_ALL = 10**9
"""More rounds than any reply has."""
_MARKS = {"accepted": "✓", "rejected": "✗", "sampled": "•", "": " "}
_TIMES = {"draft_ms": "draft", "process_ms": "process", "verify_ms": "verify",
          "sample_ms": "sample", "total_ms": "total"}  # fmt: skip


class InsideScreen(TextDialog[None]):
    """Shows one round of a reply at a time; keys go to the rounds before and after it."""

    KEYS = "← → other rounds, {dialog.back} back"
    BINDINGS = [
        *bindings_of("inside"),
        *moves(
            {"left": "go(-1)", "right": "go(1)", "home": f"go(-{_ALL})", "end": f"go({_ALL})"},
            priority=True,
        ),
    ]

    def __init__(
        self, session: ChatSession, settings: SettingsService, reply: TurnId, index: int
    ) -> None:
        super().__init__()
        self._session, self._settings, self._reply, self._wanted = session, settings, reply, index
        self._recording = session.turns.reply(reply).recording
        self._unreported = not_reported(session.hello, "own")
        self._drawn: tuple[Recording, int, int, bool] | None = None

    def on_mount(self) -> None:
        self.scroll.focus()
        self._look()
        self.set_interval(1 / 8, self._look)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "record":
            rounds = self._recording.rounds
            return self._unreported is None and bool(rounds) and not rounds[self._index].likely
        return super().check_action(action, parameters)

    def action_go(self, by: int) -> None:
        self._wanted = max(self._index + by, 0)
        self._look()

    def action_record(self) -> None:
        again = self._session.answer_recorded(self._reply)
        if again is not None:
            # As in all replies from now on.
            self._settings.change("interface", "inspect", True)
            self._recording = again
            self._look()

    @property
    def _index(self) -> int:
        return min(self._wanted, len(self._recording.rounds) - 1)

    def _look(self) -> None:
        """Show the round; of a reply that is being written, the last one before it so far."""
        rounds, running, index = self._recording.rounds, self._session.running, self._index
        is_written = running is not None and running.turn.recording is self._recording
        state = (self._recording, index, len(rounds), is_written)
        if not rounds:
            if not is_written:
                # It failed; the chat says why.
                self.dismiss()
        elif state != self._drawn:
            is_another = self._drawn is None or self._drawn[:2] != state[:2]
            self._drawn = state
            self.frame.border_title = (
                f"Round {index + 1:,} of {len(rounds):,}{' so far' * is_written}"
            )
            if is_another:
                self.show(self._drawn_round(rounds[index]))
                self.scroll.scroll_home(animate=False)
                self.refresh_bindings()

    def _drawn_round(self, round_: Round) -> Content:
        positions, untested = look_inside(round_)
        lines = [self._in_context(), Content(_summary(round_)), Content("")]
        lines += _table(positions, self._end_of_reply)
        if untested:
            texts = ", ".join(
                f"{_quoted(one.text)}{_percent(one.probability, ' ')}" for one in untested
            )
            lines.append(Content.assemble(("Drafted, not tested: " + texts, MUTED)))
        if not round_.likely:
            why = with_keys(
                "The target's candidates were not recorded: {inside.record} records them from now "
                "on and answers again."
            )
            if self._unreported is not None:
                why = f"The target's probabilities are {self._unreported}."
            lines.append(Content.assemble((why, MUTED)))
        lines += [Content(""), Content.assemble((_times(round_), MUTED))]
        return Content("\n").join(lines)

    def _in_context(self) -> Content:
        """The round's text in the colours of its origins, between the texts before and after it."""
        rounds = self._recording.rounds
        before = visible("".join(r.text for r in rounds[max(0, self._index - 40) : self._index]))
        if len(before) > CONTEXT_CHARACTERS:
            _, space, whole_words = before[-CONTEXT_CHARACTERS:].partition(" ")
            before = f"…{space}{whole_words}" if space else before[-CONTEXT_CHARACTERS:]
        after = "".join(r.text for r in rounds[self._index + 1 : self._index + 20])
        tokens = (
            (visible(token.text), _style(token.origin)) for token in rounds[self._index].tokens
        )
        return Content.assemble(
            (before, MUTED), *tokens, (visible(after)[: CONTEXT_CHARACTERS // 2], MUTED)
        )

    @property
    def _end_of_reply(self) -> Token | None:
        """The token that ends the reply, if this round wrote it: it has no text."""
        rounds, end = self._recording.rounds, self._recording.end
        is_last = self._index == len(rounds) - 1
        if not is_last or end is None or end.finish_reason is not FinishReason.STOP:
            return None
        tokens = rounds[-1].tokens
        return tokens[-1] if tokens and not tokens[-1].text else None


def _summary(round_: Round) -> str:
    if round_.is_plain_check:
        return "Nothing was drafted, to measure what plain decoding takes here and now."
    if not round_.drafted:
        return "Nothing was drafted: the target decoded one token by itself."
    who = " and ".join(sorted({drafter(one.drafter) for one in round_.drafted if one.drafter}))
    by = f" ({who})" if who else ""
    tested = f"{round_.n_tested} tested"
    if len({one.parent for one in round_.drafted}) < len(round_.drafted):
        # Siblings of a tree are tested together.
        tested = f"tested in {plural(round_.n_tested, 'place')}"
    return (
        f"{plural(len(round_.drafted), 'token')} drafted{by}, {tested}, "
        f"{round_.n_accepted} accepted; {plural(len(round_.tokens), 'token')} gained."
    )


def _table(positions: list[Position], end: Token | None) -> Iterator[Content]:
    head = f"{'':6}{'':{TOKEN_CELLS}} {'draft':>6} {'target':>7} {'chance':>7}"
    yield Content.assemble((head, MUTED))
    for number, (token, candidates) in enumerate(positions, 1):
        for row, one in enumerate(candidates):
            is_end = token is end and one.fate in ("accepted", "sampled")
            text = "end of the reply" if is_end else _quoted(one.text, TOKEN_CELLS)
            yield _row(f"{number:>3} " if row == 0 else "    ", one, token, text)
        if sentence := _why(token, candidates):
            yield Content.assemble((f"      {sentence}", "$text-warning"))


def _row(number: str, one: CandidateToken, token: Token, text: str) -> Content:
    numbers = f" {_percent(one.draft):>6} {_percent(one.target):>7} {_percent(one.chance):>7}  "
    style = ""
    if one.fate in ("accepted", "sampled"):
        style = _style(token.origin)
    elif one.fate == "rejected":
        style = "$token-rejected"
    return Content.assemble(
        (number, MUTED),
        (f"{_MARKS[one.fate]} ", style),
        (set_cell_size(text, TOKEN_CELLS), style),
        numbers,
        (f"{bar(one.target or 0.0, BAR_CELLS)} ", MUTED),
        (one.fate, MUTED),
    )


def _why(token: Token, candidates: list[CandidateToken]) -> str:
    """Why a drafted token was rejected; empty if none was, or if the target's probabilities were
    not recorded."""
    rejected = next((one for one in candidates if one.fate == "rejected"), None)
    if rejected is None or rejected.chance is None or token.origin is not Origin.CORRECTION:
        return ""
    if rejected.chance:
        return (
            f"{_quoted(rejected.text)} was rejected at random: its chance was"
            + _percent(rejected.chance, " ")
            + "."
        )
    sampled = next((one for one in candidates if one.fate == "sampled"), None)
    if sampled is not None and sampled.chance == 1.0:
        return f"Only the target's likeliest token could be sampled, {_quoted(sampled.text)}."
    return f"The filters (top_k, top_p, min_p) leave {_quoted(rejected.text)} out."


def _times(round_: Round) -> str:
    known = [
        f"{name} {ms:.1f} ms"
        for field, name in _TIMES.items()
        if (ms := getattr(round_.timings, field)) is not None
    ]
    return " · ".join(known)


def _style(origin: Origin) -> str:
    return "" if origin is Origin.UNKNOWN else f"$token-{origin.value}"


def _quoted(text: str | None, cells: int = LONG_CELLS) -> str:
    """A token in quotes, in so many cells at most."""
    if text == "":
        return "no text"
    return "a token" if text is None else f"“{fitting(visible(text), cells - 2)}”"


def _percent(share: float | None, before: str = "") -> str:
    """A share in percent, with `before` in front of it; empty if it is unknown."""
    if share is None:
        return ""
    if 0 < share < 0.001:
        return f"{before}<0.1%"
    return f"{before}{share:.1%}" if share < 0.0995 else f"{before}{share:.0%}"
