"""Which fragments of a view hold values: names of files tell, as far as Leman wrote them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leman_core.model.refresh import UnsetFragment
from leman_core.model.table import Fragment, TableSnapshot
from leman_core.model.view import IS_SET, PLACEHOLDER_FILE_PREFIX, VIEW_FILE_PREFIX


@dataclass(frozen=True, slots=True)
class ViewState:
    """How far a view is filled."""

    #: Fragments to be filled.
    unset: tuple[UnsetFragment, ...]
    #: How many others there are.
    filled: int
    #: Rows that queries show.
    rows_set: int


def renamed(view: TableSnapshot) -> list[Fragment]:
    """Return the fragments whose files have names that Leman did not give: compaction or somebody else wrote them."""
    column = _is_set_id(view)
    return [f for f in with_rows(view) if not f.file_of(column).startswith((PLACEHOLDER_FILE_PREFIX, VIEW_FILE_PREFIX))]


def with_rows(view: TableSnapshot) -> list[Fragment]:
    """Return the fragments that have rows.

    A full refresh, or placeholders that were created again, leave empty ones.
    """
    return [fragment for fragment in view.fragments if fragment.live_rows]


def classify(view: TableSnapshot, set_rows: Mapping[int, int]) -> ViewState:
    """Tell filled fragments of a view from those that are to be filled.

    Compaction may have put placeholders and rows with values into one fragment. It counts as unset: filling it again
    gives the rows that have values the same ones.

    Args:
        set_rows: of the fragments that are `renamed`, how many live rows have values, by fragment id.
    """
    column = _is_set_id(view)
    unset: list[UnsetFragment] = []
    rows = 0
    fragments = with_rows(view)
    for fragment in fragments:
        found = _rows_set(fragment, fragment.file_of(column), set_rows)
        rows += found
        if found < fragment.live_rows:
            unset.append(UnsetFragment(fragment.fragment_id, fragment.physical_rows, fragment.deleted_rows))
    return ViewState(tuple(unset), len(fragments) - len(unset), rows)


def _rows_set(fragment: Fragment, file: str, set_rows: Mapping[int, int]) -> int:
    if file.startswith(VIEW_FILE_PREFIX):
        return fragment.live_rows
    return 0 if file.startswith(PLACEHOLDER_FILE_PREFIX) else set_rows.get(fragment.fragment_id, 0)


def _is_set_id(view: TableSnapshot) -> int:
    column = view.column(IS_SET)
    return -1 if column is None else column.field_id
