"""Every type in every nesting passes into a view, and through a function of it, from a source of each file format."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewFunction, ViewQuery
from leman_core.functions import arrow_types
from leman_core.model.job import JobState
from leman_core.storage.udf_registry import UdfRegistry
from tests.integration.types.matrix import FORMATS, ROWS, TRIED, Cell, allowed, cells, stored
from tests.integration.views.histories import functions
from tests.integration.views.histories.harness import rows_of

_COLUMNS = 90
_FUNCTION_EVERY = 30
SHARES = [
    (name, first)
    for name, version in TRIED.items()
    for first in range(0, sum(allowed(cell.kind, version) for cell in cells()), _COLUMNS)
]


def share(file_format: str, first: int) -> dict[str, Cell]:
    """Columns of one source: types that it can hold."""
    held = [cell for cell in cells() if allowed(cell.kind, FORMATS[file_format])]
    return {f"c{at}": cell for at, cell in enumerate(held[first : first + _COLUMNS], first)}


def rows(columns: dict[str, Cell], first: int) -> pa.Table:
    return pa.table({"id": range(first, first + ROWS), **{name: stored(c.array) for name, c in columns.items()}})


@pytest.mark.parametrize(("file_format", "first"), SHARES)
def test_values_and_types_stay(views_system, quick_folder, file_format, first):
    columns, database = share(file_format, first), str(quick_folder)
    uri = f"{database}/t.lance"
    lance.write_dataset(rows(columns, 0), uri, enable_stable_row_ids=True, data_storage_version=file_format)
    lance.write_dataset(rows(columns, ROWS), uri, mode="append")  # with dictionaries of its own
    computed = {f"f_{name}": name for name in list(columns)[::_FUNCTION_EVERY]}
    for name, read in computed.items():
        kind = arrow_types.stored_type(columns[read].kind)
        entrypoint = f"{functions.__name__}:same"
        UdfRegistry(database).put(UdfDefinition(name, "1", UdfKind.ARRAY, ("x",), kind, (), entrypoint=entrypoint))
    selected = tuple(ViewColumn(name, name, name) for name in ("id", *columns))
    asked = tuple(ViewFunction(name, name, "1", (read,)) for name, read in computed.items())
    views_system.create(database, "v", ViewQuery(database, "t", selected, asked), max_rows_per_fragment=4)

    def follow(step: str) -> None:
        job = views_system.refresh(database, "v")
        assert job.state is JobState.DONE, (step, job.error)
        source = lance.dataset(uri).scanner(with_row_id=True).to_table().to_pylist()
        wanted = {row.pop("_rowid"): row for row in source}
        ids, found = rows_of(f"{database}/v.lance")
        assert sorted(ids) == sorted(wanted), step
        for row_id, row in zip(ids, found, strict=True):
            for name in row:
                value = wanted[row_id][computed.get(name, name)]
                assert repr(row[name]) == repr(value), (step, name, columns[computed.get(name, name)].title)

    follow("first fill")
    lance.dataset(uri).update({"id": "id + 100"}, where="id = 1 OR id = 6")
    follow("update")  # rows of before and new ones lie in one file
    schema = lance.dataset(f"{database}/v.lance").schema
    for name, cell in columns.items():
        assert schema.field(name).type == arrow_types.stored_type(cell.kind), cell.title
