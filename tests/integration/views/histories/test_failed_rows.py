"""A function that fails for some rows, and says that they are to be skipped."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewFunction, ViewQuery
from leman_coordinator.verification.database_verification import verify
from leman_coordinator.verification.verification_report import Flaw
from leman_core.model import view_metadata
from leman_core.model.job import JobState
from leman_core.model.view import RefreshPolicy
from leman_core.storage import scratch_table as view_scratch
from leman_core.storage import view_side_files
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.refresh import refresh_run, refresh_steps
from leman_planner.views.view_catalog import ViewCatalog
from tests.integration.views.histories import functions
from tests.integration.views.histories.test_crashes import KillingSystem

SKIP = ErrorPolicy(rules=(ErrorRule(ErrorAction.SKIP),), store_errors=False)


class OddView:
    """A view of `id` and `odd`, which fails for even ids, over a table of twelve rows."""

    def __init__(self, system, folder) -> None:
        self.system, self.database = system, str(folder)
        self.uri, self.view = f"{self.database}/t.lance", f"{self.database}/v.lance"
        lance.write_dataset(pa.table({"id": np.arange(12), "k": np.zeros(12)}), self.uri, enable_stable_row_ids=True)
        self.register("1", "odd")
        columns, computed = (ViewColumn("id", "id", "id"),), (ViewFunction("odd", "odd", "1", ("id",)),)
        query = ViewQuery(self.database, "t", columns, computed, where="k < 1")
        system.create(self.database, "v", query, max_rows_per_fragment=5)

    def register(self, version, function) -> None:
        entrypoint = f"{functions.__name__}:{function}"
        UdfRegistry(self.database).put(
            UdfDefinition("odd", version, UdfKind.SCALAR, ("id",), pa.int64(), entrypoint=entrypoint, error_policy=SKIP)
        )

    def alter(self, version) -> None:
        change = ViewCatalog(LanceTables()).alteration(
            self.database, "v", [ViewFunction("odd", "odd", version, ())], ""
        )
        lance.dataset(self.view).update_schema_metadata(change.metadata)

    def append(self, first, last) -> None:
        rows = pa.table({"id": np.arange(first, last), "k": np.zeros(last - first)})
        lance.write_dataset(rows, self.uri, mode="append")

    def change(self, changes, where) -> None:
        lance.dataset(self.uri).update(changes, where=where)

    def delete(self, where) -> None:
        lance.dataset(self.uri).delete(where)

    def refresh(self, **parameters):
        return self.check(self.system.refresh(self.database, "v", **parameters))

    def check(self, job):
        """What the job says is what the view lacks, and its list names these rows."""
        dataset = lance.dataset(self.view)
        found = dataset.to_table(columns=["id", "odd", "__source_row_id"]).to_pylist()
        missing = [row["__source_row_id"] for row in found if row["odd"] is None]
        note = view_metadata.read(dataset.schema).failed
        assert job.state is (JobState.DONE_WITH_ERRORS if missing else JobState.DONE), job.error
        assert view_side_files.read_failed_rows(self.view, note).of("odd").tolist() == sorted(missing)
        assert note.total == sum(note.jobs.values()) == len(missing)
        assert (note.file == "") == (not missing)
        assert job.progress.rows_failed_before == note.total - note.jobs.get(job.job_id, 0)
        assert set(job.failed_in) == note.jobs.keys() - {job.job_id}
        return job


@pytest.fixture
def odd(views_system, quick_folder):
    return OddView(views_system, quick_folder)


def counts(job):
    return job.progress.rows_failed, job.progress.rows_failed_before


def test_rows_that_failed_are_null_and_the_others_have_values(odd):
    for count in (12, 18):
        if count > 12:
            odd.append(12, count)
        odd.refresh()
        found = lance.dataset(odd.view).to_table(columns=["id", "odd"]).to_pylist()
        assert found == [{"id": i, "odd": i if i % 2 else None} for i in range(count)]


def test_a_later_refresh_says_that_rows_still_have_no_value(odd):
    first = odd.refresh()
    assert counts(first) == (6, 0)
    nothing = odd.refresh()
    assert (counts(nothing), nothing.failed_in) == ((0, 6), (first.job_id,))
    lance.dataset(odd.uri).add_columns(pa.field("new", pa.int64()))
    assert counts(odd.refresh()) == (0, 6)  # only the version is recorded
    odd.append(12, 15)
    third = odd.refresh()
    assert (counts(third), third.failed_in) == ((2, 6), (first.job_id,))
    odd.append(15, 16)
    fourth = odd.refresh()
    assert (counts(fourth), fourth.failed_in) == ((0, 8), (third.job_id, first.job_id))


def test_the_list_shrinks_with_the_rows(odd):
    odd.refresh()
    odd.change({"id": "id + 101"}, "id = 0")  # computed again, with a value
    assert counts(odd.refresh()) == (0, 5)
    odd.change({"id": "id + 100"}, "id = 2")  # computed again, and failed again
    assert counts(odd.refresh()) == (1, 4)
    odd.change({"k": "5"}, "id = 4")  # the view does not have it any more
    assert counts(odd.refresh()) == (0, 4)
    odd.delete("id IN (6, 8)")
    assert counts(odd.refresh()) == (0, 2)
    lance.dataset(odd.uri).optimize.compact_files()
    lance.dataset(odd.view).optimize.compact_files()
    assert counts(odd.refresh()) == (0, 2)
    odd.delete("id % 2 = 0")
    assert counts(odd.refresh()) == (0, 0)


def test_another_function_has_failures_of_its_own(odd):
    odd.refresh()
    odd.register("2", "even")
    odd.alter("2")
    failing = odd.refresh()
    assert (counts(failing), failing.failed_in) == ((6, 0), ())
    odd.alter("1")
    assert counts(odd.refresh()) == (6, 0)  # those that failed before got another chance
    assert counts(odd.refresh(policy=RefreshPolicy.FULL)) == (6, 0)


@pytest.mark.parametrize(("known", "computed"), [(True, [2, 4]), (False, [2, 3, 4, 5])], ids=["known", "lost"])
def test_back_to_an_earlier_version_only_rows_that_failed_are_computed(odd, known, computed):
    """And where it is not known any more which ones failed then, no NULL is taken for a value."""
    odd.refresh()
    note = view_metadata.read(lance.dataset(odd.view).schema).failed
    odd.change({"id": "id + 100"}, "id IN (2, 3, 4, 5)")
    odd.refresh()
    if not known:
        Path(odd.view, "_refresh", note.file).unlink()
    functions.TRIED.clear()
    job = odd.refresh(src_version=1)
    assert sorted(functions.TRIED) == computed
    assert counts(job) == (2, 4)


@pytest.mark.parametrize("point", ["executor.scratch_written", "executor.failed_noted", "executor.fill_answered"])
def test_a_first_fill_that_is_killed_forgets_no_failed_row(views_system, quick_folder, monkeypatch, point):
    killing = KillingSystem(views_system)
    for module in (refresh_run, refresh_steps, view_scratch):
        monkeypatch.setattr(module, "crash_point", killing.crash_point)
    odd = OddView(killing, quick_folder)
    killing.point = point
    odd.refresh()
    assert killing.deaths == 1
    killing.point = ""
    assert odd.refresh().state is JobState.DONE_WITH_ERRORS


def test_a_list_that_is_damaged_is_found_and_started_anew(odd):
    def findings():
        return [found for report in verify(odd.database, None) for found in report.counts.findings]

    odd.refresh()
    assert not findings()
    note = view_metadata.read(lance.dataset(odd.view).schema).failed
    with Path(odd.view, "_refresh", note.file).open("ab") as file:
        file.write(b"x")
    assert view_side_files.read_failed_rows(odd.view, note) is None
    (found,) = findings()
    assert (found.flaw, found.table, found.columns) == (Flaw.DAMAGED, "v", ("odd",))
    assert f"{note.file} is damaged or gone: it names the 6 missing values" in found.message
    odd.append(12, 13)
    job = odd.system.refresh(odd.database, "v")
    assert job.state is JobState.DONE_WITH_ERRORS
    (warning,) = job.refresh_result.warnings
    assert warning == found.message
    assert view_metadata.read(lance.dataset(odd.view).schema).failed.rows == {"odd": 1}
    assert counts(odd.refresh(policy=RefreshPolicy.FULL)) == (7, 0)
    assert not findings()
