"""Compare two versions of a view's source, and check the view and its source against the view's definition. Pure.

File names are unique, so a fragment with certain files and deletions has the same rows in every version. A compaction
in the history therefore shows that the fragments which it created have the live rows of the fragments which it
replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from leman._format.value_casts import differ_in_names
from leman._format.view_definitions import INTERNAL_COLUMNS, ViewDefinition, ViewQuery
from leman_core.functions import column_checks
from leman_core.functions.arrow_types import is_blob
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.table import Fragment, Rewrite, TableField, TableSnapshot
from leman_core.model.view import ChangeKind, ResolvedFunction, SourceChange
from leman_core.sql.expressions import columns_read

#: Identifies a fragment's rows and the values of the fields that are read. Equal states mean equal values.
_State = tuple[int, int, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Fragments of the older version, with the fragments that now have exactly their rows."""

    sources: frozenset[Fragment]
    holders: frozenset[_State]


def only_moved(
    older: Iterable[Fragment], newer: Iterable[Fragment], fields: Sequence[int], compactions: Iterable[Rewrite]
) -> Collection[Fragment]:
    """Return the fragments of both versions whose rows compaction only moved, with the same values of all `fields`.

    Args:
        older: Fragments of the older version.
        newer: Fragments of the newer version.
        fields: The fields that are read.
        compactions: The compactions, oldest first. If some are missing, fewer fragments are found.
    """
    groups = {
        state: _Group(frozenset([fragment]), frozenset([state]))
        for fragment in older
        if any((state := _state(fragment, fields))[-1])  # skip fragments without a file, which cannot be identified
    }
    for rewrite in compactions:
        _trace(groups, rewrite, fields)
    ends = {_state(fragment, fields): fragment for fragment in newer}
    found: set[Fragment] = set()
    for group in set(groups.values()):
        if group.holders <= ends.keys():
            found |= group.sources
            found.update(ends[state] for state in group.holders)
    return found


def _trace(groups: dict[_State, _Group], rewrite: Rewrite, fields: Sequence[int]) -> None:
    """Apply one compaction to the groups, if it replaced only known fragments."""
    old, new = ({_state(f, fields) for f in fragments} for fragments in (rewrite.old, rewrite.new))
    if not old <= groups.keys() or not _is_whole(rewrite, fields):
        return
    merged = {groups[state] for state in old}
    sources = frozenset().union(*(group.sources for group in merged))
    holders = frozenset().union(*(group.holders for group in merged)) - old | new
    for state in old:
        del groups[state]
    groups.update(dict.fromkeys(holders, _Group(sources, holders)))


def _is_whole(rewrite: Rewrite, fields: Sequence[int]) -> bool:
    """Return whether the new fragments have all rows and fields of the old ones."""
    if sum(f.live_rows for f in rewrite.old) != sum(f.live_rows for f in rewrite.new):
        return False
    held = {i for f in rewrite.old for i in fields if f.file_of(i)}
    return all(f.file_of(i) for f in rewrite.new for i in held)


def _state(fragment: Fragment, fields: Sequence[int]) -> _State:
    files = tuple(fragment.file_of(i) for i in fields)
    return fragment.fragment_id, fragment.physical_rows, fragment.deletion_file, files


#: Compactions between the two versions, oldest first.
Compactions = Callable[[], Sequence[Rewrite]]


def fields_read(query: ViewQuery, table: TableSnapshot) -> tuple[TableField, ...]:
    """Return the columns that the view reads in a version of the source; see `columns_read`."""
    by_name = {field.name: field for field in table.fields}
    return tuple(by_name[name] for name in columns_read(query, by_name))


def changed_fragments(
    query: ViewQuery, base: TableSnapshot, target: TableSnapshot, compactions: Compactions = tuple
) -> tuple[SourceChange, ...]:
    """Return the fragments that differ, by id. If an id was reused, the removed fragment precedes the new one.

    Fragments whose rows compaction only moved are left out. `compactions` is called only if there may be such
    fragments.
    """
    if base.version == target.version:
        return ()
    ids = [i for column in fields_read(query, base) for i in column.field_ids]
    new_ids = [i for column in fields_read(query, target) for i in column.field_ids]
    before = {fragment.fragment_id: fragment for fragment in base.fragments}
    found: list[SourceChange] = []
    for fragment in target.fragments:
        old = before.pop(fragment.fragment_id, None)
        found += [SourceChange(fragment.fragment_id, kind) for kind in _kinds(old, fragment, ids, new_ids)]
    found += [SourceChange(fragment_id, ChangeKind.GONE) for fragment_id in before]
    if ids == new_ids:
        found = _without_moved(found, base, target, ids, compactions)
    return tuple(sorted(found, key=lambda change: change.fragment_id))


def _without_moved(
    found: list[SourceChange], base: TableSnapshot, target: TableSnapshot, ids: Sequence[int], compactions: Compactions
) -> list[SourceChange]:
    gone, came = _listed(found, ChangeKind.GONE, base), _listed(found, ChangeKind.APPEARED, target)
    if not gone or not came:
        return found
    older, newer = (gone, came) if base.version < target.version else (came, gone)
    moved = only_moved(older.values(), newer.values(), ids, compactions())
    listed = gone | came
    return [change for change in found if listed.get(change) not in moved]


def _listed(found: Sequence[SourceChange], kind: ChangeKind, version: TableSnapshot) -> dict[SourceChange, Fragment]:
    """Return the fragments with one kind of change."""
    wanted = {change.fragment_id: change for change in found if change.kind is kind}
    return {wanted[f.fragment_id]: f for f in version.fragments if f.fragment_id in wanted}


