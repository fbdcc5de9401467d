"""What a user does wrong, and what the table makes hard: typed errors with the words that help, never a hang."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman import JobState, errors
from tests.integration.call_log import CallLog, numbers, values


@leman.udf(data_type=pa.int64(), name="same", version="1")
def same(x: int) -> int:
    return x


@leman.udf(data_type=pa.int64(), name="needs", version="1")
def needs(missing_one: int) -> int:
    return missing_one


def test_unknown_table(db):
    with pytest.raises(errors.TableNotFound, match="nowhere"):
        db.open_table("nowhere")


def test_column_that_nobody_defined(db):
    table = db.create_table("t", numbers(3))
    with pytest.raises(errors.ColumnNotDefined, match=r"Column y is not defined in this table.*add_columns"):
        table.backfill("y")
    with pytest.raises(errors.ColumnNotDefined, match="Column x is not defined"):
        table.backfill("x")


def test_input_column_that_is_not_there(db):
    table = db.create_table("t", numbers(3))
    with pytest.raises(
        errors.InputColumnMissing, match=r"UDF expects input columns .*missing_one.* which are not found"
    ):
        table.add_columns({"y": needs})
    with pytest.raises(errors.InputColumnMissing, match="nope"):
        table.add_columns({"y": (needs, ["nope"])})
    table.add_columns({"y": (needs, ["x"])})
    table.backfill("y")
    assert values(table, "y") == {0: 0, 1: 1, 2: 2}


def test_input_of_another_type(db):
    @leman.udf(data_type=pa.int64(), name="typed", version="1")
    def typed(x: pa.StringArray) -> pa.Array:
        return pa.array([len(v) for v in x.to_pylist()])

    table = db.create_table("t", numbers(3))
    with pytest.raises(errors.TypeMismatch, match="Type mismatch for column x"):
        table.add_columns({"y": typed})
    assert "y" not in table.schema.names


def test_generic_array_without_a_type():
    with pytest.raises((TypeError, ValueError), match=r"Cannot validate generic pa\.Array type"):

        @leman.udf
        def generic(x: pa.Array) -> pa.Array:
            return x


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("nope > 3", "nope"),
        ("x >", "expected: an expression"),
        ("x > 1; DROP TABLE t", ";"),
        ("repeat('a', 1000000000) = 'a'", "repeat"),
        ("x IN (" + ",".join(map(str, range(100_000))) + ")", "4"),
    ],
)
def test_filters_that_cannot_be(db, where, words):
    table = db.create_table("t", numbers(3))
    table.add_columns({"y": same})
    with pytest.raises(errors.InvalidArgument, match=f"(?i){words}") as caught:
        table.backfill("y", where=where)
    assert caught.value.reason == "INVALID_FILTER"
    assert "/home/" not in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    "option",
    ["concurrency", "intra_applier_concurrency", "checkpoint_size", "task_size", "commit_granularity", "num_frags"],
)
def test_numbers_that_make_no_sense(db, option):
    table = db.create_table("t", numbers(3))
    table.add_columns({"y": same})
    with pytest.raises(errors.InvalidArgument, match=option):
        table.backfill("y", **{option: -1})


@pytest.mark.parametrize("name", ["a b", 'quo"te', "apo'strophe", "ünï", "_range-0-10_frag-3", "x" * 200])
def test_column_names_of_all_sorts(db, name):
    table = db.create_table("t", numbers(30), max_rows_per_file=10)
    table.add_columns({name: same})
    table.backfill(name, checkpoint_size=4)
    assert values(table, name) == {x: x for x in range(30)}
    table.add(numbers(5, start=30))
    assert db.job(table.backfill(name)).progress.rows_evaluated == 5


def test_a_dot_in_a_column_name_is_refused(db):
    table = db.create_table("t", numbers(3))
    with pytest.raises(errors.InvalidArgument, match=r"\."):
        table.add_columns({"a.b": same})


def test_input_names_of_all_sorts(db):
    data = pa.table({'we ird "ö"': [1, 2, 3], "x": [0, 1, 2]})
    table = db.create_table("t", data)
    table.add_columns({"y": (same, ['we ird "ö"'])})
    table.backfill("y")
    assert values(table, "y") == {0: 1, 1: 2, 2: 3}


def test_an_empty_table(db):
    table = db.create_table("t", pa.table({"x": pa.array([], pa.int64())}))
    table.add_columns({"y": same})
    assert db.job(table.backfill("y")).state is JobState.DONE
    table.add(numbers(2))
    table.backfill("y")
    assert values(table, "y") == {0: 0, 1: 1}


def test_a_table_whose_rows_are_all_deleted(db):
    table = db.create_table("t", numbers(10))
    table.add_columns({"y": same})
    table.to_lance().delete("true")
    assert db.job(table.backfill("y")).progress.rows_evaluated == 0


def test_fragments_of_one_row(db):
    table = db.create_table("t", numbers(25), max_rows_per_file=1)
    table.add_columns({"y": same})
    table.backfill("y")
    assert values(table, "y") == {x: x for x in range(25)}


def bad(kind: str) -> leman.UDF:
    @leman.udf(data_type=pa.int64(), name=f"bad_{kind}", version="1")
    def scalar(x: int) -> int:
        if x == 5:
            if kind == "raises":
                raise KeyError("five")
            return "five"  # type: ignore[return-value]
        return x

    @leman.udf(data_type=pa.int64(), name=f"bad_{kind}", version="1")
    def batch(x: pa.Array) -> pa.Array:
        return x.slice(1) if kind == "short" else x.cast(pa.string())

    @leman.udf(data_type=pa.int64(), name=f"bad_{kind}", version="1")
    def text(x: pa.Array) -> pa.Array:
        return pa.array(["no number"] * len(x))

    return {"raises": scalar, "wrong_type": scalar, "short": batch, "text": text}[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("raises", r"row 5 of fragment 0 \(x = 5\): KeyError: 'five'"),
        ("wrong_type", r"row 5 of fragment 0.*it returned 'five' \(str\), its output type is int64"),
        ("short", r"returned \d+ values for \d+ rows"),
        ("text", r"failed with type error"),
    ],
)
def test_functions_that_misbehave_fail_the_job_with_the_facts(db, kind, words):
    table = db.create_table("t", numbers(20))
    table.add_columns({"y": bad(kind)})
    with pytest.raises(leman.JobFailed, match=words) as caught:
        table.backfill("y")
    job = db.jobs()[0]
    assert job.state is JobState.FAILED
    assert "Traceback" not in str(caught.value)
    (error,) = table.get_errors(job_id=job.job_id)
    assert error.column == "y"
    assert error.error_message.splitlines()[0] in error.traceback


def test_a_batch_that_raises_says_that_nobody_knows_the_row(db):
    @leman.udf(data_type=pa.int64(), name="picky", version="1", batch_size=16)
    def picky(x: pa.Array) -> pa.Array:
        if 52 in x.to_pylist():
            raise ValueError("odd one: 52")
        return x

    table = db.create_table("t", numbers(64))
    table.add_columns({"y": picky})
    with pytest.raises(errors.JobFailed, match=r"rows \d+ to \d+ of fragment 0: ValueError: odd one: 52"):
        table.backfill("y", progress=False)
    (error,) = table.get_errors(job_id=db.jobs()[0].job_id)
    assert error.error_message.startswith("odd one: 52\nThis is the first of ")
    assert error.error_message.endswith("Any of them may be the cause.")


def test_a_function_that_cannot_be_loaded(db):
    @leman.udf(data_type=pa.int64(), name="broken", version="1")
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no model here")

        def __call__(self, x: int) -> int:
            return x

    table = db.create_table("t", numbers(20))
    table.add_columns({"y": Broken})
    with pytest.raises(leman.JobFailed, match="could not be set up on a worker: RuntimeError: no model here"):
        table.backfill("y")


class _OfAnotherPackage:
    def __reduce__(self):
        return __import__, ("a_package_that_workers_lack",)


def test_a_function_that_could_not_be_unpickled_is_mended_under_its_version(db):
    def double(x: int) -> int:
        return 2 * x

    table = db.create_table("t", numbers(20))
    double.__annotations__["x"] = _OfAnotherPackage()
    broken = leman.udf(double)
    table.add_columns({"y": broken})
    with pytest.raises(leman.JobFailed, match=r"could not be set up on a worker.*a_package_that_workers_lack"):
        table.backfill("y")
    double.__annotations__["x"] = int
    mended = leman.udf(double)
    assert mended.version == broken.version
    table.add_columns({"y": mended}, on_change="update")
    table.backfill("y")
    assert table.to_arrow(["y"])["y"].to_pylist() == [2 * x for x in table.to_arrow(["x"])["x"].to_pylist()]


@functools.cache
def cached(x):
    return x if x < 1 else 1 + cached(x - 1)


class Weighed:
    @functools.cached_property
    def weight(self):
        return 3

    @functools.lru_cache  # noqa: B019 - what people write
    def times(self, x):
        return x * self.weight


def test_helpers_with_a_cache_run_on_workers(db):
    @leman.udf
    def f(x: int) -> int:
        return Weighed().times(cached(x))

    table = db.create_table("t", numbers(20))
    table.add_columns({"y": f})
    table.backfill("y")
    assert table.to_arrow(["y"])["y"].to_pylist() == [3 * x for x in table.to_arrow(["x"])["x"].to_pylist()]


def test_a_table_deleted_while_a_job_runs(db, tmp_path: Path):
    call_log = CallLog(tmp_path)
    table = db.create_table("t", numbers(3000))
    table.add_columns({"y": call_log.double(seconds=0.01)})
    future = table.backfill_async("y", checkpoint_size=50)
    for job, _ in future.watch(timeout=60):
        if job.progress.rows_evaluated:
            shutil.rmtree(table.uri, ignore_errors=True)
    with pytest.raises(leman.JobFailed) as caught:
        future.result(timeout=60)
    assert caught.value.reason in {"TABLE_NOT_FOUND", "NO_PROGRESS"}
    assert not Path(table.uri).exists(), "what its workers have stored since then goes with the job"


def test_a_table_replaced_while_a_job_runs(db, tmp_path: Path):
    call_log = CallLog(tmp_path)
    table = db.create_table("t", numbers(600))
    table.add_columns({"y": call_log.double(seconds=0.01)})
    future = table.backfill_async("y", concurrency=2)
    for job, _ in future.watch(timeout=60):
        if job.progress.rows_evaluated and len(call_log.seen()) < 500:
            shutil.rmtree(table.uri)
            db.create_table("t", numbers(600, start=5000))
            break
    with pytest.raises(leman.JobFailed):
        future.result(timeout=60)
    assert "y" not in db.open_table("t").schema.names


def test_same_request_id(db, system):
    import grpc

    from leman.v1 import catalog_pb2, jobs_pb2, jobs_pb2_grpc, planner_pb2

    table = db.create_table("t", numbers(10))
    table.add_columns({"y": same})
    database = str(Path(table.uri).parent)
    service = system.service
    spec = planner_pb2.BackfillSpec(table=catalog_pb2.TableRef(database=database, table="t"), column="y")
    metadata = [("authorization", f"Bearer {service['token']}")]
    with grpc.insecure_channel(str(service["executor"])) as channel:
        stub = jobs_pb2_grpc.JobServiceStub(channel)
        request = jobs_pb2.CreateJobRequest(backfill=spec, request_id="r-1")
        first = stub.CreateJob(request, metadata=metadata).job
        assert stub.CreateJob(request, metadata=metadata).job.job_id == first.job_id
        request.backfill.where = "x > 3"
        with pytest.raises(grpc.RpcError) as caught:
            stub.CreateJob(request, metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
