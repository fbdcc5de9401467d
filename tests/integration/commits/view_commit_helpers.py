"""A source, a view over it, and requests about the view as planner and executor would send them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from leman._format import view_definitions
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewColumn, ViewDefinition, ViewFormat, ViewQuery
from leman_coordinator.commits.commit_requests import (
    ApplyDeltaRequest,
    CommitResult,
    CreatePlaceholdersRequest,
    FillPlaceholdersRequest,
    ViewFile,
)
from leman_core.model import view_metadata
from leman_core.storage import view_data_files as view_files
from leman_core.storage import view_side_files
from leman_core.storage.lance_tables import LanceTables
from tests.integration.commits.commit_helpers import submit

FIELDS = [pa.field("x", pa.int64()), pa.field("s", pa.string())]
SCHEMA = pa.schema([pa.field(SOURCE_ROW_ID, pa.int64()), pa.field(IS_SET, pa.bool_()), *FIELDS])
DATA = pa.schema([field for field in SCHEMA if field.name != SOURCE_ROW_ID])
COLUMNS = (ViewColumn("x", "`x`", "x"), ViewColumn("s", "`s`", "s"))


def values(ids: Sequence[int], schema: pa.Schema = SCHEMA, x: Any = None) -> pa.RecordBatch:
    """Values that name their row; `x` in place of ten times the id."""
    made = {
        SOURCE_ROW_ID: pa.array(ids, pa.int64()),
        IS_SET: pa.array([True] * len(ids)),
        "x": pa.array([i * 10 if x is None else x for i in ids], pa.int64()),
        "s": pa.array([f"s{i}" for i in ids]),
    }
    return pa.record_batch([made[name] for name in schema.names], schema=schema)


@dataclass(frozen=True)
class View:
    """`v` over `t`, which has `rows` rows in fragments of ten."""

    database: str

    @property
    def uri(self) -> str:
        return f"{self.database}/v.lance"

    @property
    def source(self) -> str:
        return f"{self.database}/t.lance"

    def make_source(self, rows: int = 20, *, stable: bool = True) -> View:
        data = pa.table({"x": np.arange(rows) * 10, "s": [f"s{i}" for i in range(rows)]})
        lance.write_dataset(data, self.source, max_rows_per_file=10, enable_stable_row_ids=stable)
        return self

    def open(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    def rows(self) -> dict[str, list[Any]]:
        return self.open().to_table().to_pydict()

    def fragments(self) -> dict[int, int]:
        return {f.fragment_id: f.count_rows() for f in self.open().get_fragments()}

    def definition(self, **query: Any) -> ViewDefinition:
        source = LanceTables().snapshot(self.source)
        asked = ViewQuery(self.database, "t", COLUMNS, **query)
        form = ViewFormat.STABLE_ROW_IDS if source.stable_row_ids else ViewFormat.ADDRESSES
        return ViewDefinition(
            query=asked, source_uri=self.source, base_version=source.version, base_incarnation="i", format=form
        )

    def make_placeholders(
        self, most: int = 0, *, create: bool = True, request_id: str = "", **query: Any
    ) -> CreatePlaceholdersRequest:
        known = None if create else LanceTables().snapshot(self.uri)
        return CreatePlaceholdersRequest(
            uri=self.uri,
            incarnation="" if known is None else known.incarnation,
            request_id=request_id or uuid.uuid4().hex,
            job_id="job",
            read_version=0 if known is None else known.version,
            schema=view_definitions.write(SCHEMA, self.definition(**query)),
            max_rows_per_fragment=most,
            create=create,
        )

    def made(self, rows: int = 20, most: int = 10, **query: Any) -> View:
        """With source and placeholders."""
        self.make_source(rows)
        submit(self.make_placeholders(most, **query))
        return self

    def filled(self, rows: int = 20, most: int = 10) -> View:
        """With source and values."""
        self.made(rows, most)
        submit(self.fill())
        return self

    def fill(self, *fragment_ids: int, **changes: Any) -> FillPlaceholdersRequest:
        known = LanceTables().snapshot(self.uri)
        wanted = () if changes.get("fragments") else fragment_ids or tuple(f.fragment_id for f in known.fragments)
        request = FillPlaceholdersRequest(
            uri=self.uri,
            incarnation=known.incarnation,
            request_id=uuid.uuid4().hex,
            job_id="job",
            read_version=known.version,
            fragments=tuple(ViewFile(i, self.stage_fill(i)) for i in wanted),
        )
        return replace(request, **changes)

    def stage_fill(self, fragment_id: int, schema: pa.Schema = DATA) -> Any:
        ids = view_files.source_row_ids(self.uri, self.open().version, fragment_id)[0].tolist()
        return view_files.stage_columns(self.uri, schema, [values(ids, schema)], fragment_id=fragment_id)

    def appended(self, *ids: int) -> ViewFile:
        return ViewFile(0, view_files.stage_append(self.uri, SCHEMA, [values(ids)]))

    def swapped(self, fragment_id: int, x: int, patch: Sequence[int] | None = None) -> ViewFile:
        """All values of a fragment, with another `x`."""
        ids = view_files.source_row_ids(self.uri, self.open().version, fragment_id)[0].tolist()
        offsets = None if patch is None else np.array(patch, np.int64)
        batches = [values(ids, DATA, x)]
        return ViewFile(
            fragment_id, view_files.stage_columns(self.uri, DATA, batches, fragment_id=fragment_id, patch=offsets)
        )

    def delta(
        self,
        *,
        appended: Sequence[ViewFile] = (),
        swapped: Sequence[ViewFile] = (),
        evicted: Sequence[int] = (),
        **changes: Any,
    ) -> ApplyDeltaRequest:
        known = LanceTables().snapshot(self.uri)
        definition = view_metadata.from_metadata(known.metadata)
        assert definition is not None
        file, digest = view_side_files.write_evictions(self.uri, np.array(evicted, np.int64)) if evicted else ("", "")
        request = ApplyDeltaRequest(
            uri=self.uri,
            incarnation=known.incarnation,
            request_id=uuid.uuid4().hex,
            job_id="job",
            read_version=known.version,
            appended=tuple(appended),
            swapped=tuple(swapped),
            evictions_file=file,
            evictions_digest=digest,
            replace_all=False,
            metadata=view_definitions.updates(replace(definition, base_version=7)),
        )
        return replace(request, **changes)


def one(request: Any) -> CommitResult:
    """The result of a request that is sent alone."""
    return submit(request)[0]
