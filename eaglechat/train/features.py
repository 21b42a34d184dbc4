"""The features of a sample: what the target computes at each position, as float16.

A row has 4 * n_embd values: [low layer | middle layer | high layer | state after the output norm].
Rows are stored in shards on disk, under the digest of their sample's tokens, so features are never
computed twice, from whatever source or in whatever order the samples come.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.paths import write_atomically
from eaglechat.train.corpus import Sample
from eaglechat.train.settings import PausedError, TrainingError
from eaglechat.wire.errors import DecodeError

Rows = npt.NDArray[np.float16]

N_PARTS = 4
_SHARD_BYTES = 64 << 20
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
            parts.append(self._decode())
        for sequence in range(len(group)):
            self._context.forget(sequence, 0)
        return np.concatenate(parts)

    def _decode(self) -> Rows:
        status = self._context.decode(self._batch)
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        return decoded_features(self._context, self._layers, len(self._batch))


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


class _ShardIndex(msgspec.Struct, frozen=True):
    """The digests of a shard's samples and their numbers of rows, in order."""

    digests: list[str]
    lengths: list[int]


class FeatureStore:
    """Shards in a directory: NNNNN.npy [rows, 4 * n_embd] float16 with its NNNNN.json index."""

    def __init__(self, directory: Path, n_embd: int) -> None:
        """Raises TrainingError if a shard is of another target, OSError."""
        self._directory = directory
        self._width = N_PARTS * n_embd
        self._places: dict[str, tuple[int, int, int]] = {}
        self._shards: list[Rows] = []
        self.rows_a_shard = max(_SHARD_BYTES // (self._width * 2), 1)
        directory.mkdir(parents=True, exist_ok=True)
        for index in sorted(directory.glob("*.json")):
            self._add(index)

    def __contains__(self, digest: str) -> bool:
        return digest in self._places

    def rows(self, sample: Sample) -> Rows:
        """A sample's features. Raises KeyError if they are not stored."""
        shard, first, length = self._places[sample.digest]
        return self._shards[shard][first : first + length]

    def check_disk(self, samples: Iterable[Sample]) -> None:
        """Raises TrainingError if the missing features do not fit on the disk."""
        self.check_space(sum(len(sample.tokens) for sample in samples if sample.digest not in self))

    def check_space(self, missing: int) -> None:
        """Raises TrainingError if `missing` more rows do not fit on the disk."""
        needed = missing * self._width * 2
        free = shutil.disk_usage(self._directory).free - _SPARE_BYTES
        if missing > 0 and needed > free:
            raise TrainingError(
                f"the features of {missing:,} tokens take {needed / 1e9:,.1f} GB on the disk of "
                f"{self._directory}, which has {max(free, 0) / 1e9:,.1f} GB to spare; free some "
                "space, choose another place with --work, train on less, or give --recompute, "
                "which stores none and computes them anew in each pass"
            )

    def fill(
        self,
        samples: Sequence[Sample],
        reader: FeatureReader,
        on_rows: Callable[[int], None],
        paused: Callable[[], bool],
    ) -> None:
        """Compute and store missing features. `on_rows` gets each sample's number of rows.

        Raises PausedError after storing what is computed; TrainingError if the disk is full;
        DecodeError, OSError.
        """
        digests: list[str] = []
        parts: list[Rows] = []
        waiting = 0
        for sample, rows in reader.read(s for s in samples if s.digest not in self):
            digests.append(sample.digest)
            parts.append(rows)
            waiting += len(rows)
            on_rows(len(rows))
            stop = paused()
            if stop or waiting >= self.rows_a_shard:
                self.put(digests, parts)
                digests, parts, waiting = [], [], 0
            if stop:
                raise PausedError
        self.put(digests, parts)

    def put(self, digests: Sequence[str], parts: Sequence[Rows]) -> None:
        """Store the features of these samples as a shard.

        Raises TrainingError if they do not fit on the disk, OSError.
        """
        if not parts:
            return
        self.check_space(sum(len(rows) for rows in parts))
        index = self._directory / f"{len(self._shards):05d}.json"
        part = index.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, np.concatenate(parts))
        part.replace(index.with_suffix(".npy"))
        # Written last: a shard without an index does not count.
        lengths = [len(rows) for rows in parts]
        write_atomically(index, msgspec.json.encode(_ShardIndex(list(digests), lengths)))
        self._add(index)

    def _add(self, index: Path) -> None:
        entries = msgspec.json.decode(index.read_bytes(), type=_ShardIndex)
        shard = np.load(index.with_suffix(".npy"), mmap_mode="r")
        if shard.shape != (sum(entries.lengths), self._width):
            raise TrainingError(
                f"{index.with_suffix('.npy')} holds features of another target or is damaged; "
                "delete it, or choose another place with --work"
            )
        first = 0
        for digest, length in zip(entries.digests, entries.lengths, strict=True):
            self._places[digest] = (len(self._shards), first, length)
            first += length
        self._shards.append(shard)


class LiveFeatures:
    """Computes features each time they are asked for, for a small disk."""

    def __init__(self, reader: FeatureReader) -> None:
        self._reader = reader

    def rows(self, sample: Sample) -> Rows:
        """A sample's features. Raises DecodeError."""
        ((_, rows),) = self._reader.read([sample])
        return rows
