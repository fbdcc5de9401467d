"""Views that are dropped: what goes, what stays, and what is refused."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import leman
from leman._format.view_definitions import QUERY
from leman_core.storage import scratch_table as view_scratch
from leman_executor.refresh.view_writer import scratch_table_name
from tests.integration.backfills.test_pauses import paused
from tests.integration.call_log import numbers

REST = pa.schema([])


def folders(db) -> set[str]:
    return {path.name for path in Path(db.uri).iterdir() if path.suffix == ".lance"}


def leave_scratch(db, view: str) -> None:
    """What a refresh leaves that was killed."""
    uri = f"{db.uri}/{scratch_table_name(view, 'ab' * 16)}.lance"
    view_scratch.create(uri, "digest", [np.arange(3, dtype=np.int64)], REST)


def dropped_while_refreshed(db, call_log) -> tuple[leman.Table, leman.JobFuture]:
    """A table, and the refresh of a view of it that was dropped when its function had been called."""
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double(seconds=0.05)))
    future = view.refresh_async()
    for _, _events in future.watch(timeout=60):
        if call_log.seen():
            break
    db.drop_view("v")
    return table, future


def test_a_view_goes_with_its_scratch_tables_and_nothing_else_does(db, call_log):
    table = db.create_table("t", numbers(10))
    query = table.search(None).add_column("y", call_log.double())
    for name in ("v", "v_2"):
        db.create_materialized_view(name, query).refresh(progress=False)
        leave_scratch(db, name)

    db.drop_view("v")

    assert folders(db) == {"t.lance", "v_2.lance", f"{scratch_table_name('v_2', 'ab' * 16)}.lance"}
    assert db.table_names() == ["t", "v_2"]
    assert [udf.name for udf in db.udfs()] == ["double_seen"]
    assert db.open_view("v_2").refresh(progress=False).mode == "no_op"
    with pytest.raises(leman.errors.TableNotFound):
        db.drop_view("v")


def test_a_view_that_was_dropped_can_be_made_anew_under_its_name(db, call_log):
    table = db.create_table("t", numbers(10))
    for round_ in range(3):
        query = table.search(None).where(f"x >= {round_}").add_column("y", call_log.double())
        view = db.create_materialized_view("v", query)
        result = view.refresh(progress=False)
        assert (result.mode, result.rows_added, result.rows_evaluated) == ("full", 10 - round_, 10 - round_)
        assert sorted(view.to_arrow()["y"].to_pylist()) == [2 * x for x in range(round_, 10)]
        table.add({"x": [100 + round_]})
        assert view.refresh(progress=False).rows_added == 1
        table.to_lance().delete("x >= 100")
        assert view.refresh(progress=False).rows_evicted == 1
        db.drop_view("v")


def test_a_table_is_not_dropped(db):
    db.create_table("t", numbers(10))

    with pytest.raises(leman.errors.FailedPrecondition, match="'t' is not a materialized view") as caught:
        db.drop_view("t", force=True)

    assert caught.value.reason == "NOT_A_VIEW"
    assert db.open_table("t").count_rows() == 10


def test_a_view_that_others_rest_on_is_dropped_by_force_only(db):
    table = db.create_table("t", numbers(10))
    low = db.create_materialized_view("low", table.search(None).select({"y": "2 * x"}))
    low.refresh(progress=False)
    top = db.create_materialized_view("top", low.search(None).where("y > 10"))
    top.refresh(progress=False)

    with pytest.raises(leman.errors.FailedPrecondition, match="'low' is the source of 'top'") as caught:
        db.drop_view("low")
    assert caught.value.reason == "VIEW_IN_USE"
    assert low.refresh(progress=False).mode == "no_op"

    db.drop_view("low", force=True)
    assert sorted(top.to_arrow()["y"].to_pylist()) == [12, 14, 16, 18]
    with pytest.raises(leman.errors.TableNotFound, match=r"source 'low' is no longer in"):
        top.refresh(progress=False)
    db.drop_view("top")
    assert db.table_names() == ["t"]


def test_a_refresh_whose_view_is_dropped_fails_and_leaves_nothing(db, call_log):
    table, future = dropped_while_refreshed(db, call_log)
    leave_scratch(db, "v")  # as workers do that have rows at hand

    with pytest.raises(leman.errors.LemanError):
        future.result(60)
    assert folders(db) == {"t.lance"}
    assert db.create_materialized_view("v", table.search(None)).refresh(progress=False).rows_added == 200


def test_a_refresh_whose_view_is_dropped_leaves_a_new_one_of_that_name_alone(db, call_log):
    table, future = dropped_while_refreshed(db, call_log)
    other = db.create_materialized_view("v", table.search(None).where("x < 30").select({"z": "3 * x"}))
    with pytest.raises(leman.JobFailed):
        future.result(60)
    assert other.refresh(progress=False).rows_added == 30, "none was there before"
    assert sorted(other.to_arrow()["z"].to_pylist()) == [3 * x for x in range(30)]


def test_a_table_that_takes_the_name_of_a_dropped_view_keeps_nothing_of_its_refresh(db, call_log):
    _, future = dropped_while_refreshed(db, call_log)
    db.create_table("v", numbers(3))
    leave_scratch(db, "v")
    with pytest.raises(leman.JobFailed, match="View 'v' was dropped during the job") as failed:
        future.result(60)
    assert failed.value.reason == "TABLE_REPLACED"
    assert folders(db) == {"t.lance", "v.lance"}
    assert db.open_table("v").count_rows() == 3


@pytest.mark.parametrize("incarnation", [True, False])
def test_a_refresh_that_goes_on_after_a_pause_leaves_a_table_of_that_name_alone(db, call_log, incarnation):
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double(seconds=0.02)))
    future = view.refresh_async(concurrency=2)
    paused(future, call_log.seen)
    db.drop_view("v")
    if incarnation:
        db.create_table("v", numbers(3))
    else:
        lance.write_dataset(numbers(3), f"{db.uri}/v.lance")
    future.resume()
    with pytest.raises(leman.JobFailed, match="View 'v' was dropped during the job") as failed:
        future.result(60)
    assert failed.value.reason == "TABLE_REPLACED"
    assert lance.dataset(f"{db.uri}/v.lance").count_rows() == 3


def test_a_refresh_that_is_cancelled_after_its_view_was_dropped_leaves_nothing(db, call_log):
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    query = table.search(None).add_column("y", call_log.double(seconds=0.02))
    future = db.create_materialized_view("v", query).refresh_async(concurrency=2)
    paused(future, call_log.seen)
    db.drop_view("v")
    leave_scratch(db, "v")  # as workers do that have rows at hand
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(60)
    assert folders(db) == {"t.lance"}


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_paused_refresh_whose_view_was_made_anew_leaves_nothing(db, call_log, goes_on):
    """Its workers store the rows at hand after the drop, and so its hidden table is there again."""
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    query = table.search(None).add_column("y", call_log.double(seconds=0.02))
    future = db.create_materialized_view("v", query).refresh_async(concurrency=2)
    paused(future, call_log.seen)
    (scratch,) = folders(db) - {"t.lance", "v.lance"}
    stored = shutil.copytree(Path(db.uri) / scratch, Path(db.uri) / "stored")
    db.drop_view("v")
    view = db.create_materialized_view("v", query)
    assert view.refresh(progress=False).rows_added == 200
    stored.rename(Path(db.uri) / scratch)
    leave_scratch(db, "v")  # of a refresh of the new view

    if goes_on:
        future.resume()
        with pytest.raises(leman.JobFailed) as failed:
            future.result(60)
        assert failed.value.reason == "TABLE_REPLACED"
    else:
        future.cancel()
        with pytest.raises(leman.JobCancelled):
            future.result(60)
    assert folders(db) == {"t.lance", "v.lance", f"{scratch_table_name('v', 'ab' * 16)}.lance"}
    assert view.count_rows() == 200
    assert view.refresh(progress=False).mode == "no_op"


def test_a_damaged_view_can_be_dropped(db):
    table = db.create_table("t", numbers(10))
    view = db.create_materialized_view("v", table.search(None))
    view.to_lance().update_schema_metadata({QUERY: "{"})

    with pytest.raises(leman.errors.LemanError, match="without one, drop the view and create it again") as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "VIEW_DAMAGED"
    db.drop_view("v")
    assert db.table_names() == ["t"]


def test_a_view_that_lost_its_query_can_be_dropped(db):
    table = db.create_table("t", numbers(10))
    view = db.create_materialized_view("v", table.search(None))
    view.to_lance().update_schema_metadata({QUERY: None})

    with pytest.raises(leman.errors.LemanError, match="restore the previous version") as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "VIEW_DAMAGED"
    db.drop_view("v")
    assert db.table_names() == ["t"]


def refreshed(view, **parameters) -> object:
    return view.refresh(progress=False, **parameters)


def test_a_view_of_which_the_source_was_dropped_says_so_whatever_is_asked(db, system, tmp_path):
    """No one knows which other databases have views on this one."""
    table = db.create_table("t", numbers(10))
    low = db.create_materialized_view("low", table.search(None).select({"y": "2 * x"}))
    low.refresh(progress=False)
    with system.connect(tmp_path / "other") as elsewhere:
        top = low.search(None).where("y > 10").create_materialized_view(elsewhere, "top")
        waiting = low.search(None).create_materialized_view(elsewhere, "waiting")
        top.refresh(progress=False)
        above = top.search(None).create_materialized_view(elsewhere, "above")
        recorded = top.describe().source_version

        db.drop_view("low")

        for view in (top, waiting):
            asked = [partial(refreshed, view, policy=policy) for policy in ("auto", "incremental", "full")]
            asked += [partial(refreshed, view, src_version=recorded), partial(refreshed, view, cascade=True)]
            for ask in [*asked, view.plan_refresh, view.refresh_async]:
                with pytest.raises(leman.errors.TableNotFound) as caught:
                    ask()
                assert f"source 'low' is no longer in {db.uri}" in str(caught.value)
                assert "restore it under that name, or drop the view" in str(caught.value)
        with pytest.raises(leman.errors.TableNotFound, match="source 'low' is no longer in"):
            refreshed(above, cascade=True)
        assert refreshed(above).rows_added == 4, "its own source is there"
        assert sorted(top.to_arrow()["y"].to_pylist()) == [12, 14, 16, 18]
        assert elsewhere.table_names() == ["above", "top", "waiting"]

        again = db.create_materialized_view("low", table.search(None).select({"y": "3 * x"}))
        again.refresh(progress=False)
        result = top.refresh(progress=False)
        assert (result.mode, result.reason) == ("full", "source_replaced")
        assert sorted(top.to_arrow()["y"].to_pylist()) == [12, 15, 18, 21, 24, 27]


def test_a_refresh_whose_source_is_dropped_meanwhile_says_so(db, call_log):
    table = db.create_table("t", numbers(200))
    low = db.create_materialized_view("low", table.search(None))
    low.refresh(progress=False)
    query = low.search(None).add_column("y", call_log.double(seconds=0.02))
    view = db.create_materialized_view("v", query, max_rows_per_fragment=50)
    future = view.refresh_async()
    for _, _events in future.watch(timeout=60):
        if call_log.seen():
            break

    db.drop_view("low", force=True)

    with pytest.raises(leman.errors.JobFailed, match="source 'low' is no longer in") as caught:
        future.result(60)
    assert caught.value.reason == "TABLE_NOT_FOUND"
