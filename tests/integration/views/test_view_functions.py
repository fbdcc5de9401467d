"""What functions can ask for and give, where they compute columns of a view."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

import leman
from leman.error_handling import ErrorHandlingConfig, Skip
from leman.errors import FailedPrecondition, JobFailed
from tests.integration.call_log import numbers


@leman.udf(data_type=pa.large_binary(), blob=True, version="1")
def letters(x: int) -> bytes | None:
    """As many letters as asked for; none for 3."""
    return None if x == 3 else b"x" * x


@leman.udf(data_type=pa.map_(pa.string(), pa.int64()), version="1")
def counts(x: int) -> dict[str, int]:
    """A map of one entry."""
    return {"x": x}


def test_a_function_gives_blobs(db):
    table = db.create_table("t", numbers(5))
    view = db.create_materialized_view("v", table.search(None).add_column("b", letters))
    view.refresh(progress=False)
    table.add({"x": [70_000]})
    assert view.refresh(progress=False).rows_evaluated == 1
    dataset = view.to_lance()
    assert dataset.schema.field("b").metadata == {b"lance-encoding:blob": b"true"}
    found = dataset.read_blobs("b", indices=range(6))
    assert [None if value is None else len(value) for _, value in found] == [0, 1, 2, None, 4, 70_000]


@leman.udf(version="1")
def size(b) -> int:
    """How many bytes; None has none."""
    return len(b or b"")


@leman.udf(version="1")
def shown(box) -> str:
    """What a function is given."""
    return repr(box)


def test_a_function_reads_blobs_inside_of_a_struct(db):
    blob, number = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}), pa.field("i", pa.int64())
    values = [b"a", None, b"x" * 70_000]
    boxes = pa.StructArray.from_arrays([pa.array(values, blob.type), pa.array(range(3))], fields=[blob, number])
    table = db.create_table("t", pa.table({"id": range(3), "box": boxes}))
    query = table.search(None).select(["id"]).add_column("n", (size, ["box.b"])).add_column("d", (shown, ["box"]))
    view = db.create_materialized_view("v", query)
    view.refresh(progress=False)
    found = view.to_arrow()
    assert found["n"].to_pylist() == [1, 0, 70_000]
    assert found["d"].to_pylist() == [repr({"b": value, "i": i}) for i, value in enumerate(values)]


def test_a_map_is_held_and_not_beside_blobs(db):
    table = db.create_table("t", numbers(3))
    query = table.search(None).add_column("m", counts)
    view = db.create_materialized_view("maps", query)
    view.refresh(progress=False)
    assert view.to_arrow()["m"].to_pylist() == [[("x", 0)], [("x", 1)], [("x", 2)]]
    with pytest.raises(FailedPrecondition) as refused:
        db.create_materialized_view("both", query.add_column("b", letters))
    assert refused.value.reason == "TYPE_NOT_STORABLE"


def test_resources_that_nobody_has_are_refused_before_anything_is_made(db, call_log):
    table = db.create_table("t", numbers(3))
    greedy = call_log.double(num_gpus=1)
    view = db.create_materialized_view("v", table.search(None).add_column("y", greedy))
    with pytest.raises(FailedPrecondition) as refused:
        view.refresh(progress=False)
    assert refused.value.reason == "RESOURCES_NOT_AVAILABLE"
    assert (view.describe().rows_unset, call_log.seen()) == (3, [])


def test_a_refresh_is_not_retried_and_keeps_no_values(db, call_log):
    table = db.create_table("t", numbers(4))
    view = db.create_materialized_view("v", table.search(None).add_column("y", call_log.double(version="1")))
    future = view.refresh_async()
    future.result()
    with pytest.raises(FailedPrecondition) as refused:
        db.retry_job(future.job_id)
    assert refused.value.reason == "NOT_A_BACKFILL"
    for way in ("changed in the source", "alter_columns", "POLICY_FULL"):
        assert way in str(refused.value)
    with pytest.raises(TypeError):
        view.alter_columns({"y": call_log.double(version="2")}, keep_values=True)


def test_failed_rows_are_named_as_rows_of_the_source(db):
    """Where they lay while they were computed, no one can look at."""

    def no_threes(x: int) -> int:
        if x % 10 == 3:
            raise ValueError(x)
        return x

    skip = ErrorHandlingConfig(on_error=[Skip()])
    table = db.create_table("t", numbers(40), max_rows_per_file=20)
    query = table.search(None).where("x >= 10").shuffle(seed=1)
    skipped = query.add_column("y", leman.udf(data_type=pa.int64(), version="skips", error_handling=skip)(no_threes))
    view = db.create_materialized_view("skips", skipped)
    view.refresh(progress=False)
    table.add({"x": [43, 44, 53]})

    future = view.refresh_async()
    future.result()
    found = {(error.row_id, error.fragment_id, error.offset) for error in view.get_errors(job_id=future.job_id)}
    rows = table.to_lance().scanner(columns=["x"], filter="x IN (43, 53)", with_row_id=True, with_row_address=True)
    wanted = {(row["_rowid"], *divmod(row["_rowaddr"], 1 << 32)) for row in rows.to_table().to_pylist()}
    assert found == wanted == {(40, 2, 0), (42, 2, 2)}

    fails = query.where("x > 43").add_column("y", leman.udf(data_type=pa.int64(), version="fails")(no_threes))
    with pytest.raises(JobFailed, match="row 2 of fragment 2 of the view's source") as failed:
        db.create_materialized_view("fails", fails).refresh(progress=False)
    with pytest.raises(FailedPrecondition, match="ended FAILED: refresh the view again") as refused:
        db.retry_job(failed.value.job_id)
    assert refused.value.reason == "NOT_A_BACKFILL"


def test_rows_on_which_a_refresh_failed_are_listed(db):
    @leman.udf(data_type=pa.int64(), version="1", error_handling=ErrorHandlingConfig(on_error=[Skip()]))
    def not_three(x: int) -> int:
        if x == 3:
            raise ValueError("three")
        return x

    table = db.create_table("t", numbers(5))
    view = db.create_materialized_view("v", table.search(None).add_column("y", not_three))
    future = view.refresh_async()
    future.result()
    assert future.job().state is leman.JobState.DONE_WITH_ERRORS
    (error,) = view.get_errors(job_id=future.job_id)
    assert (error.error_type, error.error_message) == ("ValueError", "three")
    assert view.to_arrow(["x", "y"]).to_pylist()[3] == {"x": 3, "y": None}
    table.add({"x": [5]})
    later = view.refresh_async()
    later.result()
    job = later.job()
    assert (job.state, job.failed_in) == (leman.JobState.DONE_WITH_ERRORS, (future.job_id,))
    assert (job.progress.rows_failed, job.progress.rows_failed_before) == (0, 1)
    told = view.refresh(progress=False)
    assert (told.mode, told.state, told.failed_in) == ("no_op", leman.JobState.DONE_WITH_ERRORS, (future.job_id,))
    anew = view.refresh(policy="full", progress=False)
    assert (anew.rows_failed, anew.rows_failed_before) == (1, 0)
    assert len(view.get_errors(job_id=anew.job_id)) == 1
    assert f"1 row failed and stays NULL: get_errors(job_id='{anew.job_id}')" in str(anew)
    table.to_lance().delete("x = 3")
    gone = view.refresh_async()
    gone.result()
    assert gone.job().state is leman.JobState.DONE
    for name in ("row_states", "rows_in_state", "get_failed_row_addresses"):
        assert hasattr(table, name)
        assert not hasattr(view, name)


def test_a_copy_of_a_view_that_lance_made_is_refreshed_and_each_row_computed_once(db, call_log):
    source = db.create_table("t", numbers(20), max_rows_per_file=10)
    view = db.create_materialized_view("v", source.search(None).add_column("y", call_log.double()))
    view.refresh(progress=False)
    lance.write_dataset(lance.dataset(f"{db.uri}/v.lance").to_table(), f"{db.uri}/copy.lance")
    source.add(pa.table({"x": pa.array(range(100, 120), pa.int64())}))
    call_log.clear()
    copy = db.open_view("copy")
    copy.refresh(progress=False)
    assert sorted(call_log.seen()) == list(range(100, 120))
    assert sorted(copy.to_arrow()["y"].to_pylist()) == [2 * x for x in (*range(20), *range(100, 120))]