def _kinds(old: Fragment | None, new: Fragment, ids: Sequence[int], new_ids: Sequence[int]) -> Iterator[ChangeKind]:
    if old is None:
        yield ChangeKind.APPEARED
    elif not _same_rows(old, new):
        yield ChangeKind.GONE
        yield ChangeKind.APPEARED
    elif not _same_values(old, new, ids, new_ids):
        yield ChangeKind.REWRITTEN
    elif (old.deleted_rows, old.deletion_file) != (new.deleted_rows, new.deletion_file):
        yield ChangeKind.DELETIONS


def _same_rows(old: Fragment, new: Fragment) -> bool:
    """Return whether both fragments have the same rows, apart from deletions.

    After an overwrite or a restore, fragments with the same id may share no file.
    """
    if old.physical_rows != new.physical_rows:
        return False
    return old.files == new.files or not {f.path for f in old.files}.isdisjoint(f.path for f in new.files)


def _same_values(old: Fragment, new: Fragment, ids: Sequence[int], new_ids: Sequence[int]) -> bool:
    if ids == new_ids and old.files == new.files:
        return True
    return len(ids) == len(new_ids) and all(_same_column(old, new, i, j) for i, j in zip(ids, new_ids, strict=True))


def _same_column(old: Fragment, new: Fragment, before: int, now: int) -> bool:
    """Return whether both fragments have the same values of a column. A column in no file has only NULLs."""
    file = old.file_of(before)
    return file == new.file_of(now) and (before == now or not file)


_ADVICE = "Drop the view and create it again"


def check_view(view: TableSnapshot, definition: ViewDefinition) -> None:
    """Check that a view's table has the columns of its definition.

    Raises:
        FailedPrecondition: EXTERNAL_WRITES – it has other columns.
    """
    query = definition.query
    wanted = [*INTERNAL_COLUMNS, *(c.name for c in query.columns), *(f.name for f in query.functions)]
    have = [field.name for field in view.fields]
    if gone := [name for name in wanted if name not in have]:
        problem = f"its columns {', '.join(gone)} were dropped or renamed. {_ADVICE}"
    elif more := [name for name in have if name not in wanted]:
        problem = f"columns {', '.join(more)} were added that its query does not have. Drop them"
    else:
        return
    raise FailedPrecondition("EXTERNAL_WRITES", f"Another program changed the view: {problem}", table=view.uri)


def check_source(
    view: TableSnapshot,
    definition: ViewDefinition,
    base: TableSnapshot | None,
    target: TableSnapshot,
    functions: Sequence[ResolvedFunction],
) -> None:
    """Check that the target version has the columns that a view reads, with their types.

    Without a base version, columns of expressions are not checked.

    Raises:
        FailedPrecondition: SOURCE_COLUMN_MISSING, TYPE_MISMATCH.
    """
    for name, before in _recorded(view, definition, base):
        column = target.find(name)
        if column is None:
            raise source_column_missing(name, target, base)
        if before is not None and not _same_field_values(before, column.arrow):
            raise _retyped(name, before.type, column, target)
    for function in functions:
        inputs = tuple(c for name in function.column.inputs if (c := target.find(name)) is not None)
        column_checks.check_input_types(inputs, function.udf)
        column = view.column(function.column.name)
        if column is not None:
            column_checks.check_output_type(column, function.udf, _ADVICE)


def source_column_missing(name: str, target: TableSnapshot, base: TableSnapshot | None) -> FailedPrecondition:
    """Return the error for a column that the source does not have."""
    old = None if base is None else base.column(name)
    renamed = old and next((f.name for f in target.fields if f.field_id == old.field_id), None)
    hint = f"It is now called '{renamed}': rename it back" if renamed else "Add it back"
    return FailedPrecondition(
        "SOURCE_COLUMN_MISSING",
        f"The view reads column '{name}', which version {target.version} of its source does not have. "
        f"{hint}, or refresh to a version that has it, or drop the view and create it without the column",
        column=name,
        source_version=target.version,
    )


def _recorded(
    view: TableSnapshot, definition: ViewDefinition, base: TableSnapshot | None
) -> Iterator[tuple[str, pa.Field | None]]:
    """Yield source columns, each with its field when the view was created or last refreshed, or None if unknown."""
    if base is not None:
        yield from ((column.name, column.arrow) for column in fields_read(definition.query, base))
    for column in definition.query.columns:
        own = view.column(column.name)
        if column.source_column and own is not None:
            yield column.source_column, own.arrow
    for function in definition.query.functions:
        yield from ((name, None) for name in function.inputs)


def _same_field_values(before: pa.Field, now: pa.Field) -> bool:
    """Return whether a column of the view can store values of both fields. A view stores all kinds of blobs alike."""
    if is_blob(before) or is_blob(now):
        return is_blob(before) and is_blob(now)
    return column_checks.same_type(before.type, now.type)


def _retyped(name: str, before: pa.DataType, column: TableField, target: TableSnapshot) -> FailedPrecondition:
    back = "Rename its fields back" if differ_in_names(before, column.arrow.type) else "Cast it back"
    return FailedPrecondition(
        "TYPE_MISMATCH",
        f"Type mismatch for column {name}: the view was created from {before}; version {target.version} of its source "
        f"has {column.arrow.type}. {back}, or drop the view and create it again",
        column=name,
        declared=before,
        actual=column.arrow.type,
    )
