"""What tables and views have in common."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from leman import _garbage, _local_catalog, _wire, local
from leman._channel import Services
from leman._garbage import CheckpointCollection, StoredFile
from leman._own_service import reading
from leman._paging import PAGE, list_errors
from leman._query import Query
from leman._registration import Registration
from leman._rows import RowStream, read_request
from leman._shown import Shown
from leman._table_model import Commit, IndexCoverage, RowErrors, TableInfo
from leman._tracebacks import boundary
from leman.errors import InvalidArgument, NotSupported
from leman.v1 import catalog_pb2, commit_pb2

if TYPE_CHECKING:
    import lance
    import pyarrow as pa
else:
    from leman import _arrow as pa

_A_DAY = 86400.0


class Relation(Shown):
    """A table or a view of a database. Holds no state: every answer is of now."""

    def __init__(self, services: Services, registration: Registration, database: str, name: str) -> None:
        self.name = name
        self.uri = f"{database}/{name}.lance"
        self._services = services
        self._registration = registration
        self._database = database

    @boundary
    def describe(self) -> TableInfo:
        """Schema, version, rows and computed columns. Raises TableNotFound."""
        if self._services.reads_alone() and (found := _local_catalog.describe(self._database, self.name)) is not None:
            return found
        request = catalog_pb2.DescribeTableRequest(table=self.ref())
        return _wire.table_info(self.name, self._services.catalog.DescribeTable(request))

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.describe().schema

    @property
    def version(self) -> int:
        """The latest version."""
        return self.describe().version

    def count_rows(self) -> int:
        """Rows, without deleted ones."""
        return self.describe().row_count

    @boundary
    def to_lance(self, version: int | str | None = None) -> lance.LanceDataset:
        """The table as a Lance dataset, to read with all that Lance offers. Needs `leman[lance]`.

        Raises TableNotFound, VersionNotFound."""
        return local.open_table(self.uri, version)

    @boundary
    def to_batches(
        self,
        columns: list[str] | None = None,
        where: str | None = None,
        *,
        limit: int | None = None,
        offset: int = 0,
        version: int | str | None = None,
        batch_size: int = 0,
        include_checkpointed: bool = False,
    ) -> pa.RecordBatchReader:
        """The rows as a reader of record batches, through the services: needs no pylance, and holds a few megabytes.

        `columns`: None: all that queries show. `where`: SQL. `limit`, `offset`: of the rows that it is true for.
        `version`: a number, a tag, None: the latest. `batch_size`: rows in a batch at the most; 0: 8,192.
        `include_checkpointed`: computed columns also show what jobs have stored and no version has yet: the values that
        the column's function of now computed from the inputs of now. Other rows have the value of the latest version.
        `where` is about the values that are shown. It works while a job runs, and after it failed or was cancelled. It
        goes with no `version` and no view. Interrupted, the reader raises instead of going on.

        Raises TableNotFound, VersionNotFound, ColumnNotFound, InvalidArgument, and FailedPrecondition (IS_A_VIEW) for a
        view with `include_checkpointed`; what comes up later, the reader raises.
        """
        request = read_request(
            *(self.ref(), columns, where),
            limit=limit,
            offset=offset,
            version=version,
            batch_size=batch_size,
            include_checkpointed=include_checkpointed,
        )
        return RowStream(self._services, request).reader()

    def head(self, n: int = 5, *, include_checkpointed: bool = False) -> pa.Table:
        """The first rows, as an Arrow table; `include_checkpointed` and errors: as `to_arrow`."""
        return self.to_arrow(limit=n, include_checkpointed=include_checkpointed)

    @boundary
    def to_arrow(
        self,
        columns: list[str] | None = None,
        where: str | None = None,
        *,
        limit: int | None = None,
        offset: int = 0,
        version: int | str | None = None,
        include_checkpointed: bool = False,
    ) -> pa.Table:
        """The rows as an Arrow table; parameters and errors: as `to_batches`."""
        request = read_request(
            *(self.ref(), columns, where),
            limit=limit,
            offset=offset,
            version=version,
            include_checkpointed=include_checkpointed,
        )
        return RowStream(self._services, request).read_all()

    def search(self, query: None = None) -> Query:
        """A query over its rows, of which a view can be made. `query`: None, as search by vector or text is no
        part of a view."""
        if query is not None:
            raise NotSupported(
                "search by vector or text is not supported: search(None) takes all rows. Search with Lance: "
                "to_lance().to_table(nearest={'column': …, 'q': […], 'k': 10}), or full_text_query='…' with an "
                "INVERTED index"
            )
        return Query(self)

    @boundary
    def get_errors(self, *, job_id: str, column_name: str | None = None, limit: int | None = None) -> RowErrors:
        """The rows of a job for which the function failed, by row address; at most `limit` of them.

        Raises JobNotFound.
        """
        return list_errors(self._services, self._database, job_id, column_name, limit)

    @boundary
    def commits(self, *, limit: int = 100) -> list[Commit]:
        """The versions in the table's history that Leman made, newest first; at most `limit` of them. What others
        committed is not among them, nor what was cleaned away. Raises TableNotFound."""
        found: list[Commit] = []
        token = ""
        while len(found) < limit:
            size = min(limit - len(found), PAGE)
            request = commit_pb2.ListCommitsRequest(table=self.ref(), page_size=size, page_token=token)
            answer = self._services.commits.ListCommits(request)
            found += map(_wire.commit, answer.commits)
            token = answer.next_page_token
            if not token:
                break
        return found

    @boundary
    def optimize_indices(self, columns: Sequence[str] | None = None) -> tuple[IndexCoverage, ...]:
        """Bring the indexes of the table up to date, those on any of `columns` (None: all), and tell what they cover
        then. A backfill takes the fragments that it writes out of the indexes on its column, and added rows are in
        none: a search still finds them by scanning, a fast search does not.

        Takes as long as Lance needs for the rows that are left out, and no time where none are. Raises TableNotFound.
        """
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names, not {columns!r}")
        request = commit_pb2.OptimizeIndicesRequest(table=self.ref(), columns=columns or ())
        answer = self._services.commits.OptimizeIndices(request, timeout=_A_DAY)
        return tuple(_wire.index_coverage(index) for index in answer.indices)

    @boundary
    def checkpoints(self, *, limit: int = 10_000) -> tuple[StoredFile, ...]:
        """Checkpoints, fragment records and staged column files of the table, and what each is for; at most `limit` of
        them (10,000 is the most), by path. Changes nothing. Raises TableNotFound."""
        request = _garbage.make_request(self.ref(), None, limit, dry_run=True, include_kept=True)
        with reading(self._services, "commit_coordinator") as services:
            return _garbage.from_wire(services.commits.CollectGarbage(request), dry_run=True).files

    @boundary
    def collect_checkpoints(
        self, *, older_than: str | datetime.timedelta | None = None, dry_run: bool = False, limit: int = 1000
    ) -> CheckpointCollection:
        """Delete checkpoints, fragment records and staged column files that nothing can need any more.

        `older_than`: garbage written later than so long ago stays; a timedelta or text such as `12h`; default 7 days.
        Column files stay for a day at the least, except with 0 while no job of the table is open: that says that
        nothing writes to the table now. `dry_run`: only say what would go. `limit`: how many files are named.

        What a version, tag or branch refers to, what an unfinished fragment can reuse and what a job that has not
        ended may need always stays. Raises TableNotFound, InvalidArgument.
        """
        request = _garbage.make_request(self.ref(), older_than, limit, dry_run=dry_run, include_kept=False)
        return _garbage.from_wire(self._services.commits.CollectGarbage(request), dry_run=dry_run)

    def ref(self) -> catalog_pb2.TableRef:
        """Name it on the wire."""
        return catalog_pb2.TableRef(database=self._database, table=self.name)
