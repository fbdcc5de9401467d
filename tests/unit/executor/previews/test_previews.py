"""Functions of all kinds are tried on rows, in processes of their own; nothing that they do harms anyone who asks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import lance
import psutil
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration

import leman
from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, RemoteFunction, UdfKind
from leman.functions import FunctionServer
from leman.v1 import jobs_pb2
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from leman_executor.api.convert_jobs import preview_from_proto
from leman_executor.jobs import function_previews
from leman_executor.jobs.function_previews import PreviewPool, PreviewRecord, check_sent_code
from tests.unit.executor.previews.preview_helpers import Trial

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux's")
Row = jobs_pb2.PreviewRow
SKIP = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
ROWS = pa.table({"n": list(range(10)), "t": [f"text {n}" for n in range(10)]})


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def trial(tmp_path_factory, loop):
    made = Trial(tmp_path_factory.mktemp("previews"), ROWS)
    yield made
    loop.run(made.pool.stop())


@pytest.fixture
def preview(trial, loop):
    def run(*args: Any, **fields: Any) -> jobs_pb2.PreviewFunctionResponse:
        return loop.run(trial.preview(*args, **fields))

    return run


def outputs(answer: jobs_pb2.PreviewFunctionResponse) -> list[Any]:
    with pa.ipc.open_stream(answer.values) as reader:
        return list(reader.read_all().column(-1).to_pylist())


def states(answer: jobs_pb2.PreviewFunctionResponse) -> list[str]:
    return [Row.State.Name(row.state).removeprefix("STATE_") for row in answer.rows]


def test_rows_have_their_inputs_outputs_times_and_places(preview):
    answer = preview(lambda n, t: n * len(t), ("n", "t"))
    assert states(answer) == ["COMPUTED"] * 5
    assert outputs(answer) == [0, 6, 12, 18, 24]
    assert [tuple(row.inputs) for row in answer.rows[:2]] == [("0", '"text 0"'), ("1", '"text 1"')]
    assert [row.output for row in answer.rows] == ["0", "6", "12", "18", "24"]
    assert [row.row_address for row in answer.rows] == [0, 1, 2, 1 << 32, 1 << 32 | 1]
    assert [row.row_id for row in answer.rows] == [0, 1, 2, 3, 4]
    assert all(row.elapsed.ToNanoseconds() > 0 for row in answer.rows)
    assert not answer.fails
    assert not answer.timed_out


def test_the_whole_table_is_projected_on_all_workers(preview):
    answer = preview(lambda n: __import__("time").sleep(0.02) or n)
    projected = answer.projection
    assert (projected.rows_to_compute, projected.workers) == (4000, 2)
    cost = projected.duration_per_row.ToTimedelta().total_seconds()
    assert 0.02 <= cost < 0.2
    assert projected.expected_duration.ToTimedelta().total_seconds() == pytest.approx(4000 * cost / 2, rel=0.01)


def test_a_filter_chooses_the_rows(preview):
    answer = preview(lambda n: n, where="n % 4 = 3", rows=2)
    assert outputs(answer) == [3, 7]
    assert not preview(lambda n: n, where="n > 100").rows


def test_a_failing_row_is_shown_with_its_traceback_and_the_others_go_on(preview):
    def picky(n):
        if n == 1:
            raise ValueError("not one")
        return n

    answer = preview(picky, rows=3)
    assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED"]
    error = answer.rows[1].error
    assert (error.error_type, error.message, error.attempts) == ("ValueError", "not one", 1)
    assert "in picky" in error.traceback
    assert answer.fails
    skipped = preview(picky, rows=3, udf={"error_policy": SKIP})
    assert states(skipped) == ["COMPUTED", "FAILED", "COMPUTED"]
    assert not skipped.fails


def test_a_value_of_another_type_is_an_error_as_in_a_job(preview):
    answer = preview(lambda n: "word" if n == 2 else n, rows=3)
    assert states(answer) == ["COMPUTED", "COMPUTED", "FAILS"]
    assert answer.rows[2].error.error_type == "OutputError"


@pytest.mark.parametrize("kind", [UdfKind.ARRAY, UdfKind.RECORD_BATCH])
def test_functions_of_batches_get_batches(preview, kind):
    def whole(given):
        import pyarrow.compute as pc

        return pc.add(given.column(0) if isinstance(given, pa.RecordBatch) else given, len(given))

    answer = preview(whole, udf={"kind": kind, "batch_size": 2})
    assert outputs(answer) == [2, 3, 3, 5, 6]  # fragments of three rows: batches of 2, 1 and 2


def test_in_a_batch_that_raises_the_rows_to_blame_are_found(preview):
    def whole(given):
        if 1 in given.to_pylist():
            raise ValueError("one is among them")
        return given

    answer = preview(whole, udf={"kind": UdfKind.ARRAY}, rows=3)
    assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED"]
    assert outputs(answer) == [0, None, 2]


def test_expressions_are_evaluated_and_timed(preview):
    answer = preview(None, udf={"kind": UdfKind.SQL, "sql_expression": "n * 2", "bundle_sha256": ""})
    assert outputs(answer) == [0, 2, 4, 6, 8]
    assert answer.projection.HasField("expected_duration")


def test_a_remote_function_is_asked_of_its_server_for_as_long_as_there_is_time(preview):
    @leman.udf(version="1", data_type=pa.int64())
    def twice(n: int) -> int:
        if n == 1:
            raise ValueError("not one")
        return 2 * n

    with FunctionServer([twice], port=0) as server:
        remote = RemoteFunction((f"grpc://127.0.0.1:{server.port}",), "twice")
        fields = {"kind": UdfKind.REMOTE, "remote": remote, "input_types": (pa.int64(),)}
        answer = preview(None, udf={**fields, "bundle_sha256": "", "bundle_python": ""}, rows=3)
        assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED"]
        assert outputs(answer) == [0, None, 4]
        assert "not one" in str(answer.rows[1].error)
    gone = preview(None, udf={**fields, "bundle_sha256": "", "bundle_python": ""}, rows=3, timeout=Duration(seconds=5))
    assert (states(gone), gone.timed_out) == (["UNFINISHED"] * 3, True)


def test_an_entrypoint_needs_no_bundle(preview):
    answer = preview(None, ("t",), udf={"entrypoint": "builtins:len", "bundle_sha256": "", "bundle_python": ""}, rows=1)
    assert outputs(answer) == [6]


def test_a_row_that_ends_the_process_is_told_and_the_next_ones_are_tried(preview):
    answer = preview(lambda n: os._exit(7) if n == 1 else n, rows=4)
    assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED", "COMPUTED"]
    error = answer.rows[1].error
    assert error.error_type == "WorkerLost"
    assert "ended with code 7" in error.message
    assert outputs(answer) == [0, None, 2, 3]


@pytest.mark.parametrize("nonsense", [b"\0\0\0\2{}", b'\0\0\0\3"\xff"', b"\xff\xff\xff\xffendless"])
def test_a_row_that_sends_nonsense_to_the_executor_is_told_and_the_next_ones_are_tried(preview, nonsense):
    def sends(n):
        import contextlib
        import socket

        for descriptor in range(3, 64) if n == 1 else ():
            with contextlib.suppress(OSError):
                held = socket.socket(fileno=os.dup(descriptor))
                held.type == socket.SOCK_STREAM and held.sendall(nonsense)
        return n

    answer = preview(sends, rows=3)
    assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED"]
    assert "sent an invalid message" in answer.rows[1].error.message


def test_of_a_batch_that_ends_the_process_the_row_is_found(preview):
    def whole(given):
        if 1 in given.to_pylist():
            os.abort()
        return given

    answer = preview(whole, udf={"kind": UdfKind.ARRAY, "error_policy": SKIP}, rows=3)
    assert states(answer) == ["COMPUTED", "FAILED", "COMPUTED"]


def test_a_call_over_the_functions_timeout_is_told(preview):
    answer = preview(lambda n: __import__("time").sleep(600) if n == 1 else n, rows=3, udf={"timeout_seconds": 0.2})
    assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED"]
    assert answer.rows[1].error.error_type == "UdfTimeout"


def test_a_function_that_hangs_is_ended_with_the_preview(preview):
    answer = preview(lambda n: __import__("time").sleep(600) if n == 1 else n, rows=3, timeout=Duration(seconds=2))
    assert states(answer) == ["COMPUTED", "UNFINISHED", "UNFINISHED"]
    assert answer.timed_out
    assert answer.rows[1].elapsed.seconds >= 1
    assert not answer.rows[2].HasField("elapsed")


def test_what_cannot_be_set_up_is_a_typed_error(preview):
    class Raises:
        def __init__(self):
            raise OSError("no model here")

    class Exits:
        def __init__(self):
            os._exit(3)

    class Leaves:
        def __init__(self):
            sys.exit("no licence found")

    class Hangs:
        def __init__(self):
            __import__("time").sleep(600)

    for kind, said in (
        (Raises, "no model here"),
        (Leaves, "SystemExit: no licence found.*raise an exception instead"),
        (Exits, "ended with code 3"),
    ):
        with pytest.raises(FailedPrecondition, match=said) as error:
            preview(kind, udf={"stateful": True})
        assert error.value.reason == "UDF_NOT_LOADABLE"
    with pytest.raises(FailedPrecondition, match="within the 1 s") as error:
        preview(Hangs, udf={"stateful": True}, timeout=Duration(seconds=1))
    assert error.value.reason == "UDF_NOT_LOADABLE"


def test_what_is_printed_is_shown_and_what_is_too_much_is_dropped(preview):
    def chatty(n):
        sys.stdout.write(f"row {n}\n")
        os.write(2, b"from below\n")
        return n

    answer = preview(chatty, rows=2)
    assert answer.printed == "row 0\nfrom below\nrow 1\nfrom below\n"
    assert answer.printed_size_bytes == len(answer.printed)

    def floods(n):
        for _ in range(1 << 6):
            sys.stdout.write("x" * (1 << 16))
        return n

    answer = preview(floods, rows=2)
    assert outputs(answer) == [0, 1]
    assert len(answer.printed) <= 16 << 10 < 1 << 20 < answer.printed_size_bytes


def test_values_that_are_too_large_are_left_out_and_described(preview):
    answer = preview(lambda n: b"x" * (1 << 20), output=pa.binary(), rows=2)
    assert list(answer.columns_left_out) == ["f"]
    assert [row.output for row in answer.rows] == ['"<1,048,576 bytes>"'] * 2
    with pa.ipc.open_stream(answer.values) as reader:
        assert reader.read_all().column_names == ["n"]


def test_nothing_is_written(preview, trial):
    def files() -> list[tuple[str, int]]:
        return sorted((str(p), p.stat().st_size) for p in Path(trial.uri).parent.rglob("*") if p.is_file())

    before, version = files(), lance.dataset(trial.uri).version
    preview(lambda n: n)
    assert files() == before
    assert lance.dataset(trial.uri).version == version


def test_a_caller_who_hangs_up_ends_the_process_and_its_children(trial, loop, tmp_path):
    told = tmp_path / "pids"

    def starts(n):
        import subprocess
        import time

        child = subprocess.Popen(["sleep", "600"])
        told.with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
        told.with_suffix(".new").rename(told)
        time.sleep(600)

    async def leave() -> list[psutil.Process]:
        running = asyncio.ensure_future(trial.preview(starts))
        while not told.exists() and not running.done():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        processes = [psutil.Process(int(pid)) for pid in told.read_text().split()]
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return processes

    _, alive = psutil.wait_procs(loop.run(leave()), timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_modules_beside_the_executor_do_not_get_in_its_way(trial, loop, tmp_path, monkeypatch):
    (tmp_path / "leman_executor").mkdir()
    (tmp_path / "leman_executor" / "__init__.py").write_text("raise ImportError('another executor')")
    monkeypatch.chdir(tmp_path)
    loop.run(trial.pool.stop())
    assert outputs(loop.run(trial.preview(lambda n: n, rows=1))) == [0]


def test_code_that_has_changed_is_imported_anew(trial, loop, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    loop.run(trial.pool.stop())
    udf = {"entrypoint": "being_written:score", "bundle_sha256": "", "bundle_python": ""}
    for factor in (2, 30):
        (tmp_path / "being_written.py").write_text(f"def score(n):\n    return n * {factor}\n")
        assert outputs(loop.run(trial.preview(None, udf=udf, rows=2))) == [0, factor]


def test_functions_have_the_environment_of_sparks_workers_and_no_way_to_its_jvm(trial, loop, monkeypatch):
    for name in ("PYSPARK_GATEWAY_SECRET", "PYSPARK_GATEWAY_PORT", "_LEMAN_WARM_PROCESS"):
        monkeypatch.setenv(name, "1")
    loop.run(trial.pool.stop())
    names = ["PYTHONHASHSEED", "OMP_NUM_THREADS", "MODEL"]

    def told(_n):
        hidden = sorted(name for name in os.environ if name.startswith(("PYSPARK_GATEWAY", "_LEMAN")))
        return [*(os.environ.get(name, "") for name in names), *hidden]

    said = outputs(loop.run(trial.preview(told, output=pa.list_(pa.string()), rows=2)))
    assert said[0] == ["0", "1", "small"]


def test_a_pool_that_takes_nothing_more_is_left_to_those_that_it_serves(preview, trial, monkeypatch):
    assert outputs(preview(lambda n: n, rows=1)) == [0]
    pid = trial.pool._process.pid
    busy, unread = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    busy.setblocking(False)
    asked = []

    def ask_for_many() -> None:
        for _ in range(1 << 12):
            asked.append(trial.pool._ask("preview-none"))

    with busy, unread, monkeypatch.context() as patch:
        patch.setattr(trial.pool, "_requests", busy)
        with pytest.raises(ResourceExhausted) as error:
            ask_for_many()
        for connection in asked:
            connection.close()
    assert error.value.reason == "TOO_MANY_CALLS"
    assert outputs(preview(lambda n: n, rows=1)) == [0]
    assert trial.pool._process.pid == pid


def test_a_function_that_kills_the_pool_has_its_row_lost_and_the_next_ones_are_tried(preview):
    answer = preview(lambda n: os.kill(os.getppid(), 9) or __import__("time").sleep(60) if n == 1 else n, rows=3)
    assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED"]
    assert answer.rows[1].error.error_type == "WorkerLost"


def test_a_pool_that_is_stopped_is_replaced(preview, trial):
    preview(lambda n: n, rows=1)
    stopped = psutil.Process(trial.pool._process.pid)
    assert outputs(preview(lambda n: os.kill(os.getppid(), 19) or n, rows=1)) == [0]
    below = [stopped, *stopped.children(recursive=True)]
    assert outputs(preview(lambda n: n, rows=1)) == [0]
    assert trial.pool._process.pid != stopped.pid
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_a_preview_whose_pool_is_stopped_goes_on_by_another_one(preview):
    """The row that ends its process while the pool is stopped, which notices no end, is reported before the time is
    over."""

    def stops(n):
        if n == 1:
            os.kill(os.getppid(), 19)
            os._exit(1)
        return n

    answer = preview(stops, rows=3, timeout=Duration(seconds=60))
    assert states(answer) == ["COMPUTED", "FAILS", "COMPUTED"]
    assert answer.rows[1].error.error_type == "WorkerLost"
    assert not answer.timed_out


def test_a_pool_that_died_is_replaced(preview, trial):
    assert outputs(preview(lambda n: n, rows=1)) == [0]
    trial.pool._process.kill()
    trial.pool._process.wait()
    assert outputs(preview(lambda n: n, rows=1)) == [0]


@pytest.mark.parametrize(
    "asked",
    [
        {"rows": 0},
        {"rows": 101},
        {"rows": -1},
        {"timeout": Duration()},
        {"timeout": Duration(seconds=601)},
        {"concurrency": 0},
        {"concurrency": 10_001},
    ],
)
def test_what_is_out_of_bounds_is_refused(preview, asked):
    with pytest.raises(InvalidArgument) as error:
        preview(lambda n: n, **asked)
    assert error.value.reason == "BAD_NUMBER"


def test_variables_are_those_of_one_preview_and_in_no_error_of_it(preview):
    def keyed(n):
        key = os.environ.get("API_KEY")
        if n == 2:
            raise ValueError(f"refused: {key}")
        return n if key == "a-canary-of-the-environment" else -1

    answer = preview(keyed, rows=3, env={"API_KEY": "a-canary-of-the-environment"})
    assert outputs(answer)[:2] == [0, 1]
    assert answer.rows[2].error.message == "refused: ***"
    assert b"canary" not in answer.rows[2].error.traceback.encode()
    assert outputs(preview(keyed, rows=2)) == [-1, -1]


def test_an_expression_refuses_variables(preview):
    with pytest.raises(FailedPrecondition) as caught:
        preview(None, udf={"kind": UdfKind.SQL, "sql_expression": "n + 1"}, env={"API_KEY": "x"})
    assert caught.value.reason == "ENV_NOT_USABLE"


def test_a_bundle_needs_its_definition_and_has_a_bound():
    with pytest.raises(InvalidArgument, match="a bundle needs a definition with its digest") as refused:
        preview_from_proto(jobs_pb2.PreviewFunctionRequest(bundle=b"code"))
    assert (refused.value.reason, refused.value.field) == ("BAD_REQUEST", "bundle")
    asked = jobs_pb2.PreviewFunctionRequest(bundle=b"code")
    asked.definition.python_bundle.sha256 = "0" * 64
    request = preview_from_proto(asked)
    check_sent_code(request, FunctionPolicy(max_bundle_bytes=4))
    with pytest.raises(InvalidArgument, match="The bundle has 4 bytes, 3 are allowed") as refused:
        check_sent_code(request, FunctionPolicy(max_bundle_bytes=3))
    assert refused.value.reason == "BUNDLE_TOO_LARGE"


def test_previews_beyond_the_bound_are_refused(preview, monkeypatch):
    assert outputs(preview(lambda n: n, rows=1)) == [0]
    monkeypatch.setattr(function_previews, "_MOST_AT_ONCE", 0)
    with pytest.raises(ResourceExhausted, match="previews are running, as many as are allowed: try again") as refused:
        preview(lambda n: n, rows=1)
    assert refused.value.reason == "TOO_MANY_CALLS"


def test_a_python_that_runs_no_pool_is_told(loop):
    pool = PreviewPool(python="/bin/false", variables={})

    async def connect() -> None:
        reader, writer = await pool._connect("preview-1")
        try:
            await pool._next(reader)
        finally:
            writer.close()

    with pytest.raises(FailedPrecondition, match="cannot run function processes") as refused:
        loop.run(connect())
    assert refused.value.reason == "WORKER_PYTHON_UNUSABLE"


def test_a_process_that_ends_before_it_has_rows_is_no_fault_of_a_row():
    record = PreviewRecord.__new__(PreviewRecord)
    record._calling, record.printed_bytes, record.found, record.set_up_seconds = None, 0, None, None
    with pytest.raises(FailedPrecondition, match="it ended while it computed no row") as refused:
        record.process_ended("it ended")
    assert refused.value.reason == "WORKER_LOST"
