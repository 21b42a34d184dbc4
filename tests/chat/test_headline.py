"""The headline: what is told of a reply against plain decoding, and when nothing is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from eaglechat.chat.measured import Stretch
from eaglechat.hub.local.speeds import FEWEST_REPLIES, setup_of
from eaglechat.settings.model import EngineSettings
from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.records import AutoDraft, AutoReason, Round
from eaglechat.words.headline import Headline, headline_of
from eaglechat.words.numbers import headline as headline_on_show
from tests.chat.headless import Headless, reopened
from tests.chat.records import TERMS, recorded, round_of, with_checks

AUTO_ONE = AutoDraft(2, AutoReason.BEST, (50.0, 60.0, 70.0), 0.0, 9.0)


def on_auto(rounds: list[Round]) -> list[Round]:
    return [replace(one, auto=replace(AUTO_ONE, n=one.n_draft_max)) for one in rounds]


def looping(rounds: list[Round]) -> list[Round]:
    return [
        replace(
            one,
            tokens=tuple(replace(token, id=(token.id or 0) % 22) for token in one.tokens),
        )
        for one in rounds
    ]


@pytest.mark.parametrize("is_auto", [False, True])
@pytest.mark.parametrize(("ms", "verdict"), [(10.0, "faster"), (20.0, "same"), (30.0, "slower")])
def test_a_reply_is_compared_with_its_own_plain_rounds(
    ms: float, verdict: str, *, is_auto: bool
) -> None:
    rounds = with_checks(ms)
    headline = headline_of(recorded(*(on_auto(rounds) if is_auto else rounds)))
    assert headline.verdict == verdict
    assert headline.plain_per_second == pytest.approx(100.0)
    assert headline.gain is not None
    speed_up = headline.gain.speed_up
    assert headline.tokens_per_second == pytest.approx(100.0 * speed_up)
    assert headline.in_json()["verdict"] == verdict


def test_what_auto_spends_on_its_draft_in_plain_rounds_counts_against_it() -> None:
    """In every tenth round the draft model takes in what it missed, for half a round's time."""
    plain = on_auto([round_of(place, drafted=0) for place in range(200)])
    takes_in = replace(plain[0].timings, process_ms=5.0, total_ms=15.0)
    rounds = [
        replace(one, timings=takes_in) if place % 10 == 5 else one
        for place, one in enumerate(plain)
    ]
    gain = headline_of(recorded(*rounds)).gain
    assert gain is not None
    assert gain.speed_up == pytest.approx(10 / 10.5, rel=0.005)


@pytest.mark.parametrize(
    ("rounds", "state"),
    [
        ([], "none"),
        ([round_of(1, 2)] * 7, "few"),
        ([round_of(1, 2)] * 20, "not measured"),
        ([round_of(1, drafted=0)] * 20, "plain"),
        (with_checks(10.0)[:30], "not measured"),
        (looping(with_checks(10.0)), "repeats"),
    ],
)
def test_nothing_is_claimed_that_was_not_measured(rounds: list[Round], state: str) -> None:
    headline = headline_of(recorded(*rounds))
    assert (headline.state, headline.verdict, headline.gain) == (state, None, None)


def test_a_reply_that_is_written_measures_and_a_server_s_cannot() -> None:
    short = recorded(*with_checks(10.0)[:30])
    assert headline_of(short, is_over=False).state == "measuring"
    short.terms = replace(TERMS, engine="some server")
    assert headline_of(short, is_over=False).state == "not measured"


def test_a_reply_that_auto_decoded_plainly_is_the_same_as_plain() -> None:
    plain = on_auto([round_of(index, drafted=0) for index in range(40)])
    assert headline_of(recorded(*plain)).verdict == "same"


def test_all_figures_are_since_the_length_was_last_set_by_hand() -> None:
    longer = [
        replace(one, n_draft_max=4) if one.n_draft_max else one for one in with_checks(5.0, 4)
    ]
    recording = recorded(*with_checks(30.0), *longer)
    assert recording.stretch.stats.rounds == len(longer)
    for is_over in (False, True):
        assert headline_of(recording, is_over=is_over).verdict == "faster"


