"""A source table that changes, with what each of its versions holds and who touched which row since."""

from __future__ import annotations

import datetime
import itertools
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewColumn, ViewDefinition, ViewFormat, ViewQuery
from leman_core.model.service_errors import NotFound
from leman_core.model.table import Rewrite, TableSnapshot
from leman_core.model.view import RefreshMode, RefreshPlan, RefreshReason
from leman_core.storage import compaction_history, view_side_files
from leman_core.storage.lance_tables import LanceTables
from leman_executor.refresh.row_diff import RowOutcome, row_outcome
from leman_planner.views.source_changes import changed_fragments

_FRAGMENT = 8


@dataclass(frozen=True)
class Row:
    """What the view reads of a row, and who wrote it: a row that was touched has another stamp."""

    x: int
    stamp: int


@dataclass
class Source:
    """Columns id, x, y. A view reads x, never y."""

    uri: str
    versions: dict[int, dict[int, Row]] = field(default_factory=dict)
    stamps: itertools.count = field(default_factory=lambda: itertools.count(1))
    ids: itertools.count = field(default_factory=itertools.count)

    @classmethod
    def make(cls, folder: str, rows: int = 20) -> Source:
        source = cls(f"{folder}/{uuid.uuid4().hex}.lance")
        lance.write_dataset(source.new(rows), source.uri, enable_stable_row_ids=True, max_rows_per_file=_FRAGMENT)
        source.touched(None)
        return source

    def open(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    @property
    def version(self) -> int:
        return int(self.open().version)

    def new(self, rows: int) -> pa.Table:
        ids = list(itertools.islice(self.ids, rows))
        return pa.table({"id": ids, "x": [i % 10 for i in ids], "y": [0] * rows})

    def touched(self, ids: set[int] | None) -> None:
        """Records the latest version: rows with these `id`s, and rows that are new, were touched; None: all."""
        dataset = self.open()
        table = dataset.scanner(columns=["id", "x"], with_row_id=True).to_table()
        before = self.versions[max(self.versions)] if self.versions else {}
        stamp = next(self.stamps)
        rows = {}
        for row_id, key, x in zip(*(table[c].to_pylist() for c in ("_rowid", "id", "x")), strict=True):
            old = before.get(row_id)
            keep = old is not None and ids is not None and key not in ids
            rows[row_id] = Row(x, old.stamp) if keep else Row(x, stamp)
            assert not keep or old.x == x
        self.versions[int(dataset.version)] = rows

    # what can happen to it

    def append(self, rows: int) -> None:
        lance.write_dataset(self.new(rows), self.uri, mode="append", max_rows_per_file=_FRAGMENT)
        self.touched(set())

    def delete(self, where: str) -> None:
        self.open().delete(where)
        self.touched(set())

    def update(self, column: str, value: str, where: str) -> None:
        ids = self.ids_where(where)
        self.open().update({column: value}, where=where)
        self.touched(ids)

    def upsert(self, ids: list[int], x: int) -> None:
        rows = pa.table({"id": ids, "x": [x] * len(ids), "y": [1] * len(ids)})
        merge = self.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows)
        self.touched(set(ids))

    def compact(self) -> None:
        self.open().optimize.compact_files(target_rows_per_fragment=2 * _FRAGMENT)
        self.touched(set())

    def rewrite(self, column: str, nth: int) -> None:
        """One column of one fragment in place, by DataReplacement."""
        dataset = self.open()
        fragments = dataset.get_fragments()
        if not fragments:
            return
        fragment = fragments[nth % len(fragments)]
        rows = fragment.scanner(columns=["id", column], with_row_id=True, include_deleted_rows=True).to_table()
        ids = {i for i, live in zip(rows["id"].to_pylist(), rows["_rowid"].is_valid().to_pylist(), strict=True) if live}
        values = [None if v is None else (v + 3) % 10 for v in rows[column].to_pylist()]
        name = f"{uuid.uuid4().hex}.lance"
        schema = pa.schema([dataset.schema.field(column)])
        writer = LanceFileWriter(str(Path(self.uri, "data", name)), schema, version=dataset.data_storage_version)
        writer.write_batch(pa.record_batch([pa.array(values, pa.int64())], schema=schema))
        writer.close()
        group = lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, DataFile.create(dataset, name))
        operation = lance.LanceOperation.DataReplacement([group])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
        self.touched(ids if column == "x" else set())

    def evolve(self) -> None:
        """A column that no one reads comes, or goes."""
        dataset = self.open()
        if "z" in dataset.schema.names:
            dataset.drop_columns(["z"])
        else:
            dataset.add_columns({"z": "id + 1"})
        self.touched(set())

    def restore(self, nth: int) -> None:
        version = sorted(self.versions)[nth % len(self.versions)]
        self.open().checkout_version(version).restore()
        self.versions[self.version] = self.versions[version]

    def overwrite(self, rows: int) -> None:
        lance.write_dataset(self.new(rows), self.uri, mode="overwrite", max_rows_per_file=_FRAGMENT)
        self.touched(None)

    def clean(self) -> None:
        """Nothing but the latest version is left."""
        self.open().cleanup_old_versions(older_than=datetime.timedelta(0), delete_unverified=True)

    def ids_where(self, where: str) -> set[int]:
        return set(self.open().to_table(columns=["id"], filter=where)["id"].to_pylist())


