"""Changes to rows that are there: update, and merge with rows that are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from leman import _row_upload, local
from leman._channel import Services
from leman._request_id import id_of
from leman._signature import check_columns
from leman._tracebacks import boundary
from leman.errors import FieldViolation, InvalidArgument
from leman.v1 import catalog_pb2, tables_pb2

if TYPE_CHECKING:
    import pyarrow as pa

_A_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge did: how many rows it inserted, updated and deleted, and the table version in which it is done."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int
    version: int


def check_sql(given: object, what: str) -> str:
    """SQL that a caller gave. Raises InvalidArgument where it is no text."""
    if not isinstance(given, str):
        raise InvalidArgument(f"{what} is SQL in a str, such as 'n > 5', not a {type(given).__name__}")
    return given


def update(
    services: Services,
    table: catalog_pb2.TableRef,
    schema: pa.Schema | None,
    where: str | None,
    *,
    values: Mapping[str, Any] | None,
    values_sql: Mapping[str, str] | None,
    request_id: str | None,
) -> int:
    """Update rows, and tell how many; see `Table.update`. `schema`: the table's, where there are `values`."""
    if not values and not values_sql:
        raise InvalidArgument("update() takes values={'column': value} or values_sql={'column': 'SQL'}")
    request = tables_pb2.UpdateRowsRequest(
        table=table,
        where="true" if where is None else check_sql(where, "where"),
        expressions={str(name): check_sql(text, f"values_sql[{name!r}]") for name, text in (values_sql or {}).items()},
        request_id=id_of(request_id),
    )
    if values:
        row = local.as_arrow({name: [value] for name, value in values.items()}, schema)
        request.values = _row_upload.stream(row)
    return services.tables.UpdateRows(request, timeout=_A_DAY).rows_updated


class MergeInsert:
    """What is to become of rows that match and of those that do not, see `Table.merge_insert`; `execute` does it."""

    def __init__(
        self, services: Services, table: catalog_pb2.TableRef, schema: pa.Schema, on: str | Iterable[str]
    ) -> None:
        keys = check_columns([on] if isinstance(on, str) else list(on), "on", InvalidArgument)
        self._services = services
        self._schema = schema
        self._header = tables_pb2.MergeRowsHeader(table=table, on=keys)

    def when_matched_update_all(self, where: str | None = None) -> Self:
        """Rows of the table that match get the values that are given; columns that are not given keep theirs.

        `where`: only those for which this SQL is true, which names columns `target.n` and `source.n`. It has no CASE,
        and for a column with a time zone a time is written as a number: `cast(target.at as bigint) < 1717200000000000`.
        """
        self._header.update_matched = True
        self._header.update_where = where or ""
        return self

    def when_not_matched_insert_all(self) -> Self:
        """Rows that are given and match none of the table are added."""
        self._header.insert_not_matched = True
        return self

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Self:
        """Rows of the table that match none that is given are deleted.

        `condition`: only those for which this SQL over the table's columns is true.
        """
        self._header.delete_not_matched_by_source = True
        self._header.delete_where = condition or ""
        return self

    @boundary
    def execute(self, data: Any, *, request_id: str | None = None) -> MergeResult:
        """Do it, all or nothing, in one version of the table; `data` as in `Database.create_table`. `request_id`: as
        for `Table.add`.

        Raises ColumnNotFound, TypeMismatch, TableNotFound, InvalidArgument, and FailedPrecondition whose `reason` is
        COLUMN_IS_COMPUTED, DUPLICATE_KEY, FILTER_FAILED or NULL_VALUE.
        """
        header = self._header
        if not (header.update_matched or header.insert_not_matched or header.delete_not_matched_by_source):
            refused = InvalidArgument(
                "a merge has nothing to do: say when_matched_update_all(), when_not_matched_insert_all() or"
                " when_not_matched_by_source_delete() before execute()",
                reason="MISSING_FIELD",
            )
            refused.fields = (FieldViolation("header.update_matched", "a merge has nothing to do"),)
            raise refused
        rows = local.as_arrow(data, self._schema)
        answer = _row_upload.merge(self._services, self._header, rows, request_id)
        return MergeResult(answer.rows_inserted, answer.rows_updated, answer.rows_deleted, answer.version)
