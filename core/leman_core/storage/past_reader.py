"""Read rows of a table as they were in an older version.

They are found by their place where the fragment is in both, or else by stable row id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.ranges import RowRange, chunks
from leman_core.model.table import DataFile, Fragment
from leman_core.model.view_rows import Ids
from leman_core.storage.error_translation import using_storage
from leman_core.storage.scan import CHUNK_ROWS, EXPRESSION_ROWS, Chunk, Columns, FragmentReader
from leman_core.storage.views.source import SourceRows, plain

_MATCHES = "__leman_matches"


def rows_in(uri: str, version: int, fragments: Sequence[int], then: int) -> Mapping[int, int]:
    """Count the live rows of each of the fragments that are in the version of `then`, by stable row id.

    Reads no data.
    """
    now, old = SourceRows(uri, version), SourceRows(uri, then)
    last = old.highest_id([fragment.fragment_id for fragment in old.dataset.get_fragments()])
    found: dict[int, int] = {}
    for fragment in fragments:
        ids = np.concatenate([np.empty(0, np.int64), *now.all_ids([fragment])])
        found[fragment] = int(old.present(ids[ids <= last]).sum())
    return found


class PastReader(FragmentReader):
    """The fragments of one version, with the values that their rows had in an older one.

    What is said of a fragment as such (live rows, row ids, current values) is of now.
    """

    def __init__(self, uri: str, version: int, then: int) -> None:
        super().__init__(uri, version)
        self._uri, self._then = uri, then
        self._old = FragmentReader(uri, then)

    def read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str = ""
    ) -> Iterator[Chunk]:
        """Read as `FragmentReader.read` does; columns and filter are those of then.

        Rows that were not there are left out.
        """
        with using_storage(self._uri):
            yield from self._read_then(fragment_id, covered, columns, deletions=deletions, where=where)

    def _read_then(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str
    ) -> Iterator[Chunk]:
        if not self._is_there(fragment_id):
            yield from self._moved(fragment_id, covered, columns, where)
            return
        for chunk in self._old.read(fragment_id, covered, columns, deletions=True, where=where):
            yield self._still_live(fragment_id, chunk) if deletions else chunk

    def schema(self, columns: Columns) -> pa.Schema:
        """Return what `FragmentReader.schema` does, of the columns of then."""
        return self._old.schema(columns)

    def _is_there(self, fragment_id: int) -> bool:
        then = self._old.fragment(fragment_id)
        now = self.fragment(fragment_id)
        return then is not None and now is not None and _summary(now).has_rows_of(_summary(then))

    def _still_live(self, fragment_id: int, chunk: Chunk) -> Chunk:
        if not len(chunk.offsets):
            return chunk
        live = self.live(fragment_id, chunk.covered)[chunk.offsets - chunk.covered.start]
        return Chunk(chunk.covered, chunk.offsets[live], chunk.rows.filter(pa.array(live)))

    # rows that lie elsewhere by now

    def _moved(self, fragment_id: int, covered: RowRange, columns: Columns, where: str) -> Iterator[Chunk]:
        wanted = dict(columns) if isinstance(columns, Mapping) else plain(columns)
        rows_each = EXPRESSION_ROWS if isinstance(columns, Mapping) else CHUNK_ROWS
        for piece in chunks(covered, rows_each):
            offsets, ids = self._found(fragment_id, piece)
            asked = {**wanted, **({_MATCHES: f"({where})"} if where else {})}
            rows = self._source.values(ids, asked)
            if where:
                matches = rows.column(_MATCHES).fill_null(False)
                offsets = offsets[matches.to_numpy(zero_copy_only=False)]
                rows = rows.filter(matches)
            named = [rows.column(name) for name in wanted]
            yield Chunk(piece, offsets, pa.RecordBatch.from_arrays(named, names=list(wanted)))

    def _found(self, fragment_id: int, covered: RowRange) -> tuple[npt.NDArray[np.int64], Ids]:
        """Return physical offsets of the live rows that were there then, and their row ids."""
        offsets = covered.start + np.flatnonzero(self.live(fragment_id, covered))
        ids = np.asarray(self.row_ids(fragment_id, offsets.tolist()), np.int64)
        present = self._source.present(ids)
        return offsets[present], ids[present]

    @cached_property
    def _source(self) -> SourceRows:
        return SourceRows(self._uri, self._then)


def _summary(fragment: lance.LanceFragment) -> Fragment:
    metadata = fragment.metadata
    files = tuple(DataFile(str(file.path), tuple(file.fields)) for file in metadata.files)
    return Fragment(metadata.id, metadata.physical_rows, 0, files)
