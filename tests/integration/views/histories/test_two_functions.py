"""A view with two functions, one of which is changed while the source changes too."""

from __future__ import annotations

from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewFunction, ViewQuery
from leman_core.model.job import JobState
from leman_core.model.view import RefreshMode
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_planner.views.view_catalog import ViewCatalog
from tests.integration.views.histories import functions

IDS = list(range(1, 9))


class Two:
    """A view of `id`, `tens` (of `a`) and `hundreds` (of `b`), over a table of two fragments with four rows each."""

    def __init__(self, system, folder, **window) -> None:
        self.system, self.database = system, str(folder)
        self.uri, self.view = f"{self.database}/t.lance", f"{self.database}/v.lance"
        ids = np.array(IDS)
        table = pa.table({"id": ids, "a": ids, "b": ids, "k": ids})
        lance.write_dataset(table, self.uri, enable_stable_row_ids=True, max_rows_per_file=4)
        for name, version, entrypoint, read in (
            ("f", "1", "tenfold", "a"),
            ("f", "2", "picky", "a"),
            ("g", "1", "hundredfold", "b"),
        ):
            where = f"{functions.__name__}:{entrypoint}"
            UdfRegistry(self.database).put(
                UdfDefinition(name, version, UdfKind.SCALAR, ("id", read), pa.int64(), entrypoint=where)
            )
        computed = (ViewFunction("tens", "f", "1", ("id", "a")), ViewFunction("hundreds", "g", "1", ("id", "b")))
        columns = (ViewColumn("id", "id", "id"),)
        system.create(self.database, "v", ViewQuery(self.database, "t", columns, computed, where="k > 0", **window))

    def alter(self, version) -> None:
        made = ViewCatalog(LanceTables()).alteration(self.database, "v", [ViewFunction("tens", "f", version, ())], "")
        lance.dataset(self.view).update_schema_metadata(made.metadata)

    def update(self, changes, where) -> None:
        lance.dataset(self.uri).update(changes, where=where)

    def rewrite(self, column, fragment_id) -> None:
        """A column of one fragment gets other values in place."""
        dataset = lance.dataset(self.uri)
        fragment = dataset.get_fragment(fragment_id)
        values = fragment.to_table(columns=["id", column])
        update = pa.table({"id": values["id"], column: pa.array([v + 1000 for v in values[column].to_pylist()])})
        made, fields = fragment.update_columns(update, left_on="id", right_on="id")
        operation = lance.LanceOperation.Update(updated_fragments=[made], fields_modified=fields)
        lance.LanceDataset.commit(self.uri, operation, read_version=dataset.version)

    def called(self) -> dict[str, list[int]]:
        """By name, for which rows since the last time."""
        found = {name: sorted(ids) for name, ids in functions.CALLED.items() if ids}
        for ids in functions.CALLED.values():
            ids.clear()
        return found

    def refresh(self, tens=10, **parameters):
        """Its job, that has to end well with the right values."""
        job = self.system.refresh(self.database, "v", **parameters)
        assert job.state is JobState.DONE, job.error
        source = lance.dataset(self.uri, version=parameters.get("src_version")).to_table().to_pylist()
        wanted = [{"id": r["id"], "tens": r["a"] * tens, "hundreds": r["b"] * 100} for r in source if r["k"] > 0]
        found = lance.dataset(self.view).to_table(columns=["id", "tens", "hundreds"]).to_pylist()
        assert sorted(found, key=lambda r: r["id"]) == sorted(wanted, key=lambda r: r["id"])
        return job


@pytest.fixture(params=[{}, {"limit": 100}], ids=["all", "limited"])
def two(views_system, quick_folder, request):
    made = Two(views_system, quick_folder, **request.param)
    made.refresh()
    assert made.called() == {"tenfold": IDS, "hundredfold": IDS}
    return made


def test_another_function_never_sees_rows_of_before(two):
    """It fails for rows that were corrected, or that went, before it was called."""
    two.alter("2")
    assert two.system.refresh(two.database, "v").state is JobState.FAILED
    two.called()
    two.update({"a": "a + 100"}, "id = 3")  # 103
    two.update({"k": "0"}, "id = 6")
    job = two.refresh(tens=1000)
    assert two.called() == {"picky": [1, 2, 3, 4, 5, 7, 8]}
    result = job.refresh_result
    assert (result.mode, result.rows_recomputed, result.rows_evicted) == (RefreshMode.INCREMENTAL, 7, 1)
    two.update({"b": "b + 1"}, "id = 1")
    two.refresh(tens=1000)
    assert two.called() == {"hundredfold": [1]}  # the other function reads what it read


def test_another_function_and_new_rows(two):
    two.alter("2")
    two.update({"a": "a + 1"}, "id IN (3, 6)")
    rows = np.array([10, 11])
    lance.write_dataset(pa.table({"id": rows, "a": rows, "b": rows, "k": rows}), two.uri, mode="append")
    assert two.refresh(tens=1000).refresh_result.rows_added == 2
    assert two.called() == {"picky": [*IDS, 10, 11], "hundredfold": [10, 11]}


def test_another_function_where_the_sources_history_was_cleaned(two):
    two.alter("2")
    two.update({"a": "a + 1"}, "id IN (3, 6)")
    lance.dataset(two.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert two.refresh(tens=1000).refresh_result.mode is RefreshMode.INCREMENTAL
    assert two.called() == {"picky": IDS, "hundredfold": [3, 6]}


def test_back_to_the_function_of_before_where_the_source_changed(two):
    two.alter("2")
    two.update({"a": "a + 1"}, "id IN (3, 6)")
    two.refresh(tens=1000)
    two.called()
    two.alter("1")
    two.update({"b": "b + 1"}, "id = 1")
    two.refresh()
    assert two.called() == {"tenfold": [3, 6], "hundredfold": [1]}


def test_columns_of_two_functions_that_were_rewritten_in_other_fragments(two):
    """What is unchanged for one function is not so for the other."""
    two.rewrite("a", 0)
    two.rewrite("b", 1)
    two.refresh()
    assert two.called() == {"tenfold": [1, 2, 3, 4], "hundredfold": [5, 6, 7, 8]}
