"""Sentences and numbers as the screens write them."""

from __future__ import annotations

import msgspec
import pytest

from eaglechat.wire.protocol import DrafterInfo
from eaglechat.wire.records import FinishReason
from eaglechat.words import timeline, wording
from eaglechat.words.timeline import Entry
from tests.chat.records import TERMS, answering, recorded, round_of, thinking, with_checks
from tests.tui.scripted_reports import pair_info


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        (FinishReason.STOP, "1 token, 33.3 tok/s"),
        (FinishReason.CANCELLED, "stopped · 1 token, 33.3 tok/s"),
        (FinishReason.LENGTH, "token limit reached · 1 token, 33.3 tok/s"),
        (FinishReason.CONTEXT, "context full · this turn alone fills its 4,096 tokens"),
    ],
)
def test_how_a_reply_ended(reason: FinishReason, note: str) -> None:
    assert timeline.end_note(recorded(round_of(1), reason=reason), 4096).startswith(note)


def test_a_limit_of_the_settings_is_named_and_no_server_s() -> None:
    recording = recorded(round_of(1), reason=FinishReason.LENGTH)
    assert "max_tokens" not in timeline.end_note(recording, 4096)
    recording.terms = msgspec.structs.replace(TERMS, max_tokens=1)
    assert "generation.max_tokens ·" in timeline.end_note(recording, 4096)


def test_the_title_names_all_that_can_draft() -> None:
    info = pair_info("t.gguf", "d.gguf", None)
    assert wording.pair_in_short(info, "t") == "t · Q4_1 + EAGLE-3"
    heads = DrafterInfo(kind="mtp")
    both = msgspec.structs.replace(info, drafters=(*info.drafters, heads))
    assert wording.pair_in_short(both, "t") == "t · Q4_1 + EAGLE-3 + MTP heads"
    assert wording.pair_in_short(pair_info("t.gguf", None, None), "t") == "t · Q4_1, no draft"


def test_a_reply_that_was_cut_off_says_so() -> None:
    assert timeline.end_note(answering("so"), 4096) == "cut off here"


def test_one_token_of_reasoning_is_one_token() -> None:
    recording = recorded(thinking("hm"))
    entry = timeline.Entry("thought 1", "thought", recording=recording, note="")
    assert (entry.below() or "").startswith("thought for 0 s, 1 token,")


def test_a_text_is_cut_by_its_cells() -> None:
    assert wording.fitting("漢字漢字", 8) == "漢字漢字"
    assert wording.fitting("漢字漢字", 7) == "漢字漢…"
    assert wording.fitting("漢字漢字", 6) == "漢字…"
    assert wording.fitting("abc", 2) == "a…"


@pytest.mark.parametrize(
    ("ms", "said"),
    [(10.0, "1.82x plain"), (40.0, "0.53x plain, slower"), (20.0, "same as plain")],
)
def test_the_note_below_a_reply_begins_with_what_it_gained(ms: float, said: str) -> None:
    short = recorded(*[round_of(1, 2) for _ in range(20)])
    assert Entry("turn 1", "reply", recording=short, note="40 tokens").below() == "40 tokens"
    long = recorded(*with_checks(ms))
    entry = Entry("turn 1", "reply", recording=long, note="40 tokens")
    assert entry.below() == f"{said} · 40 tokens"


@pytest.mark.parametrize(
    ("share", "said"),
    [(1899 / 1905, "99%"), (0.9999, "99%"), (1.0, "100%"), (0.71, "71%"), (0.0, "0%"), (None, "-")],
)
def test_nothing_is_rounded_up_to_all(share: float | None, said: str) -> None:
    assert wording.percent(share) == said


def test_a_speed_has_three_digits_and_a_unit() -> None:
    said = [wording.tokens_per_second(rate) for rate in (8.04, 99.94, 99.96, 103.6, 1234.5)]
    assert said == ["8.0 tok/s", "99.9 tok/s", "100 tok/s", "104 tok/s", "1,234 tok/s"]
