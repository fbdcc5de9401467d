"""Requests for the rows of an older version, with the values that they had then. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from leman_core.functions import validation
from leman_core.model.errors import FailedPrecondition, InvalidArgument
from leman_core.model.table import Fragment, TableField, TableSnapshot
from leman_planner.resolved_request import Past, ResolvedRequest

#: How many rows of an older version lie in each of some fragments, by stable row id.
RowsIn = Callable[[Sequence[int]], Mapping[int, int]]


def at_version(resolved: ResolvedRequest, old: TableSnapshot, rows_in: RowsIn) -> ResolvedRequest:
    """Return the request for the rows of an older version, with the values that they had then.

    A fragment that is in both has the same rows in the same places. Rows that moved are found by their ids.

    Raises:
        FailedPrecondition: READ_VERSION_INPUT_MISSING where that version lacks an input; READ_VERSION_ROWS_MOVED where
            nothing tells which rows are its own.
        InvalidArgument: INVALID_FILTER, where the filter reads the output column.
    """
    before = {fragment.fragment_id: fragment for fragment in old.fragments}
    same: dict[int, Fragment] = {}
    others: list[int] = []
    for fragment in resolved.table.fragments:
        then = before.get(fragment.fragment_id)
        if then is not None and fragment.has_rows_of(then):
            same[fragment.fragment_id] = then
        else:
            others.append(fragment.fragment_id)
    moved: Mapping[int, int] = {}
    if others and resolved.table.stable_row_ids and old.stable_row_ids:
        moved = rows_in(others)
    elif others and len(same) < len(before):  # else they were all added since
        raise _rows_moved(old)
    past = Past(
        version=old.version,
        same=same,
        moved=moved,
        inputs=tuple(_input_then(column, resolved.names, old) for column in resolved.inputs),
    )
    kept = tuple(f for f in resolved.table.fragments if f.fragment_id in same or moved.get(f.fragment_id))
    if resolved.filter.reads_output:
        raise InvalidArgument(
            "INVALID_FILTER",
            f"Invalid filter: it reads {resolved.output.name}, which is to be computed from version {old.version}; "
            "leave read_version or that column out",
            field="where",
        )
    return dataclasses.replace(resolved, table=dataclasses.replace(resolved.table, fragments=kept), past=past)


def _rows_moved(old: TableSnapshot) -> FailedPrecondition:
    return FailedPrecondition(
        "READ_VERSION_ROWS_MOVED",
        f"Rows of version {old.version} lie in other fragments now, and the table's row ids are not stable: nothing "
        "tells which they are. Leave read_version out, or write the table anew with stable row ids",
        read_version=old.version,
    )


def _input_then(column: TableField, names: Mapping[int, str], old: TableSnapshot) -> TableField:
    found = old.find_id(column.field_id)
    if found is None or not validation.same_type(found.type_under(names), column.type_under(names)):
        raise FailedPrecondition(
            "READ_VERSION_INPUT_MISSING",
            f"Version {old.version} does not have the column '{column.name}' that is to be read: it was added, cast or "
            "made anew since. Leave read_version out, or name a later version",
            column=column.name,
            read_version=old.version,
        )
    return found