@dataclass
class View:
    """A view as its table's row ids have it; values are not stored. The filter is `x >= least`. Without `history` its
    plans know nothing of compactions. `record`: what it keeps of the base version, once that was asked for."""

    source: Source
    least: int | None
    limit: int | None = None
    offset: int = 0
    base: int = 0
    history: bool = True
    record: str = ""
    rows: list[int] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"{self.source.uri}-v{id(self)}.lance"

    @property
    def query(self) -> ViewQuery:
        where = "" if self.least is None else f"x >= {self.least}"
        columns = (ViewColumn("x", "`x`", "x"),)
        return ViewQuery("db", "t", columns, where=where, limit=self.limit, offset=self.offset)

    def should_hold(self, version: int) -> list[int]:
        rows = self.source.versions[version]
        ids = sorted(i for i, row in rows.items() if self.least is None or (row.x is not None and row.x >= self.least))
        return ids[self.offset :] if self.limit is None else ids[self.offset : self.offset + self.limit]

    def create_placeholders(self, ids: list[int]) -> None:
        """The view's table, in fragments of five."""
        self.rows = ids
        data = pa.table({SOURCE_ROW_ID: pa.array(ids, pa.int64()), IS_SET: pa.array([True] * len(ids))})
        lance.write_dataset(data, self.uri, mode="overwrite", enable_stable_row_ids=True, max_rows_per_file=5)

    def plan(self, target: int) -> RefreshPlan:
        tables = LanceTables()
        base, then = self.base_snapshot(tables), tables.snapshot(self.source.uri, target)
        return RefreshPlan(
            uri=self.uri,
            version=int(lance.dataset(self.uri).version),
            incarnation="",
            definition=ViewDefinition(
                query=self.query,
                source_uri=self.source.uri,
                base_version=self.base,
                base_incarnation="",
                format=ViewFormat.STABLE_ROW_IDS,
                base_record=self.record,
            ),
            schema=lance.dataset(self.uri).schema,
            functions=(),
            target_version=target,
            target_incarnation="",
            mode=RefreshMode.INCREMENTAL,
            reason=RefreshReason.SOURCE_CHANGED,
            message="",
            changes=changed_fragments(self.query, base, then, lambda: self.compactions(target)),
        )

    def keep(self) -> None:
        """Records the base version, as a refresh does."""
        self.record = view_side_files.write_source_record(self.uri, self.query, self.source.uri, self.base, self.record)

    def base_snapshot(self, tables: LanceTables) -> TableSnapshot:
        try:
            return tables.snapshot(self.source.uri, self.base)
        except NotFound:
            found = view_side_files.read_source_record(self.uri, self.record, self.source.uri)
            assert found is not None
            return found.snapshot

    def compactions(self, target: int) -> list[Rewrite]:
        return (
            compaction_history.compactions_between(self.source.uri, *sorted([self.base, target]))
            if self.history
            else []
        )

    def refresh(self, target: int, *, exact: bool = True) -> RowOutcome:
        """Applies what the comparison says, and checks it. Unless it has to be `exact`, rows that no one touched may be
        computed again."""
        outcome = row_outcome(self.plan(target))
        placed = self.by_address()
        evicted = [placed[a] for a in outcome.evict_addresses.tolist()]
        again = [placed[a] for a in outcome.recompute_addresses.tolist()]
        assert again == outcome.recompute_ids.tolist()
        assert outcome.append.tolist() == sorted(set(outcome.append.tolist()))
        assert not set(outcome.append.tolist()) & set(self.rows)
        assert (np.diff(outcome.recompute_addresses) > 0).all()
        wanted = self.should_hold(target)
        assert sorted((set(self.rows) - set(evicted)) | set(outcome.append.tolist())) == wanted
        assert not set(evicted) & set(wanted)
        affected = self.affected(target)
        assert affected <= set(again) if not exact else affected == set(again), "other rows were recomputed"
        self.create_placeholders([i for i in self.rows if i not in set(evicted)] + outcome.append.tolist())
        self.base = target
        return outcome

    def affected(self, target: int) -> set[int]:
        """Rows that stay in the view and were touched between the two versions."""
        old, new = self.source.versions[self.base], self.source.versions[target]
        stay = set(self.rows) & set(self.should_hold(target))
        return {i for i in stay if old[i].stamp != new[i].stamp}

    def by_address(self) -> dict[int, int]:
        table = lance.dataset(self.uri).scanner(columns=[SOURCE_ROW_ID], with_row_address=True).to_table()
        return dict(zip(table["_rowaddr"].to_pylist(), table[SOURCE_ROW_ID].to_pylist(), strict=True))
