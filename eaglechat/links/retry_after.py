"""The Retry-After header, in which a server says when to ask again."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime


def seconds_of(header: str, now: datetime | None = None) -> float | None:
    """Seconds to wait, from a header that holds a number or a date; None if there is no wait."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            until = parsedate_to_datetime(header)
        except ValueError:
            return None
        # A date that ends in -0000 has no time zone; HTTP's dates are always GMT.
        until = until if until.tzinfo else until.replace(tzinfo=timezone.utc)
        seconds = math.ceil((until - (now or datetime.now(timezone.utc))).total_seconds())
    return seconds if 0 < seconds < math.inf else None
