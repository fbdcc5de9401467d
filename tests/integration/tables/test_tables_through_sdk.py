"""The SDK of a caller whose rows go through the services, as they do where pylance is not installed."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import lance
import pyarrow as pa
import pytest

import leman
from leman import local
from leman._wire.channel import RetryBudget
from leman._wire.row_transfer import ipc_stream
from leman.v1 import tables_pb2


@pytest.fixture
def far(system, tmp_path, monkeypatch):
    """A database of a process that has no pylance."""
    monkeypatch.setattr(local, "_lance", partial(pytest.fail, "pylance was used"))
    monkeypatch.setattr(local, "is_available", lambda: False)
    service = system.service
    with leman.connect(tmp_path, endpoint=str(service["executor"]), token=str(service["token"])) as database:
        yield database


def test_a_table_is_made_filled_read_emptied_renamed_and_dropped(far):
    table = far.create_table("t", {"id": list(range(10)), "s": [f"s{i}" for i in range(10)]}, max_rows_per_file=4)
    table.add([{"id": 10, "s": "s10"}, {"id": 11}])
    table.add(pa.table({"id": pa.array([12], pa.int8())}))

    assert table.describe().fragment_count == 5
    assert table.to_arrow().column("id").to_pylist() == [*range(13)]
    assert table.to_arrow(["s"], "id >= 9", limit=2, offset=1).to_pydict() == {"s": ["s10", None]}
    assert table.to_arrow(version=table.version - 1).num_rows == 12
    assert max(len(batch) for batch in table.to_batches(batch_size=3)) <= 3
    assert table.delete("id % 2 = 0") == 7
    renamed = far.rename_table("t", "u")
    assert renamed.to_arrow(["id"]).column("id").to_pylist() == [1, 3, 5, 7, 9, 11]
    assert far.table_names() == ["u"]
    far.drop_table("u")
    assert far.table_names() == []


def test_reads_without_columns_count_rows_and_threads_share_a_connection(far):
    tables = [
        far.create_table(f"t{at}", {"id": list(range(100 * at, 100 * at + 30 + at))}, max_rows_per_file=10)
        for at in range(3)
    ]
    assert tables[0].to_arrow([]).num_rows == 30
    assert tables[0].to_arrow([], "id > 10").num_rows == 19
    assert sum(batch.num_rows for batch in tables[0].to_batches([])) == 30

    def read(turn: int) -> bool:
        at = turn % 3
        return tables[at].to_arrow()["id"].to_pylist() == list(range(100 * at, 100 * at + 30 + at))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(24)))


#: What a program does that forks after it has connected and read: each way ends with all rows.
FORKS = """
import multiprocessing, os, sys, warnings
from concurrent.futures import ProcessPoolExecutor
import leman
from leman import local

if sys.argv[5] == "far":
    local.is_available = lambda: False
warnings.filterwarnings("ignore", category=UserWarning)
table = leman.connect(sys.argv[1], endpoint=sys.argv[2], token=sys.argv[3]).open_table("t")
rows = lambda: sum(table.to_arrow()["id"].to_pylist())

def ends(connection):
    connection.send(rows())

def own(_):
    with leman.connect(*sys.argv[1:2], endpoint=sys.argv[2], token=sys.argv[3]) as database:
        return sum(database.open_table("t").to_arrow()["id"].to_pylist())

assert rows() == 45
fork = multiprocessing.get_context("fork")
way = sys.argv[4]
if way == "os.fork":
    child = os.fork()
    if child == 0:
        os._exit(rows())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
elif way == "Process":
    here, there = fork.Pipe()
    process = fork.Process(target=ends, args=(there,))
    process.start()
    print(here.recv())
    process.join()
else:
    with ProcessPoolExecutor(1, fork) as pool:
        print(*pool.map(own, range(1)))
