"""Rows of a computed column by what is known of their values."""

from __future__ import annotations

from leman import _wire
from leman._channel import Services
from leman._paging import list_errors
from leman._table_model import RowStates
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, planner_pb2

STATES = {
    "computed": planner_pb2.ROW_STATE_COMPUTED,
    "null": planner_pb2.ROW_STATE_NULL,
    "failed": planner_pb2.ROW_STATE_FAILED,
    "not_computed": planner_pb2.ROW_STATE_NOT_COMPUTED,
}
"""What `Table.rows_in_state` can be asked for."""

_PAGE = 100_000


def row_states(services: Services, table: catalog_pb2.TableRef, column: str) -> RowStates:
    """Counts of a column's rows by state."""
    request = planner_pb2.GetRowStatesRequest(table=table, column=column)
    return _wire.row_states(services.planner.GetRowStates(request))


def rows_in_state(services: Services, table: catalog_pb2.TableRef, column: str, state: str) -> dict[int, int | None]:
    """Current addresses of the rows in a state, ascending, to their stable row ids; to None where the table has none.

    Raises InvalidArgument.
    """
    if state not in STATES:
        raise InvalidArgument(f"state is one of {', '.join(STATES)}, not {state!r}")
    request = planner_pb2.GetRowStatesRequest(table=table, column=column, state=STATES[state], page_size=_PAGE)
    rows: dict[int, int | None] = {}
    while True:
        answer = services.planner.GetRowStates(request)
        rows |= zip(answer.row_addresses, answer.row_ids or [None] * len(answer.row_addresses), strict=True)
        request.page_token = answer.next_page_token
        if not request.page_token:
            return rows


def failed_rows_of_job(
    services: Services, database: str, job_id: str, column: str, rows: dict[int, int | None]
) -> list[int]:
    """Those of a column's failed rows (address to stable row id, or to None) on which a job failed."""
    errors = list_errors(services, database, job_id, column, None, places_only=True)
    ids = {error.row_id for error in errors if error.row_id is not None}
    places = {error.row_address for error in errors}
    return [address for address, row_id in rows.items() if (address in places if row_id is None else row_id in ids)]
