"""When a server wants to be asked again."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.links.http.faults import retry_after_s

NOON = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("1.5", 1.5),
        ("Mon, 23 Nov 2026 12:00:20 GMT", 20),
        ("Mon, 23 Nov 2026 12:00:20 -0000", 20),
        ("Mon, 23 Nov 2026 11:59:00 GMT", None),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("inf", None),
        ("²", None),
        ("", None),
    ],
)
def test_a_number_and_a_date_are_waits(header: str, seconds: float | None) -> None:
    assert retry_after_s(header, NOON) == seconds


@given(st.text())
def test_whatever_a_server_sends_is_a_wait_or_none(header: str) -> None:
    seconds = retry_after_s(header)
    assert seconds is None or seconds > 0
