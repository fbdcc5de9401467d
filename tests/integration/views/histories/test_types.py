"""Columns of every type pass into a view and stay what they are, in fragments that change and in those that do not."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewFunction, ViewQuery
from leman_core.functions import arrow_types
from leman_core.model.job import JobState
from leman_core.storage.udf_registry import UdfRegistry
from tests.integration.types.type_cases import CASES
from tests.integration.views.histories import functions
from tests.integration.views.histories.harness import rows_of

COLUMNS = {f"c{n}": case for n, case in enumerate(CASES)}
#: Types that are another thing in a data file, or that Lance keeps more about.
COMPUTED = [
    next(name for name, case in COLUMNS.items() if wanted(case.kind))
    for wanted in (
        pa.types.is_dictionary,
        lambda kind: isinstance(kind, pa.JsonType),
        pa.types.is_struct,
        pa.types.is_map,
    )
]
ROWS = 5


def rows(first: int) -> pa.Table:
    values = {name: case.make().cast(arrow_types.stored_type(case.kind)) for name, case in COLUMNS.items()}
    return pa.table({"id": range(first, first + ROWS), **values})


def expected(uri: str, version: int | None = None) -> dict[int, dict[str, object]]:
    dataset = lance.dataset(uri, version=version)
    found = {row.pop("_rowid"): row for row in dataset.scanner(with_row_id=True).to_table().to_pylist()}
    for row in found.values():
        row.update({f"f_{name}": row[name] for name in COMPUTED})
    return found


@pytest.fixture
def uri(views_system, quick_folder) -> str:
    database = str(quick_folder)
    made = []
    for name in COMPUTED:
        kind = arrow_types.stored_type(COLUMNS[name].kind)
        udf = UdfDefinition(
            f"same_{name}", "1", UdfKind.ARRAY, ("x",), kind, (), entrypoint=f"{functions.__name__}:same"
        )
        UdfRegistry(database).put(udf)
        made.append(ViewFunction(f"f_{name}", udf.name, "1", (name,)))
    lance.write_dataset(rows(0), f"{database}/t.lance", enable_stable_row_ids=True, data_storage_version="2.2")
    columns = tuple(ViewColumn(name, name, name) for name in ("id", *COLUMNS))
    views_system.create(database, "v", ViewQuery(database, "t", columns, tuple(made)), max_rows_per_fragment=3)
    return f"{database}/t.lance"


def test_every_type_passes_into_a_view(views_system, quick_folder, uri):
    def follow(step: str, version: int = 0) -> int:
        job = views_system.refresh(str(quick_folder), "v", src_version=version)
        assert job.state is JobState.DONE, (step, job.error)
        ids, found = rows_of(f"{quick_folder}/v.lance")
        wanted = expected(uri, version or None)
        assert sorted(ids) == sorted(wanted), step
        for row_id, row in zip(ids, found, strict=True):
            differing = [(name, row[name], value) for name, value in wanted[row_id].items() if row[name] != value]
            assert not differing, (step, row_id)
        return job.refresh_result.rows_evaluated

    follow("first fill")
    lance.write_dataset(rows(ROWS), uri, mode="append")
    follow("append")  # no fragment of before is touched
    lance.dataset(uri).update({"id": "id + 100"}, where="id = 1 OR id = 6")
    follow("update")  # only rows of two fragments are
    lance.dataset(uri).delete("id = 4")
    follow("delete")
    assert follow("back", 2) == 0  # what was computed then is read and written again
    assert follow("forth") == 0
    stored, source = lance.dataset(f"{quick_folder}/v.lance").schema, lance.dataset(uri).schema
    assert [stored.field(name).type for name in COLUMNS] == [source.field(name).type for name in COLUMNS]