@pytest.mark.parametrize(
    ("gain", "said", "beside"),
    [
        ((1.42, 0.1), "1.4x plain Q4_0", "plain Q4_0 ±0.1"),
        ((0.7, 0.21), "0.7x plain Q4_0, slower", "plain Q4_0 ±0.3, slower"),
        ((0.8, 0.3), "can't tell yet: 0.8x ±0.3", "can't tell yet: 0.8x ±0.3"),
        ((1.0, 0.02), "same as plain Q4_0", "same as plain Q4_0"),
    ],
)
def test_the_headline_names_what_plain_is(
    gain: tuple[float, float], said: str, beside: str
) -> None:
    headline = Headline("told", 140.0, MeasuredGain(*gain), 100.0, "Q4_0")
    assert (headline.in_short(), headline.beside_times()) == (said, beside)
    assert (headline.speed(), headline.plain_speed()) == ("140 tok/s", "100 tok/s")


def test_replies_add_up_what_was_measured_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Headless(tmp_path)
    setup = setup_of(chat.pair, EngineSettings())
    told = MeasuredGain(1.5, 0.1)
    monkeypatch.setattr(Stretch, "gain", told)
    chat.begin("stopped, which counts, and continued, which does not")
    chat.rounds(2)
    chat.session.stop()
    chat.finish()
    assert chat.session.continue_reply(chat.session.turns.path[-1].id)
    chat.finish()
    chat.begin("not as it was asked for")
    chat.rounds(1)
    for by in (1, -1):
        chat.session.change_draft_length(by)
    chat.finish()
    for gain in (told, None, *[told] * (FEWEST_REPLIES - 2)):
        assert chat.speeds.gain(setup, 3) is None
        monkeypatch.setattr(Stretch, "gain", gain)
        chat.ask("again")
    known = chat.speeds.gain(setup, 3)
    assert known is not None
    assert (known.by, known.replies) == ("replies", FEWEST_REPLIES)
    assert known.speed_up == pytest.approx(1.5)


def test_a_chat_has_the_same_headline_everywhere_and_when_it_is_opened_again(
    tmp_path: Path,
) -> None:
    chat = Headless(tmp_path)
    chat.engine.plays_checks = True
    chat.engine.reply = " ".join(f"word{index}" for index in range(300))
    chat.ask("drafted")
    headline = headline_on_show(chat.session)
    assert headline.verdict == "faster"
    assert headline.of
    note = chat.entries[-1].below()
    said = dataclasses.replace(headline, of="").in_short()
    assert note is not None
    assert note.startswith(said)
    assert chat.session.shown is not None
    stats = chat.session.shown.stretch.stats
    again = reopened(chat)
    now = headline_on_show(again.session)
    assert now.verdict == headline.verdict
    assert now.gain is not None
    assert headline.gain is not None
    assert now.gain.speed_up == pytest.approx(headline.gain.speed_up, rel=1e-3)
    assert now.gain.error == pytest.approx(headline.gain.error, rel=1e-2)
    assert again.entries[-1].below() == note
    assert again.session.shown is not None
    assert again.session.shown.stretch.stats == stats


@pytest.mark.parametrize(
    ("gain", "most", "said"),
    [
        (MeasuredGain(1.4, 0.1), 2.34, "1.4x plain F16, of 2.3x at most here"),
        (MeasuredGain(1.4, 0.1), None, "1.4x plain F16"),
        # What was timed in a short context says nothing of this.
        (MeasuredGain(1.4, 0.1), 1.3, "1.4x plain F16"),
        (MeasuredGain(1.0, 0.01), 2.3, "same as plain F16"),
        (MeasuredGain(0.7, 0.1), 2.3, "0.7x plain F16, slower"),
    ],
)
def test_a_speed_up_stands_beside_what_can_be_reached(
    gain: MeasuredGain, most: float | None, said: str
) -> None:
    assert Headline("told", 40.0, gain, 29.0, "F16", most).in_short() == said
