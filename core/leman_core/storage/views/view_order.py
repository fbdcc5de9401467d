"""Put the row ids of a view in order without holding them all: through buckets on disk where they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from leman_core.model.view import ViewQuery
from leman_core.model.view_rows import Bounds, Ids, Keys, in_order, order_keys
from leman_core.storage.error_translation import using_storage

_BUCKETS = 64
#: How many ids are sorted in memory: 32 MB, and as much again for their keys.
_IN_MEMORY = 1 << 22
_PIECE = 1 << 18


def in_view_order(ids: Ids, query: ViewQuery) -> Ids:
    """Return the ids in the order of the view's rows: sorted, or with `shuffle` by a keyed hash (`view_rows`)."""
    return in_order(ids, shuffle=query.shuffle, seed=query.seed)


def view_rows(matching: Iterable[Ids], query: ViewQuery, in_memory: int = _IN_MEMORY) -> Iterator[Ids]:
    """Yield, of all matching ids, those that the view holds, in its order, in pieces.

    Memory is bounded by some 100 MB for each 100 million of them.
    """
    with using_storage(tempfile.gettempdir()):
        yield from _in_pieces(matching, query, in_memory)


def _in_pieces(matching: Iterable[Ids], query: ViewQuery, in_memory: int) -> Iterator[Ids]:
    bounds = Bounds(query.offset, query.limit)
    chosen = _cut(_sorted(matching, in_memory, shuffle=False, seed=0), bounds) if bounds.bounded else matching
    if bounds.bounded and not query.shuffle:
        yield from chosen
    else:
        yield from _sorted(chosen, in_memory, shuffle=query.shuffle, seed=query.seed)


def _cut(pieces: Iterable[Ids], bounds: Bounds) -> Iterator[Ids]:
    skip = bounds.offset
    left = bounds.limit
    for piece in pieces:
        rest = piece[min(skip, len(piece)) :]
        skip -= len(piece) - len(rest)
        if left is not None:
            rest = rest[:left]
            left -= len(rest)
        if len(rest):
            yield rest
        if left == 0:
            return


def _sorted(pieces: Iterable[Ids], in_memory: int, *, shuffle: bool, seed: int) -> Iterator[Ids]:
    held: list[Ids] = []
    count = 0
    source = iter(pieces)
    for piece in source:
        held.append(piece)
        count += len(piece)
        if count > in_memory:
            break
    else:
        if held:
            yield in_order(np.concatenate(held), shuffle=shuffle, seed=seed)
        return
    with tempfile.TemporaryDirectory(prefix="leman-order-") as folder:
        spool = _Spool(Path(folder), shuffle=shuffle, seed=seed)
        for piece in held:
            spool.add(piece)
        del held
        for piece in source:
            spool.add(piece)
        yield from spool.drain(in_memory)


class _Spool:
    """Ids on disk, in files by ranges of their keys.

    A row id is below 2^63, but most are small: the files of plain ids are split again until one fits in memory.
    """

    def __init__(self, folder: Path, *, shuffle: bool, seed: int, shift: int = 58) -> None:
        self._folder = folder
        self._shuffle = shuffle
        self._seed = seed
        self._shift = shift
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._files = [(folder / f"{shift}-{i}").open("wb", buffering=_PIECE) for i in range(_BUCKETS)]

    def add(self, ids: Ids) -> None:
        buckets = self._bucket(order_keys(ids, shuffle=self._shuffle, seed=self._seed))
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=_BUCKETS)
        at = 0
        for bucket in np.flatnonzero(counts):
            end = at + int(counts[bucket])
            self._files[bucket].write(np.ascontiguousarray(ids[order[at:end]]).tobytes())
            at = end
        self._counts += counts

    def drain(self, in_memory: int) -> Iterator[Ids]:
        """Yield all ids in order; the files go as they are read."""
        for file in self._files:
            file.close()
        for bucket, count in enumerate(self._counts.tolist()):
            path = self._folder / f"{self._shift}-{bucket}"
            if count > in_memory and self._shift:
                yield from self._split(path, count, in_memory)
            elif count:
                yield in_order(np.fromfile(path, np.int64), shuffle=self._shuffle, seed=self._seed)
            path.unlink()

    def _split(self, path: Path, count: int, in_memory: int) -> Iterator[Ids]:
        finer = _Spool(self._folder, shuffle=self._shuffle, seed=self._seed, shift=max(self._shift - 6, 0))
        for start in range(0, count, _PIECE):
            finer.add(np.fromfile(path, np.int64, count=min(_PIECE, count - start), offset=start * 8))
        yield from finer.drain(in_memory)

    def _bucket(self, keys: Keys) -> Ids:
        return (keys >> np.uint64(self._shift)).astype(np.int64) & (_BUCKETS - 1)
