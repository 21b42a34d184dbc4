"""What sequences of tokens have in common, and what one lacks that another one has."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def find_cut(before: Sequence[int], after: Sequence[int]) -> range | None:
    """The positions that `before` has and `after` lacks, if that is their only difference.

    Turns begin alike, so the cut may begin at several positions. The last but one is taken: there,
    the first removed token is the same as the token behind the cut. The draft has paired its row
    before the cut with that token.
    """
    starts = cut_starts(before, after)
    if not starts:
        return None
    start = starts[-2] if len(starts) > 1 else starts[-1]
    return range(start, start + len(before) - len(after))


def cut_starts(before: Sequence[int], after: Sequence[int]) -> range:
    """The positions, ascending, where a cut may begin that turns `before` into `after`."""
    if len(before) <= len(after):
        return range(0)
    alike_behind = common_prefix(before[::-1], after[::-1])
    return range(len(after) - alike_behind, common_prefix(before, after) + 1)
