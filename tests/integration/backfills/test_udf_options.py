"""Each option of `leman.udf` by its effect, through SDK, services and Spark. `timeout` and `error_handling` have tests
of their own, `version` too."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from pathlib import Path

import lance
import psutil
import pyarrow as pa
import pytest

import leman
from leman import ErrorHandlingConfig, JobState, Skip, errors
from tests.integration.call_log import numbers, values

pytestmark = pytest.mark.spark

CORES = os.cpu_count() or 1
SKIP = ErrorHandlingConfig(on_error=[Skip()])


def spans(folder: Path, **options: object) -> leman.UDF:
    """x → x, slowly; writes down when it begins and ends."""
    path = folder / "spans.txt"

    def slow(x: int) -> int:
        import time

        begun = time.monotonic()
        time.sleep(0.01)
        with path.open("a") as log:
            log.write(f"{begun} {time.monotonic()}\n")
        return x

    return leman.udf(data_type=pa.int64(), name="slow", version="1", **options)(slow)


def most_at_once(folder: Path) -> int:
    lines = [line.split() for line in (folder / "spans.txt").read_text().splitlines()]
    changes = sorted([(float(a), 1) for a, _ in lines] + [(float(b), -1) for _, b in lines])
    running = [sum(change for _, change in changes[: n + 1]) for n in range(len(changes))]
    return max(running)


@pytest.mark.parametrize(
    "options",
    [{"num_cpus": CORES}, {"memory": psutil.virtual_memory().total * 2 // 3}],
    ids=lambda options: next(iter(options)),
)
def test_resources_bound_the_workers_of_one_machine(db, tmp_path, options):
    table = db.create_table("t", numbers(40), max_rows_per_file=5)
    table.add_columns({"y": spans(tmp_path, **options)})
    future = table.backfill_async("y", concurrency=4)
    future.result()
    assert most_at_once(tmp_path) == 1
    told = [event.message for event in future.events() if event.kind == "resources"]
    assert len(told) == 1
    assert "at most 1 workers at once" in told[0]
    assert values(table, "y") == {x: x for x in range(40)}


def test_without_resources_workers_run_together(db, tmp_path):
    table = db.create_table("t", numbers(80), max_rows_per_file=5)
    table.add_columns({"y": spans(tmp_path)})
    future = table.backfill_async("y", concurrency=4)
    future.result()
    assert most_at_once(tmp_path) > 1
    assert not [event for event in future.events() if event.kind == "resources"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpus": 1}, "num_gpus=1: Spark runs in local mode.*LEMAN_SPARK__MASTER"),
        ({"num_cpus": CORES + 1}, f"num_cpus={CORES + 1}: the machine has"),
        ({"memory": "900t"}, "memory=.*the machine has"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_what_the_machine_does_not_have_is_refused(db, tmp_path, options, message):
    table = db.create_table("t", numbers(3))
    table.add_columns({"y": spans(tmp_path, **options)})
    with pytest.raises(errors.ResourcesNotAvailable, match=message):
        table.backfill("y")
    assert not db.jobs("t"), "it did not start"
    assert db.udf("slow@1").options == {k: v for k, v in options.items() if k != "memory"} | (
        {"memory": 900 << 40} if "memory" in options else {}
    )
    table.backfill("y", udf=spans(tmp_path))
    assert values(table, "y") == {0: 0, 1: 1, 2: 2}, "the options of a version may change"


def test_input_columns_and_name(db):
    @leman.udf(data_type=pa.int64(), name="difference", input_columns=["b", "a"])
    def minus(one: int, other: int) -> int:
        return one - other

    table = db.create_table("t", {"a": [1, 2, 3], "b": [10, 20, 30], "c": [5, 5, 5]})
    table.add_columns({"y": minus, "z": (minus, ["c", "b"])})
    table.backfill("y")
    table.backfill("z")
    assert table.to_arrow()["y"].to_pylist() == [9, 18, 27]
    assert table.to_arrow()["z"].to_pylist() == [-5, -15, -25]
    assert [u.name for u in db.udfs()] == ["difference"]


def test_blob(db):
    @leman.udf(blob=True)
    def letters(x: int) -> bytes | None:
        return b"x" * x if x else None

    @leman.udf
    def size(b: bytes) -> int:
        return -1 if b is None else len(b)

    table = db.create_table("t", {"x": [3, 0, 200_000, 1]}, max_rows_per_file=2)
    table.add_columns({"b": letters})
    table.add_columns({"n": size})
    table.backfill("b")
    dataset = lance.dataset(table.uri)
    blobs = dataset.take_blobs("b", indices=range(4))
    assert [None if b is None else b.read() for b in blobs] == [b"xxx", None, b"x" * 200_000, b"x"]
    table.backfill("n")
    assert table.to_arrow(["n"])["n"].to_pylist() == [3, -1, 200_000, 1]
    assert db.udf("letters").options == {"blob": True}


def test_a_type_that_is_not_stored(db):
    @leman.udf(data_type=pa.list_view(pa.int8()))
    def views(x: int) -> list[int]:
        return [x]

    table = db.create_table("t", numbers(3))
    with pytest.raises(errors.TypeNotStorable, match=r"list_view.*Use pa\.list_"):
        table.add_columns({"y": views})
    assert "y" not in table.schema.names


def wrong(kind: pa.DataType, good: object, bad: object) -> leman.UDF:
    @leman.udf(data_type=kind, name="wrong", error_handling=SKIP)
    def give(x: int) -> object:
        return bad if x % 2 else good

    return give


@pytest.mark.parametrize(
    ("kind", "good", "bad", "message"),
    [
        (pa.int8(), 1, 300, "300"),
        (pa.int64(), 1, "1", "'1'"),
        (pa.int32(), 2, 1.5, "1.5 is not a whole number"),
        (pa.list_(pa.float32(), 2), [1.0, 2.0], [1.0], "Length of item not correct"),
        (pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1), "no time zone"),
        (pa.struct([("a", pa.int64())]), {"a": 1}, {"z": 1}, "no field z"),
        (pa.int16(), 1, Decimal("1.5"), "not a whole number"),
        (pa.json_(), '{"a":1}', "{not json", "property name"),
    ],
    ids=lambda v: str(v) if isinstance(v, pa.DataType) else "",
)
def test_a_value_that_is_not_of_the_type_is_a_failed_row(db, kind, good, bad, message):
    table = db.create_table("t", numbers(4))
    table.add_columns({"y": wrong(kind, good, bad)})
    job = db.job(table.backfill("y"))
    assert job.state is JobState.DONE_WITH_ERRORS
    assert values(table, "y") == {0: good, 1: None, 2: good, 3: None}
    failed = table.get_errors(job_id=job.job_id)
    assert [e.row_address for e in failed] == [1, 3]
    assert {e.error_type for e in failed} == {"OutputError"}
    assert all(message in e.error_message and f"output type is {kind}" in e.error_message for e in failed)


def test_errors_are_not_stored_where_that_is_not_wanted(db):
    quiet = leman.ErrorHandlingConfig(store_errors=False, on_error=[leman.Skip(ValueError)])

    @leman.udf(error_handling=quiet, name="quiet")
    def skipping(x: int) -> int:
        if x == 7:
            raise ValueError("not told")
        return x

    @leman.udf(error_handling=quiet, name="ending")
    def ending(x: int) -> int:
        if x == 8:
            raise KeyError("told")
        return skipping.func(x)

    table = db.create_table("quiet", pa.table({"x": range(20)}), max_rows_per_file=10)
    table.add_columns({"skipped": skipping, "ended": ending})
    job_id = table.backfill("skipped", progress=False)
    assert table.get_errors(job_id=job_id) == []
    assert table.get_failed_row_addresses(column_name="skipped") == [7]
    assert table.get_failed_row_addresses(job_id=job_id) == [7]

    with pytest.raises(leman.JobFailed) as caught:
        table.backfill("ended", progress=False)
    assert [error.offset for error in table.get_errors(job_id=caught.value.job_id)] == [8]


def test_a_function_larger_than_a_message_computes(db):
    """Random data is what does not get smaller on its way."""
    known = os.urandom(40 << 20)

    def at(x: int) -> int:
        return known[x]

    table = db.create_table("t", numbers(20))
    table.add_columns({"y": leman.udf(data_type=pa.int64(), version="1")(at)})
    table.backfill("y", progress=False)
    assert values(table, "y") == {x: known[x] for x in range(20)}
    (bundle,) = Path(db.uri, "_leman", "udfs").glob("*.bundle")
    assert bundle.stat().st_size > len(known)
