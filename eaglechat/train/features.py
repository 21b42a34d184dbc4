"""The features of a sample: what the target computes at each position, as float16.

A row has 4 * n_embd values: [low layer | middle layer | high layer | state after the output norm].
They are stored on disk under the digest of the sample's tokens, so features are computed only once,
from whatever source or in whatever order the samples come.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.train.corpus import Sample
from eaglechat.train.settings import PausedError, TrainingError
from eaglechat.wire.errors import DecodeError

Rows = npt.NDArray[np.float16]

N_PARTS = 4
_SPARE_BYTES = 1 << 30
"""What is left free: a training run must not fill the disk."""
_BATCH_ROWS = 512
_MAX_SEQUENCES = 16
_LARGEST = float(np.finfo(np.float16).max)


def export_features(context: Context, layers: Sequence[int]) -> None:
    """Let each decode export what `decoded_features` reads; every row is then an output."""
    context.extract_layer_inputs(tuple(layers), True)
    context.export_final_states()


def decoded_features(context: Context, layers: Sequence[int], n_rows: int) -> Rows:
    """The features [n_rows, 4 * n_embd] of the last decode."""
    parts = [context.layer_inputs(layer, n_rows) for layer in layers]
    parts.append(context.final_states(n_rows))
    rows = np.concatenate(parts, axis=1)
    return np.clip(rows, -_LARGEST, _LARGEST, out=rows).astype(np.float16)


class FeatureReader:
    """Computes features with the target. Close it to free its context."""

    def __init__(
        self, model: Model, layers: Sequence[int], *, longest: int, n_threads: int
    ) -> None:
        """Raises ModelLoadError."""
        self._layers = tuple(layers)
        self._context = Context(
            model,
            n_ctx=max(longest, _BATCH_ROWS),
            n_batch=_BATCH_ROWS,
            n_threads=n_threads,
            n_seq=_MAX_SEQUENCES,
        )
        export_features(self._context, self._layers)
        self._batch = Batch(self._context)

    def close(self) -> None:
        self._batch.close()
        self._context.close()

    def read(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, Rows]]:
        """Each sample with its features [tokens, 4 * n_embd], in order. Raises DecodeError."""
        for group in _groups(samples):
            rows = self._read_group(group)
            first = 0
            for sample in group:
                yield sample, rows[first : first + len(sample.tokens)]
                first += len(sample.tokens)

    def _read_group(self, group: Sequence[Sample]) -> Rows:
        parts = []
        for first in range(0, max(len(sample.tokens) for sample in group), _BATCH_ROWS):
            self._batch.clear()
            for sequence, sample in enumerate(group):
                tokens = sample.tokens[first : first + _BATCH_ROWS].tolist()
                self._batch.add_tokens(tokens, first, sequence, output=True)
            status = self._context.decode(self._batch)
            if status != 0:
                raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
            parts.append(decoded_features(self._context, self._layers, len(self._batch)))
        for sequence in range(len(group)):
            self._context.forget(sequence, 0)
        return np.concatenate(parts)


def _groups(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Groups of samples: short ones share a batch, a long one takes several batches."""
    group: list[Sample] = []
    n_rows = 0
    for sample in samples:
        if group and (n_rows + len(sample.tokens) > _BATCH_ROWS or len(group) == _MAX_SEQUENCES):
            yield group
            group, n_rows = [], 0
        group.append(sample)
        n_rows += len(sample.tokens)
    if group:
        yield group


class FeatureStore:
    """A file per sample in a directory: its rows [tokens, 4 * n_embd] as plain float16."""

    def __init__(self, directory: Path, n_embd: int) -> None:
        """Raises OSError."""
        self._directory = directory
        self._width = N_PARTS * n_embd
        directory.mkdir(parents=True, exist_ok=True)

    def __contains__(self, sample: Sample) -> bool:
        """Whether a sample's features are stored; a file of another size does not count."""
        try:
            return self._file(sample).stat().st_size == self._n_bytes(len(sample.tokens))
        except FileNotFoundError:
            return False

    def rows(self, sample: Sample) -> Rows:
        """A sample's features, mapped. Raises OSError if they are not stored."""
        shape = (len(sample.tokens), self._width)
        return np.memmap(self._file(sample), np.float16, "r", shape=shape)

    def check_space(self, n_rows: int) -> None:
        """Raises TrainingError if `n_rows` more rows do not fit on the disk."""
        needed = self._n_bytes(n_rows)
        free = shutil.disk_usage(self._directory).free - _SPARE_BYTES
        if n_rows > 0 and needed > free:
            raise TrainingError(
                f"the features of {n_rows:,} tokens take {needed / 1e9:,.1f} GB on the disk of "
                f"{self._directory}, which has {max(free, 0) / 1e9:,.1f} GB to spare; free some "
                "space, choose another place with --work, or train on less"
            )

    def fill(
        self,
        samples: Iterable[Sample],
        reader: FeatureReader,
        on_rows: Callable[[int], None],
        paused: Callable[[], bool],
    ) -> None:
        """Compute and store missing features. `on_rows` gets each sample's number of rows.

        Raises PausedError; TrainingError if the disk is full; DecodeError, OSError.
        """
        for sample, rows in reader.read(sample for sample in samples if sample not in self):
            self.put(sample, rows)
            on_rows(len(rows))
            if paused():
                raise PausedError

    def put(self, sample: Sample, rows: Rows) -> None:
        """Store a sample's features. Raises TrainingError if they do not fit on the disk, OSError.

        A crash leaves the whole file or none.
        """
        self.check_space(len(rows))
        file = self._file(sample)
        part = file.with_suffix(".part")
        rows.tofile(part)
        part.replace(file)

    def _file(self, sample: Sample) -> Path:
        return self._directory / f"{sample.digest}.f16"

    def _n_bytes(self, n_rows: int) -> int:
        return n_rows * self._width * np.dtype(np.float16).itemsize