print(rows())
"""


@pytest.mark.long
@pytest.mark.parametrize("where", ["near", "far"])
@pytest.mark.parametrize("way", ["os.fork", "Process", "a pool whose children connect"])
def test_a_child_that_is_forked_after_a_connection_reads_all_rows(far, system, tmp_path, way, where):
    far.create_table("t", {"id": list(range(10))})
    service = system.service
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path), str(service["executor"]), str(service["token"]), way, where],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["45", "45"]), ended.stderr


def test_columns_that_no_function_computes_come_go_and_get_other_names(far):
    table = far.create_table("t", {"id": [1, 2], "s": ["a", "b"]})
    table.add_columns({"up": "upper(s)"})
    table.add_plain_columns(pa.schema([("n", pa.int8())]))
    with pytest.raises(leman.errors.LemanError) as caught:
        table.add_plain_columns(pa.schema([("n", pa.int8())]))
    assert caught.value.reason == "COLUMN_EXISTS"
    with pytest.raises(leman.errors.FailedPrecondition) as caught:
        table.drop_columns(["s"])
    assert (caught.value.reason, caught.value.facts["columns"]) == ("COLUMN_IN_USE", "up")
    table.rename_column("s", "text")
    table.add([{"id": 3, "text": "c"}])
    with pytest.raises(leman.errors.ColumnNotFound):
        table.drop_columns(["nope"])
    table.drop_columns(["up", "n"])
    assert table.to_arrow().to_pydict() == {"id": [1, 2, 3], "text": ["a", "b", "c"]}


def test_rows_stand_in_line_where_too_many_calls_send_some(far, monkeypatch):
    table = far.create_table("t", {"id": [0]})
    refused, room = threading.Event(), threading.Event()
    pause = RetryBudget.pause

    def told(self: RetryBudget, at_least: float = 0.0) -> bool:
        refused.set()
        return pause(self, at_least)

    def held():
        header = tables_pb2.AppendRowsHeader(table=table.ref(), request_id=uuid.uuid4().hex)
        yield tables_pb2.AppendRowsRequest(header=header)
        room.wait(60)
        yield tables_pb2.AppendRowsRequest(arrow_ipc=ipc_stream(pa.table({"id": [1]})))

    with ThreadPoolExecutor(16) as threads:
        holding = []
        while len(holding) < 64 and not any(call.done() for call in holding):  # until one finds no place
            holding.append(threads.submit(far.stubs.tables.AppendRows, held()))
            wait(holding, timeout=0.2, return_when="FIRST_COMPLETED")
        monkeypatch.setattr(RetryBudget, "pause", told)
        added = [threads.submit(table.add, [{"id": 2}]) for _ in range(4)]
        assert refused.wait(30)
        room.set()
        assert [call.result(60) for call in added] == [None] * 4
    codes = [call.exception() for call in holding if call.exception() is not None]
    assert {failed.reason for failed in codes} == {"TOO_MANY_UPLOADS"}
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, *[1] * (len(holding) - len(codes)), *[2] * 4]


def test_a_column_is_given_another_type(far):
    table = far.create_table("t", {"id": [1, 300], "s": ["a", "b"], "l": [[1], [2]]})
    table.retype_column("id", pa.int32())
    table.retype_column("s", pa.large_string())
    table.retype_column("l", pa.large_list(pa.int64()))
    schema = table.describe().schema
    assert (schema.field("id").type, schema.field("s").type) == (pa.int32(), pa.large_string())
    assert pa.types.is_large_list(schema.field("l").type)
    assert table.to_arrow().to_pydict() == {"id": [1, 300], "s": ["a", "b"], "l": [[1], [2]]}
    with pytest.raises(leman.errors.FailedPrecondition) as refused:
        table.retype_column("id", pa.int8())
    assert refused.value.reason == "COMMIT_REFUSED"
    with pytest.raises(leman.errors.InvalidArgument, match="a column cannot be cast to date32"):
        table.retype_column("id", pa.date32())
    with pytest.raises(leman.errors.InvalidArgument, match="data_type is a pyarrow type"):
        table.retype_column("id", "int32")


def test_what_was_committed_is_told_newest_first(far):
    table = far.create_table("t", {"id": [1, 2, 3]})
    table.add([{"id": 4}])
    table.delete("id = 1")
    told = table.commits()
    assert [commit.version for commit in told] == sorted((commit.version for commit in told), reverse=True)
    assert [commit.operation for commit in told[:2]] == ["DeleteRows", "AppendRows"]
    assert all(len(commit.request_ids) == 1 and not commit.job_ids for commit in told[:2])
    assert table.commits(limit=1) == told[:1]
    assert table.commits(limit=0) == []


def test_what_is_wrong_has_the_errors_that_it_has_with_pylance(far):
    table = far.create_table("t", {"id": [1]})
    with pytest.raises(leman.errors.TableExists):
        far.create_table("t", {"id": [1]})
    with pytest.raises(leman.errors.NotSupported, match="drop_table"):
        far.create_table("t", {"id": [1]}, mode="overwrite")
    with pytest.raises(leman.errors.ColumnNotFound):
        table.add({"nope": [1]})
    with pytest.raises(leman.errors.TypeMismatch):
        table.add({"id": ["one"]})
    with pytest.raises(leman.errors.ColumnNotFound):
        table.to_arrow(["nope"])
    with pytest.raises(leman.errors.InvalidArgument):
        table.to_arrow(where="id =")
    with pytest.raises(leman.errors.VersionNotFound):
        table.to_arrow(version=99)
    with pytest.raises(leman.errors.InvalidArgument, match="list of names"):
        table.to_batches("id")
    with pytest.raises(leman.errors.TableNotFound):
        far._table("nope").to_arrow()
    with pytest.raises(leman.errors.TableNotFound):
        far.drop_table("nope")
    assert table.to_arrow().to_pydict() == {"id": [1]}


def test_a_table_whose_rows_cannot_be_added_is_not_there_afterwards(far):
    def failing():
        yield pa.record_batch({"id": [1]})
        raise ZeroDivisionError("the rows end here")

    rows = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), failing())
    with pytest.raises(ZeroDivisionError, match="the rows end here"):
        far.create_table("t", rows)
    assert far.table_names() == []


def test_a_reader_of_rows_is_sent_as_it_comes(far):
    batches = (pa.record_batch({"id": pa.array(range(i * 1000, (i + 1) * 1000))}) for i in range(50))
    table = far.create_table("t", pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches))
    assert table.to_arrow().column("id").to_pylist() == list(range(50_000))


def test_a_view_is_read_like_a_table(far):
    table = far.create_table("t", {"id": list(range(10))})
    view = far.create_materialized_view("v", table.search(None).select({"y": "2 * id"}))
    assert view.to_arrow().num_rows == 0
    view.refresh(progress=False)
    assert sorted(view.to_arrow(where="y > 10").column("y").to_pylist()) == [12, 14, 16, 18]
    assert view.to_batches(limit=3).read_all().column_names == ["y"]
    with pytest.raises(leman.errors.FailedPrecondition) as caught:
        far.drop_table("t")
    assert (caught.value.reason, caught.value.facts["views"]) == ("TABLE_IN_USE", "v")


def test_appends_and_deletes_beside_a_running_backfill_lose_no_value(far, call_log, tmp_path):
    """Rows come and go while the function runs; another backfill computes what came, and nothing else."""
    table = far.create_table("t", {"x": list(range(200))}, max_rows_per_file=20)
    table.add_columns({"y": call_log.double(seconds=0.01)})
    future = table.backfill_async("y")
    begun = threading.Event()
    for _, _events in future.watch(timeout=60):
        if call_log.seen():
            begun.set()
            break
    assert begun.is_set()
    for round_ in range(5):
        table.add({"x": [1000 + round_] * 10})
        table.delete(f"x >= {round_ * 40} AND x < {round_ * 40 + 7}")
    future.result(60)

    table.backfill("y", progress=False)
    found = table.to_arrow()
    expected = [x for x in range(200) if x % 40 >= 7] + [1000 + i for i in range(5) for _ in range(10)]
    assert found.column("x").to_pylist() == expected
    assert found.column("y").to_pylist() == [2 * x for x in expected]
    assert len(call_log.seen()) <= 250, "no row was computed twice"
    lance.dataset(str(tmp_path / "t.lance")).validate()
