"""What decoding costs by batch width and context length, from the rounds that were run.

A table, not a line: verify times have steps (a kernel's tile, an expert more to load), so a width
that was measured is believed, and only one that never was is read off its neighbours.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import median

CONTEXT_BUCKET = 256
"""Tokens of the first context bucket; each further bucket doubles the context. llama.cpp attends
over a multiple of 256 cells, so costs step up there: with small models by a quarter."""

_KEPT = 16
_STEP = 1.15
_ONCE = 0.6
"""What a size measured a single time may truly cost, as a share: one delay proves nothing."""
_ENOUGH = 3
_LEVEL_OVER, _STEADY = 5, 1.05
"""The machine's level is the median of the latest measurements, so that two delays do not move
it, once it differs by more than noise."""
_REPLACED_BY = _LEVEL_OVER // 2 + 2
"""Values in a row that replace others far from them: more than the level needs to follow, or what
the machine does would be taken for what a size costs."""
_FAR_FASTER = 0.8
"""Share of what was expected that only a calibration in a bad moment explains."""
_FRESH = 4096
"""Rounds after which a measurement no longer proves that a width is dear."""
_DRAFT_DISCOUNT, _RIDGE = 0.97, 0.5
_SETTLED, _DELAY = 8.0, 1.5
_PRIOR_SLOPE = 0.15
"""Cost of a further token, in units of one token's decode, before any width but one is known."""


