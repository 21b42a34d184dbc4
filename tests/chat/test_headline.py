"""The headline: plain decoding as it was measured, and a speed-up with its error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eaglechat.chat.conversation import session
from eaglechat.chat.headline import Headline, headline_of, timed_at_load
from eaglechat.chat.recording import Plain
from eaglechat.hub.local.speeds import FEWEST_REPLIES, setup_of
from eaglechat.settings.model import EngineSettings
from eaglechat.wire.records import AutoDraft, AutoReason, Round
from eaglechat.wire.stats import Speed, SpeedFold
from tests.chat.headless import Headless
from tests.chat.records import recorded, round_of

KNOWN = Plain(Speed(100.0, 4.0), "before", at=5.0)
AUTO_KNEW = AutoDraft(2, AutoReason.BEST, (50.0, 60.0, 70.0), 2.0, 0.0, 9.0)


def drafted(count: int, ms: float = 10.0) -> list[Round]:
    """Rounds of one or two tokens by turns."""
    return [round_of(1, 2, ms=ms) if i % 2 else round_of(1, ms=ms) for i in range(count)]


def plain(count: int, ms: float) -> list[Round]:
    return [round_of(1, drafted=0, ms=ms) for _ in range(count)]


def test_the_error_of_a_speed_is_that_of_the_mean_of_its_rounds() -> None:
    fold = SpeedFold()
    for round_ in drafted(8):
        fold.add(len(round_.tokens), 10.0)
    speed = fold.speed()
    assert speed is not None
    assert speed.tokens_per_second == pytest.approx(150.0)
    # Tokens scatter by 0.5 around 1.5; times do not.
    assert speed.error == pytest.approx(2.0 * 1000.0 * 0.5 / 7**0.5 / 10.0)
    for _ in range(72):
        fold.add(2, 10.0)
        fold.add(1, 10.0)
    later = fold.speed()
    assert later is not None
    assert later.error < speed.error / 4.0


@pytest.mark.parametrize(
    ("ms", "verdict"), [(5.0, "faster"), (10.0, "faster"), (15.0, "same"), (30.0, "slower")]
)
def test_a_speed_up_is_told_only_beyond_its_error(ms: float, verdict: str) -> None:
    headline = headline_of(recorded(*drafted(64, ms)), KNOWN)
    assert headline.speed_up == pytest.approx(1500.0 / ms / 100.0)
    assert headline.verdict == verdict
    assert headline.error == pytest.approx(
        headline.speed_up * ((2 / 3 / 64**0.5) ** 2 + 0.04**2) ** 0.5, rel=0.1
    )


def test_a_few_rounds_tell_nothing() -> None:
    headline = headline_of(recorded(*drafted(7)), KNOWN)
    assert (headline.speed, headline.speed_up, headline.verdict) == (None, None, None)
    assert headline.plain is KNOWN


def test_plain_is_that_of_the_reply_then_auto_s_then_an_earlier_one_then_the_load_s() -> None:
    own = headline_of(recorded(*plain(8, 21.0), *drafted(20)), KNOWN)
    assert own.plain is not None
    assert own.plain.source == "reply"
    # The draft's millisecond would not be spent without it.
    assert own.plain.speed.tokens_per_second == pytest.approx(50.0)
    auto = [replace(round_, auto=AUTO_KNEW) for round_ in drafted(20)]
    assert headline_of(recorded(*plain(1, 20.0), *auto), KNOWN).plain == Plain(
        Speed(50.0, 2.0), "auto"
    )
    assert headline_of(recorded(*drafted(20)), KNOWN).plain is KNOWN
    assert headline_of(recorded(*drafted(20))).plain is None
    assert timed_at_load(20.0) == Plain(Speed(50.0, 15.0), "load")
    assert timed_at_load(None) is None


def test_a_reply_that_is_all_plain_has_no_speed_up_unless_auto_made_it_so() -> None:
    by_hand = headline_of(recorded(*plain(20, 20.0)), KNOWN)
    assert by_hand.is_plain
    assert by_hand.speed_up is None
    auto = [replace(round_, auto=replace(AUTO_KNEW, n=0)) for round_ in plain(20, 20.0)]
    assert headline_of(recorded(*auto), KNOWN).verdict == "same"


def test_while_it_is_written_the_headline_follows_the_length() -> None:
    longer = [replace(round_, n_draft_max=4) for round_ in drafted(10, ms=5.0)]
    recording = recorded(*drafted(50), *longer)
    now = headline_of(recording, KNOWN, is_over=False)
    assert now.speed_up == pytest.approx(3.0)
    assert headline_of(recording, KNOWN).speed_up < now.speed_up  # type: ignore[operator]


def test_provisional_rounds_are_not_a_measurement_of_plain_decoding() -> None:
    guessed = [replace(round_, provisional=True) for round_ in plain(20, 20.0)]
    headline = headline_of(recorded(*guessed), KNOWN)
    assert not headline.is_plain
    assert headline.plain is KNOWN


def test_replies_add_up_what_was_measured_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Headless(tmp_path)
    setup = setup_of(chat.pair, EngineSettings())
    own, before = (Plain(Speed(100.0, 1.0), source) for source in ("reply", "before"))
    for plain in (own, before, own, None, *[own] * (FEWEST_REPLIES - 2)):
        assert chat.speeds.gain(setup, 3) is None
        headline = Headline(Speed(150.0, 1.0), 150.0, plain)
        monkeypatch.setattr(session, "headline_of", lambda *_, said=headline, **_more: said)
        chat.ask("again")
    gain = chat.speeds.gain(setup, 3)
    assert gain is not None
    assert (gain.by, gain.replies) == ("replies", FEWEST_REPLIES)
    assert gain.speed_up == pytest.approx(1.5)
