"""Sentences and numbers as the screens write them."""

from __future__ import annotations

import msgspec
import pytest

from eaglechat.chat.recording import Plain
from eaglechat.tui.texts import headline, replies, wording
from eaglechat.wire.protocol import DrafterInfo
from eaglechat.wire.records import FinishReason, Part
from eaglechat.wire.stats import Speed
from tests.chat.records import TERMS, answering, recorded, round_of, thinking
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
    assert replies.end_note(recorded(round_of(1), reason=reason), 4096).startswith(note)


def test_a_limit_of_the_settings_is_named_and_no_server_s() -> None:
    recording = recorded(round_of(1), reason=FinishReason.LENGTH)
    assert "max_tokens" not in replies.end_note(recording, 4096)
    recording.terms = msgspec.structs.replace(TERMS, max_tokens=1)
    assert "generation.max_tokens ·" in replies.end_note(recording, 4096)


def test_the_title_names_all_that_can_draft() -> None:
    info = pair_info("t.gguf", "d.gguf", None)
    assert wording.pair_in_short(info, "t") == "t · Q4_1 + EAGLE-3"
    heads = DrafterInfo(kind="mtp")
    both = msgspec.structs.replace(info, drafters=(*info.drafters, heads))
    assert wording.pair_in_short(both, "t") == "t · Q4_1 + EAGLE-3 + MTP heads"
    assert wording.pair_in_short(pair_info("t.gguf", None, None), "t") == "t · Q4_1, no draft"


def test_a_reply_that_was_cut_off_says_so() -> None:
    assert replies.end_note(answering("so"), 4096) == "cut off here"


def test_one_token_of_reasoning_is_one_token() -> None:
    recording = recorded(thinking("hm"))
    assert replies.thought(recording.by_part[Part.REASONING]).startswith(
        "thought for 0 s, 1 token,"
    )


def test_a_text_is_cut_by_its_cells() -> None:
    assert wording.fitting("漢字漢字", 8) == "漢字漢字"
    assert wording.fitting("漢字漢字", 7) == "漢字漢…"
    assert wording.fitting("漢字漢字", 6) == "漢字…"
    assert wording.fitting("abc", 2) == "a…"


def test_a_plain_speed_says_how_old_it_is() -> None:
    def aged(seconds: float) -> str:
        return headline.origin(Plain(Speed(30.0, 1.0), "before", at=1000.0), 1000.0 + seconds)

    said = [aged(seconds) for seconds in (5.0, 61.0, 7200.0, 90_000.0)]
    assert said == [f"measured {ago}" for ago in ("just now", "1 min ago", "2 h ago", "1 day ago")]
    assert headline.plain_in_short(Plain(Speed(30.0, 1.0), "load")) == "plain ~30.0 ±1.0"


def test_the_note_below_a_reply_begins_with_what_it_gained() -> None:
    reply = recorded(*[round_of(1, 2) for _ in range(20)])
    assert replies.with_headline(reply, "40 tokens") == "40 tokens"
    reply.plain_before = Plain(Speed(100.0, 1.0), "before")
    assert replies.with_headline(reply, "40 tokens") == "~2.0x plain · 40 tokens"
    reply.plain_before = Plain(Speed(400.0, 1.0), "before")
    assert replies.with_headline(reply, "40 tokens") == "~0.5x plain, slower · 40 tokens"