def context_bucket(n_past: int) -> int:
    """The bucket of a context length: 0 up to 255 tokens, 1 up to 511, 2 up to 1,023, ..."""
    return (n_past // CONTEXT_BUCKET).bit_length()


class RobustMean:
    """The mean of the latest values, with the outer quarters pulled in to the middle half.

    A single delay moves it little; `_REPLACED_BY` values in a row far from the others replace them.
    """

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_KEPT)
        self.mean = 0.0
        self.error = 0.0
        """Standard error of the mean."""

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        self._values.append(value)
        values = list(self._values)
        if len(values) > _REPLACED_BY + 2:
            latest, others = values[-_REPLACED_BY:], sorted(values[:-_REPLACED_BY])
            cut = len(others) // 4
            if min(latest) > _STEP * others[-1 - cut] or max(latest) * _STEP < others[cut]:
                self._values = deque(latest, maxlen=_KEPT)
                values = latest
        self._summarise(sorted(values))

    def _summarise(self, ordered: list[float]) -> None:
        count = len(ordered)
        if count <= 5:
            # Delays only ever add: of few values the lower middle one is nearest the truth.
            self.mean = ordered[(count - 1) // 2]
        else:
            self.mean = sum(_pulled_in(ordered, count // 4)) / count
        self.error = 0.1 * self.mean
        if count > 2:
            values = _pulled_in(ordered, count // 8)
            mean = sum(values) / count
            variance = sum((value - mean) ** 2 for value in values) / (count - 1)
            self.error = (variance / count) ** 0.5


def _pulled_in(ordered: list[float], cut: int) -> list[float]:
    """The values with the `cut` least and greatest pulled in to those next to them."""
    low, high = ordered[cut], ordered[-1 - cut]
    return [min(max(value, low), high) for value in ordered]


class CostTable:
    """Milliseconds by size (1 .. `n_sizes`) and context bucket.

    A machine that slows down or recovers does so for all sizes, but only the size in use shows
    it. Cells therefore hold what things cost on a machine at level 1, and the level follows the
    latest measurements; else what is in use would look dear beside what was measured before.
    """

    def __init__(self, n_sizes: int) -> None:
        self._n_sizes = n_sizes
        self._cells: dict[int, dict[int, RobustMean]] = {}
        self._seen: dict[tuple[int, int], int] = {}
        self._last_seen: dict[int, int] = {}
        self._clock = 0
        self._only_calibrated: dict[int, float] = {}
        """Milliseconds by size, of sizes that have not been added since; plain ones always are."""
        self._confirmed = False
        self._plain_since = 1.0
        """What a plain token took last, as a share of what is expected of it: the machine now."""
        self._latest: deque[float] = deque((1.0,), maxlen=_LEVEL_OVER)
        self._level = 1.0
        self._expected: dict[int, list[float]] = {}

    def calibrate(self, size: int, ms: float) -> None:
        """Note what something of this size took alone, before anything else is added."""
        self._note(size, 0, ms)
        if size > 1:
            self._only_calibrated[size] = ms

    def add(self, size: int, bucket: int, ms: float) -> None:
        """Note that something of this size took `ms` in this context."""
        if size > 1 and self._only_calibrated:
            self._judge_calibration(size, bucket, ms)
        elif size == 1 and self._only_calibrated:
            self._plain_since = ms / self._cells[0][1].mean
        self._note(size, bucket, ms)

    def _note(self, size: int, bucket: int, ms: float) -> None:
        self._clock += 1
        cell = self._cells.setdefault(bucket, {}).setdefault(size, RobustMean())
        usual = cell if len(cell) >= _ENOUGH else self._elsewhere(size, bucket)
        if usual is not None:
            self._latest.append(ms / usual.mean)
            level = median(self._latest)
            if not 1.0 / _STEADY < level / self._level < _STEADY:
                self._level = level
        cell.add(ms / self._level)
        self._seen[size, bucket] = self._last_seen[size] = self._clock
        self._expected.clear()

    def _elsewhere(self, size: int, bucket: int) -> RobustMean | None:
        """This size in the nearest context where it was measured often enough, so that the level
        holds across contexts; what a longer one costs more counts as level until it is known."""
        known = [
            other
            for other, cells in self._cells.items()
            if size in cells and len(cells[size]) >= _ENOUGH
        ]
        nearest = min(known, key=lambda other: abs(other - bucket), default=None)
        return None if nearest is None else self._cells[nearest][size]

    def _judge_calibration(self, size: int, bucket: int, ms: float) -> None:
        """Delays only ever add: something that takes far less than expected shows that it was
        calibrated in a bad moment, and so were the other sizes. Else they are confirmed. The first
        measurement decides: later ones may find a machine that has changed."""
        self._only_calibrated.pop(size, None)
        if self._confirmed:
            return
        self._confirmed = True
        faster = ms / self.expected(bucket)[size - 1]
        if faster < _FAR_FASTER * min(self._plain_since, 1.0):
            for other in self._only_calibrated:
                self._only_calibrated[other] *= faster
                self._cells[0][other] = RobustMean()
                self._cells[0][other].add(self._only_calibrated[other])

    def cell(self, size: int, bucket: int) -> RobustMean | None:
        """What was measured of exactly this size in this bucket, at level 1."""
        return self._cells.get(bucket, {}).get(size)

    def since(self, size: int, bucket: int) -> int:
        """Rounds since this size was measured in this bucket; all of them if it never was."""
        return self._clock - self._seen.get((size, bucket), 0)

    @property
    def rounds(self) -> int:
        """Rounds this table has seen."""
        return self._clock

    @property
    def largest(self) -> int:
        """The largest size measured in any bucket; 0 before the first."""
        return max((size for cells in self._cells.values() for size in cells), default=0)

    def expected(self, bucket: int) -> list[float]:
        """Milliseconds of sizes 1 .. n_sizes (at index size - 1); empty before any measurement."""
        if bucket not in self._expected and self._cells:
            self._expected[bucket] = [self._level * ms for ms in self._row(bucket)]
        return self._expected.get(bucket, [])

    def typical(self, size: int, bucket: int) -> float | None:
        """Milliseconds of one size, as `expected` has it, without working out a whole row where
        this size was measured often enough; None before any measurement."""
        cell = self.cell(size, bucket)
        if cell is not None and len(cell) >= _ENOUGH:
            return self._level * cell.mean
        row = self.expected(bucket)
        return row[size - 1] if row else None

    def hoped(self, bucket: int) -> list[float]:
        """As `expected`, but each size as cheap as it can still be hoped to be: one that was
        never measured, or long ago, may cost little more than the next smaller one."""
        hoped: list[float] = []
        for size, ms in enumerate(self.expected(bucket), start=1):
            times, cell = self.times_measured(size), self.cell(size, bucket)
            least = ms
            if times > 1:
                least -= self._level * cell.error if cell is not None else 0.0
            elif hoped:
                # Never measured: half way to the next smaller one.
                least = max(_ONCE * ms if times else 0.0, min(ms, (ms + hoped[-1]) / 2.0))
            hoped.append(least)
        return hoped

    def times_measured(self, size: int) -> int:
        """How often this size was measured, lately and in whatever context. A calibration counts
        twice once another size has confirmed, or corrected, it."""
        if self._clock - self._last_seen.get(size, -_FRESH) >= _FRESH:
            return 0
        times = sum(len(cells[size]) for cells in self._cells.values() if size in cells)
        if self._confirmed and size in self._only_calibrated:
            times += 1
        return times

    def _row(self, bucket: int) -> list[float]:
        """What was measured here, then in the nearest contexts scaled to this one, then lines."""
        own = self._cells.get(bucket, {})
        known: dict[int, tuple[float, float]] = {}
        others = [other for other in self._cells if other != bucket]
        for other in sorted(others, key=lambda other: (abs(other - bucket), other)):
            scale = self._scale(other, own)
            for size, cell in self._cells[other].items():
                known.setdefault(size, (cell.mean * scale, 1.0))
        for size, cell in own.items():
            elsewhere, weight = known.get(size, (cell.mean, 0.0))
            count = len(cell)
            mean = (count * cell.mean + weight * elsewhere) / (count + weight)
            known[size] = (mean, count + weight)
        return _filled(_never_falling(known), self._n_sizes)

    def _scale(self, bucket: int, own: dict[int, RobustMean]) -> float:
        """How much dearer things are here than in another context."""
        cells = self._cells[bucket]
        ratios = [own[size].mean / cells[size].mean for size in own if size in cells]
        return median(ratios) if ratios else 1.0


class DraftCost:
    """Milliseconds of drafting, which takes one step after another: a line over their number.

    Least squares over discounted measurements. As long as one number is all there is, taking in
    the accepted rows, where the line begins, counts as dear as a step.
    """

    def __init__(self) -> None:
        self._weight = self._steps = self._squares = self._ms = self._products = 0.0

    def __bool__(self) -> bool:
        return self._weight > 0.0

    def add(self, n_steps: int, ms: float) -> None:
        """Note that drafting took so many steps and `ms`; a delay counts as little more."""
        if self._weight > _SETTLED:
            ms = min(ms, _DELAY * self.expected(n_steps)[-1])
        self._weight = self._weight * _DRAFT_DISCOUNT + 1.0
        self._steps = self._steps * _DRAFT_DISCOUNT + n_steps
        self._squares = self._squares * _DRAFT_DISCOUNT + n_steps * n_steps
        self._ms = self._ms * _DRAFT_DISCOUNT + ms
        self._products = self._products * _DRAFT_DISCOUNT + ms * n_steps

    def expected(self, n_most: int) -> list[float]:
        """Milliseconds of 1 .. n_most steps (at index steps - 1)."""
        mixed = self._steps - _RIDGE
        own, squares = self._weight + _RIDGE, self._squares + _RIDGE
        step = (own * self._products - mixed * self._ms) / (own * squares - mixed * mixed)
        step = min(max(step, 0.0), self._products / max(self._squares, 1e-9))
        first = max(0.0, (self._ms - step * self._steps) / self._weight)
        return [first + step * n for n in range(1, n_most + 1)]


def _never_falling(known: dict[int, tuple[float, float]]) -> dict[int, float]:
    """Means by size from (mean, weight). No size costs more than a larger one that was measured
    a few times: what made it seem so was a delay."""
    means: dict[int, float] = {}
    bound = float("inf")
    for size in sorted(known, reverse=True):
        mean, weight = known[size]
        means[size] = min(mean, bound)
        if weight >= _ENOUGH:
            bound = means[size]
    return means


def _filled(known: dict[int, float], n_sizes: int) -> list[float]:
    """A whole row: straight lines between the known sizes, never falling where nothing is known."""
    sizes = sorted(known)
    first, last = sizes[0], sizes[-1]
    row = [known[first] / (1.0 + _PRIOR_SLOPE * (first - size)) for size in range(1, first)]
    for left, right in pairwise(sizes):
        row.append(known[left])
        rise = max(0.0, known[right] - known[left]) / (right - left)
        row += [known[left] + rise * (size - left) for size in range(left + 1, right)]
    row.append(known[last])
    slope = _slope(known, sizes)
    return row + [known[last] + slope * (size - last) for size in range(last + 1, n_sizes + 1)]


def _slope(known: dict[int, float], sizes: list[int]) -> float:
    """Cost of one more than the largest known size."""
    if len(sizes) < 2:
        return _PRIOR_SLOPE * known[sizes[-1]]
    first, last = sizes[0], sizes[-1]
    return max(0.0, (known[last] - known[first]) / (last - first))
