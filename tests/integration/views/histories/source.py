"""A source table and what may happen to it, told to Lance and to the oracle alike."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from datetime import timedelta

import lance
import pyarrow as pa

from leman_core.storage.column_files import ColumnFileWriter
from tests.integration.views.histories.oracle import SourceRow, State

ROWS, PER_FRAGMENT = 48, 12


class Source:
    """`k` is filtered by, `x` and `y` are read by views, `u` by none."""

    def __init__(self, uri: str, rows: int = ROWS) -> None:
        self.uri = uri
        self._stamps = itertools.count(1)
        self._next = 0
        self.compacted = 0  # version that the first compaction since all views were refreshed made
        self.plain = True  # neither compacted nor cleaned so far, and columns have the names that they had
        lance.write_dataset(
            self._table(rows), uri, max_rows_per_file=PER_FRAGMENT, enable_stable_row_ids=True, mode="create"
        )
        self.versions: dict[int, State] = {}
        self.state = State()
        self._see()

    def at(self, uri: str) -> Source:
        """The same source in a copy of its folder."""
        other = object.__new__(Source)
        other.uri = uri
        last = next(self._stamps)
        self._stamps = itertools.count(last + 1)
        other._stamps = itertools.count(last + 1)
        other._next = self._next
        other.compacted = self.compacted
        other.plain = self.plain
        other.versions = dict(self.versions)
        other.state = self.state.copy()
        return other

    @property
    def version(self) -> int:
        return int(lance.dataset(self.uri).version)

    def rows(self) -> pa.Table:
        return lance.dataset(self.uri).to_table()

    def _table(self, count: int, first: int | None = None) -> pa.Table:
        start = self._next if first is None else first
        ids = list(range(start, start + count))
        if first is None:
            self._next += count
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "k": pa.array([i * 7 % 10 for i in ids], pa.int64()),
                "x": pa.array([None if i % 13 == 5 else i * 3 for i in ids], pa.int64()),
                "y": pa.array([i % 4 for i in ids], pa.int64()),
                "u": pa.array(list(ids), pa.int64()),
            }
        )

    def _see(self, touched: set[int] | None = None, column: str = "") -> None:
        """Takes the rows over from Lance; those whose `id` is in `touched`, and new ones, get a new stamp: of `column`,
        where that is given."""
        dataset = lance.dataset(self.uri)
        table = dataset.to_table(columns=["id", "k", "x", "y", "u"], with_row_id=True)
        stamp = next(self._stamps)
        old = self.state.rows
        rows = {}
        for row in table.to_pylist():
            row_id = row.pop("_rowid")
            known = old.get(row_id)
            if known is None or known.values["id"] != row["id"]:
                rows[row_id] = SourceRow(row, stamp)
            elif row["id"] not in (touched or ()):
                rows[row_id] = SourceRow(row, known.stamp, known.columns)
            elif column:
                rows[row_id] = SourceRow(row, known.stamp, {**known.columns, column: stamp})
            else:
                rows[row_id] = SourceRow(row, stamp)
        self.state = State(rows)
        self.versions[int(dataset.version)] = self.state.copy()

    def _some(self, number: int, count: int) -> list[int]:
        ids = sorted(int(r.values["id"] or 0) for r in self.state.rows.values())
        if not ids:
            return []
        return sorted({ids[(number * 5 + i * 7) % len(ids)] for i in range(count)})

    # what may happen

    def append(self, number: int) -> None:
        lance.write_dataset(self._table(7 + number % 3), self.uri, mode="append")
        self._see()

    def delete(self, number: int) -> None:
        ids = self._some(number, 3)
        lance.dataset(self.uri).delete(f"id IN ({', '.join(map(str, ids or [-1]))})")
        self._see()

    def _update(self, ids: list[int], changes: dict[str, str]) -> None:
        lance.dataset(self.uri).update(changes, where=f"id IN ({', '.join(map(str, ids or [-1]))})")
        self._see(set(ids))

    def update_read(self, number: int) -> None:
        self._update(self._some(number, 3), {"x": "coalesce(x, 0) + 1000"})

    def update_filtered(self, number: int) -> None:
        self._update(self._some(number, 4), {"k": "(k + 5) % 10"})

    def update_unread(self, number: int) -> None:
        self._update(self._some(number, 2), {"u": "u + 1"})

    def upsert(self, number: int) -> None:
        ids = self._some(number, 3)
        new = self._table(2)
        old = pa.concat_tables([self._table(1, first=i) for i in ids]) if ids else new.slice(0, 0)
        changed = old.set_column(2, "x", pa.array([7000 + i for i in ids], pa.int64()))
        rows = pa.concat_tables([changed, new])
        lance.dataset(self.uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self._see(set(ids))

    def compact(self, number: int) -> None:
        before = self.version
        self.plain = False
        lance.dataset(self.uri).optimize.compact_files(target_rows_per_fragment=30 + number % 2 * 20)
        if not self.compacted and self.version != before:
            self.compacted = self.version
        self._see()

    def rewrite_read(self, number: int) -> None:
        self._rewrite("y", number)

    def rewrite_unread(self, number: int) -> None:
        self._rewrite("u", number)

    def _rewrite(self, column: str, number: int) -> None:
        """Writes a column of one fragment again, in place, as a backfill does."""
        dataset = lance.dataset(self.uri)
        fragments = dataset.get_fragments()
        fragment = fragments[number % len(fragments)]
        rows = fragment.metadata.physical_rows
        writer = ColumnFileWriter(self.uri, dataset.schema.field(column))
        name = f"{uuid.uuid4().hex}.lance"
        writer.open(name)
        writer.write(pa.array([(o * 3 + number) % 50 for o in range(rows)], pa.int64()))
        writer.close(None, frozenset(), name)
        ids = fragment.to_table(columns=["id"])["id"].to_pylist()
        data_file = lance.fragment.DataFile.create(dataset, name)
        group = lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, data_file)
        lance.LanceDataset.commit(dataset, lance.LanceOperation.DataReplacement([group]), read_version=dataset.version)
        self._see(set(ids), column)

    def restore(self, number: int) -> None:
        """Back to the version before the latest that changed rows."""
        versions = sorted(v for v in self.versions if v < self.version)
        if not versions:
            return
        back = versions[-1 - number % min(2, len(versions))]
        lance.dataset(self.uri, version=back).restore()
        self.state = self.versions[back].copy()
        self.versions[self.version] = self.state.copy()

    def delete_all(self) -> None:
        lance.dataset(self.uri).delete("true")
        self._see()

    def forget_read(self, number: int) -> None:
        """Some values of `x` are NULL from now on."""
        self._update(self._some(number, 6), {"x": "CAST(NULL AS BIGINT)"})

    def replace(self, number: int) -> list[int]:
        """Rows are deleted, and inserted again with all their values: new rows, to Lance. Their ids."""
        ids = self._some(number, 3)
        where = f"id IN ({', '.join(map(str, ids))})"
        dataset = lance.dataset(self.uri)
        rows = dataset.to_table(filter=where)
        dataset.delete(where)
        lance.write_dataset(rows, self.uri, mode="append")
        self._see()
        return ids

    def swap_names(self, one: str, other: str) -> None:
        """Either column is called as the other was."""
        self.plain = False
        for path, name in ((one, "_between"), (other, one), ("_between", other)):
            lance.dataset(self.uri).alter_columns({"path": path, "name": name})
        ids = {int(r.values["id"] or 0) for r in self.state.rows.values()}
        for column in (one, other):
            self._see(ids, column)

    def add_column(self, number: int) -> None:
        """A column that no view knows."""
        lance.dataset(self.uri).add_columns(pa.field(f"new{self.version}_{number}", pa.int64()))
        self._see()

    def clean(self, number: int) -> None:
        """Old versions go, but for the latest, or the last two, and tagged ones. The version that a compaction
        made stays until a refresh has seen it: only it tells what the compaction did."""
        dataset = lance.dataset(self.uri)
        self.plain = False
        kept = max(1 + number % 2, dataset.version - self.compacted + 1 if self.compacted else 0)
        dataset.cleanup_old_versions(
            timedelta(0), retain_versions=kept, delete_unverified=False, error_if_tagged_old_versions=False
        )
        left = {v["version"] for v in lance.dataset(self.uri).versions()}
        self.versions = {version: state for version, state in self.versions.items() if version in left}

    def compact_and_clean(self, number: int) -> None:
        """As someone who looks after tables does: what was compacted is cleaned away at once."""
        self.compact(number)
        self.clean(0)

    def index(self, number: int) -> None:
        """An index on a column that views filter by, or read."""
        column, kind = (("k", "BTREE"), ("x", "BTREE"), ("y", "BITMAP"))[number % 3]
        lance.dataset(self.uri).create_scalar_index(column, kind, replace=True)
        self._see()

    def optimize_indices(self, _number: int) -> None:
        lance.dataset(self.uri).optimize.optimize_indices()
        self._see()

    def tag(self, number: int) -> None:
        """A version gets a name, and is kept from then on."""
        dataset, name = lance.dataset(self.uri), f"tag{number % 3}"
        if name in dataset.tags.list():
            dataset.tags.delete(name)
        dataset.tags.create(name, dataset.version)


OPERATIONS: dict[str, Callable[[Source, int], None]] = {
    "append": Source.append,
    "delete": Source.delete,
    "update_read": Source.update_read,
    "update_filtered": Source.update_filtered,
    "update_unread": Source.update_unread,
    "upsert": Source.upsert,
    "compact": Source.compact,
    "rewrite_read": Source.rewrite_read,
    "rewrite_unread": Source.rewrite_unread,
    "restore": Source.restore,
    "add_column": Source.add_column,
}

#: What is done for a table rather than to it. No value is another one for it, so it costs no call of a function.
CARE: dict[str, Callable[[Source, int], None]] = {
    "index": Source.index,
    "optimize_indices": Source.optimize_indices,
    "tag": Source.tag,
    "clean": Source.clean,
    "compact_and_clean": Source.compact_and_clean,
}
