"""The header in which a server says when to ask again."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime


def seconds_of(header: str, now: datetime | None = None) -> float | None:
    """The wait in seconds that `Retry-After` asks for, as a number or as a date; None if none."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            until = parsedate_to_datetime(header)
        except ValueError:
            return None
        # A date that ends in -0000 says that its zone is not known; HTTP's is always GMT.
        until = until if until.tzinfo else until.replace(tzinfo=timezone.utc)
        seconds = math.ceil((until - (now or datetime.now(timezone.utc))).total_seconds())
    return seconds if 0 < seconds < math.inf else None
