"""How a view's source differs between two versions, as far as the view reads it.

Pure: manifests and compactions in, fragments out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from leman_core.model.compactions import Rewrite
from leman_core.model.refresh import ChangeKind, SourceChange
from leman_core.model.table import Fragment, TableField, TableSnapshot
from leman_core.model.view import ViewQuery
from leman_core.sql.query_columns import columns_read
from leman_planner.views.compacted import only_moved

#: Compactions between the two versions, oldest first.
Compactions = Callable[[], Sequence[Rewrite]]


def fields_read(query: ViewQuery, table: TableSnapshot) -> tuple[TableField, ...]:
    """Return the source's columns that the view reads at that version; see `columns_read`."""
    by_name = {field.name: field for field in table.fields}
    return tuple(by_name[name] for name in columns_read(query, by_name))


def changes(
    query: ViewQuery, base: TableSnapshot, target: TableSnapshot, compactions: Compactions = tuple
) -> tuple[SourceChange, ...]:
    """Return the fragments that are not the same in both versions, by id.

    What is gone comes before what appeared under its id. Fragments of which compaction made others with the same rows
    are left out, and so are those others: `compactions` is asked only where it may tell of such.
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
    """Return the fragments that changed in this way."""
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
    """Tell whether both hold the same rows, deletions aside.

    An overwritten or restored table gives ids of fragments again: then they share no file.
    """
    if old.physical_rows != new.physical_rows:
        return False
    return old.files == new.files or not {f.path for f in old.files}.isdisjoint(f.path for f in new.files)


def _same_values(old: Fragment, new: Fragment, ids: Sequence[int], new_ids: Sequence[int]) -> bool:
    if ids == new_ids and old.files == new.files:
        return True
    return len(ids) == len(new_ids) and all(_same_column(old, new, i, j) for i, j in zip(ids, new_ids, strict=True))


def _same_column(old: Fragment, new: Fragment, before: int, now: int) -> bool:
    """Tell whether both have the same values of a column.

    Another column that took the name may be in the same file; where neither is in any file, both are NULL.
    """
    file = old.file_of(before)
    return file == new.file_of(now) and (before == now or not file)
