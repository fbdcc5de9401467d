"""Database, table and job future against a made-up Leman on real gRPC."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

import leman
from leman import errors
from leman._wire import channel
from leman.v1 import catalog_pb2, jobs_pb2, udf_pb2
from tests.certificates import Authority
from tests.unit.clients.fake_services import FakeLeman, make_job, status


@leman.udf
def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def docs(db):
    return db.open_table("docs")


def test_local_path_is_real_on_the_wire(fake, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with leman.connect(str(tmp_path / "below" / ".." / "link"), fake.address) as database:
        database.table_names()
    assert fake.named("ListTables")[0].database == str((tmp_path / "real").resolve())


def test_uris_stay_as_they_are(fake):
    with leman.connect("s3://bucket/lake/", fake.address) as database:
        assert database.uri == "s3://bucket/lake"


def test_remote_uri_without_endpoint_says_what_to_do():
    with pytest.raises(errors.InvalidArgument, match="endpoint="):
        leman.connect("s3://bucket/lake")


@pytest.mark.parametrize("endpoint", ["localhost", "localhost:", ":1", "localhost:http", "", [], "a:1,", ["a:1", "b"]])
def test_endpoint_is_host_and_port(tmp_path, endpoint):
    with pytest.raises(ValueError, match="host:port"):
        leman.connect(tmp_path, endpoint)


def test_token_and_request_id_travel_with_every_call(tmp_path):
    fake = FakeLeman(token="secret")
    fake.start()
    with leman.connect(tmp_path, fake.address, token="secret") as database:
        database.table_names()
    fake.stop()
    metadata = [m for _, _, m in fake.calls]
    assert {m["authorization"] for m in metadata} == {"Bearer secret"}
    assert len({m["x-request-id"] for m in metadata}) == len(metadata)


def test_wrong_token_is_a_permission_error(tmp_path):
    fake = FakeLeman(token="secret")
    fake.start()
    with pytest.raises(errors.Unauthenticated, match="token") as caught:
        leman.connect(tmp_path, fake.address, token="wrong")
    fake.stop()
    assert isinstance(caught.value, PermissionError)


def test_endpoint_that_nobody_serves(tmp_path, monkeypatch):
    monkeypatch.setattr(channel, "FIRST_CONTACT", 0.2)
    with pytest.raises(errors.Unavailable, match=r"cannot reach .* at 127\.0\.0\.1:1") as caught:
        leman.connect(tmp_path, "127.0.0.1:1")
    assert isinstance(caught.value, ConnectionError)


def test_an_endpoint_of_something_else_is_told_as_such(tmp_path):
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with pytest.raises(errors.NotSupported, match=rf"the server at 127\.0\.0\.1:{port} is not a service of Leman"):
        leman.connect(tmp_path, f"127.0.0.1:{port}")
    other.stop(None)


def test_tls_with_what_speaks_none_is_told_at_once(tmp_path, fake, monkeypatch):
    monkeypatch.setattr(channel, "FIRST_CONTACT", 600.0)
    with pytest.raises(errors.Unavailable, match="does not use TLS: leave tls_ca out"):
        leman.connect(tmp_path / "lake", fake.address, tls_ca=Authority(tmp_path).ca)


def test_calls_outlast_a_restart(fake, db):
    assert db.table_names() == ["docs"]
    address = fake.address
    fake.stop()
    answer: list[list[str]] = []
    caller = threading.Thread(target=lambda: answer.append(db.table_names()))
    caller.start()
    fake.start(address)
    caller.join(30)
    assert answer == [["docs"]]


def test_a_function_server_that_is_left_out_is_a_warning(fake, db):
    schema = pa.schema([("x", pa.int64())]).serialize().to_pybytes()
    known = udf_pb2.UdfDefinition(
        name="far",
        version="1",
        kind=udf_pb2.UdfDefinition.KIND_REMOTE,
        input_columns=["x"],
        input_schema=schema,
        output_schema=schema,
        remote_function=udf_pb2.RemoteFunction(addresses=["grpc://127.0.0.1:9"], function="far"),
    )
    fake.scripts["RegisterUdf"] = catalog_pb2.RegisterUdfResponse(
        definition=known, warnings=["its certificate has ended"]
    )
    with pytest.warns(UserWarning, match="its certificate has ended"):
        assert db.register_remote("far", addresses=["grpc://127.0.0.1:9"]).version == "1"


def test_unavailable_is_given_up_after_patience(fake, db):
    db._services._patience = 0.3
    fake.scripts["ListTables"] = status("UNAVAILABLE", "STORE_UNAVAILABLE", "the store is away")
    with pytest.raises(errors.Unavailable, match="the store is away") as caught:
        db.table_names()
    assert caught.value.reason == "STORE_UNAVAILABLE"
    assert len(fake.named("ListTables")) > 1


def test_a_function_server_that_is_away_is_not_waited_for(fake, db):
    fake.scripts["RegisterUdf"] = status("UNAVAILABLE", "FUNCTION_UNAVAILABLE", "no server at grpc://127.0.0.1:9")
    with pytest.raises(errors.Unavailable, match=r"grpc://127\.0\.0\.1:9"):
        db.register_remote("far", addresses=["grpc://127.0.0.1:9"])
    assert len(fake.named("RegisterUdf")) == 1


def test_job_updates_go_on_behind_the_one_that_was_seen(fake, db):
    def message(sequence, state, *events, missing=False):
        told = [jobs_pb2.JobEvent(sequence=number) for number in events]
        job = make_job("job-1", state)
        return jobs_pb2.WatchJobResponse(sequence=sequence, job=job, events=told, events_missing=missing)

    fake.scripts["WatchJob"] = [message(4, "RUNNING", 3, 4, missing=True), message(9, "DONE", 9)]
    updates = list(db.job_future("job-1").updates(after=2))
    assert fake.named("WatchJob")[0].after_sequence == 2
    assert [(u.sequence, u.events_missing, [e.sequence for e in u.events]) for u in updates] == [
        (4, True, [3, 4]),
        (9, False, [9]),
    ]


def test_a_job_that_had_nothing_to_do_tells_its_end_to_who_asks(fake, docs):
    fake.scripts["CreateJob"] = jobs_pb2.CreateJobResponse(job=make_job("job-1", "DONE"))
    ended = jobs_pb2.WatchJobResponse(sequence=9, job=make_job("job-1", "DONE"))
    ended.events.add(sequence=9)
    fake.scripts["WatchJob"] = [ended]
    future = docs.backfill_async("n")
    assert future.result() == "job-1"
    assert not fake.named("WatchJob"), "its end is known"
    assert [event.sequence for event in future.events()] == [9]


def test_retried_job_keeps_its_request_id(fake, docs):
    answers = iter([grpc.StatusCode.UNAVAILABLE, jobs_pb2.CreateJobResponse(job=make_job("job-1", "DONE"))])
    fake.scripts["CreateJob"] = lambda _: next(answers)
    docs.backfill_async("n")
    first, second = fake.named("CreateJob")
    assert first == second
    assert first.request_id


def test_other_calls_survive_when_the_services_have_moved(fake, tmp_path):
    """One thread watches; another finds out that the services are elsewhere."""
    release = threading.Event()

    def wait():
        release.wait(10)
        return jobs_pb2.WatchJobResponse(sequence=2, job=make_job("job-1", "DONE"))

    running = jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "RUNNING"))
    fake.scripts["WatchJob"] = [running, wait]
    elsewhere = FakeLeman()
    elsewhere.start()
    with leman.connect(tmp_path, fake.address) as database:
        watching = database.job_future("job-1").watch()
        assert next(watching)[0].state == "RUNNING"
        database._services._locator._endpoint = elsewhere.address
        assert database._services.look_again()
        release.set()
        assert [job.state for job, _ in watching] == ["DONE"]
    elsewhere.stop()


def test_named_addresses_are_called_where_they_answer_and_the_endpoint_for_the_others(fake, tmp_path, monkeypatch):
    elsewhere = FakeLeman()
    elsewhere.start()
    ask = channel.fetch_service_info

    def told(address, endpoints, *, timeout):
        info = ask(address, endpoints, timeout=timeout)
        info.executor_address, info.commit_coordinator_address = elsewhere.address, "127.0.0.1:1"
        return info

    monkeypatch.setattr(channel, "fetch_service_info", told)
    with leman.connect(tmp_path, fake.address) as database:
        found = database._services._endpoints
        assert (found.planner, found.executor) == (fake.address, elsewhere.address)
        assert found.commit_coordinator == fake.address, "no one answers where it is said to be"
        database.jobs()
        assert (len(elsewhere.named("ListJobs")), len(fake.named("ListJobs"))) == (1, 0)
        elsewhere.stop()
        database.jobs()  # the endpoint answers for it
        assert len(fake.named("ListJobs")) == 1


@pytest.mark.parametrize("together", [list, ",".join])
def test_of_several_endpoints_the_first_that_answers_is_called_until_it_does_not(fake, tmp_path, together):
    other = FakeLeman()
    other.start()
    running, done = make_job("job-1", "RUNNING"), make_job("job-1", "DONE")

    gone = threading.Event()

    def goes_away():
        threading.Thread(target=fake.stop).start()  # which ends this call
        gone.wait(30)

    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=running), goes_away]
    other.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=2, job=done)]
    with leman.connect(tmp_path, together(["127.0.0.1:1", fake.address, other.address])) as database:
        database.jobs()
        assert (len(fake.named("ListJobs")), len(other.named("ListJobs"))) == (1, 0)
        states = [job.state for job, _ in database.job_future("job-1").watch()]
        assert states == ["RUNNING", "DONE"]
        assert [request.after_sequence for request in other.named("WatchJob")] == [1]
        database.jobs()
        assert len(other.named("ListJobs")) == 1
    gone.set()
    other.stop()


def test_several_endpoints_that_nobody_serves_are_all_named(tmp_path, monkeypatch):
    monkeypatch.setattr(channel, "FIRST_CONTACT", 0.2)
    with pytest.raises(errors.Unavailable, match=r"at 127\.0\.0\.1:1 or 127\.0\.0\.1:2: tried"):
        leman.connect(tmp_path, "127.0.0.1:1, 127.0.0.1:2")


def test_path_that_is_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidArgument, match="cannot be a database"):
        leman.connect(tmp_path / "file")


def test_closed_database_says_so(db):
    db.close()
    with pytest.raises(leman.LemanError, match="closed"):
        db.table_names()


def test_lists_are_read_to_the_last_page(fake, db):
    pages = {"": (["a", "b"], "next"), "next": (["c"], "")}

    def answer(request):
        tables, token = pages[request.page_token]
        return catalog_pb2.ListTablesResponse(tables=tables, next_page_token=token)

    fake.scripts["ListTables"] = answer
    assert db.table_names() == ["a", "b", "c"]


def test_jobs_limit_is_not_exceeded(fake, db):
    def answer(request):
        jobs = [make_job(f"job-{i}", "DONE") for i in range(request.page_size)]
        return jobs_pb2.ListJobsResponse(jobs=jobs, next_page_token="more")

    fake.scripts["ListJobs"] = answer
    assert len(db.jobs(limit=1500)) == 1500


def test_table_answers(docs):
    assert docs.version == 7
    assert docs.count_rows() == 10
    assert docs.schema.names == ["text", "size"]
    column = docs.describe().computed_columns[0]
    assert (column.name, column.udf_name, column.input_columns) == ("n", "f", ("text",))


def test_missing_table(fake, db):
    fake.scripts["DescribeTable"] = status("NOT_FOUND", "TABLE_NOT_FOUND", "no table nope")
    with pytest.raises(KeyError, match="no table nope") as caught:
        db.open_table("nope")
    assert isinstance(caught.value, errors.TableNotFound)


def test_add_columns_registers_and_maps(fake, docs):
    assert docs.add_columns({"n": words, "m": (words, ["text"])}) == 2
    sent = fake.named("AddColumns")[0]
    assert [(c.name, c.udf.name, list(c.input_columns)) for c in sent.columns] == [
        ("n", "words", []),
        ("m", "words", ["text"]),
    ]
    assert sent.columns[0].udf.version == words.version
    assert sent.request_id
    assert len(fake.named("RegisterUdf")) == 1


def test_sql_is_sent_as_it_is(fake, docs):
    docs.add_columns({"up": "upper(text)"})
    (sent,) = fake.named("AddColumns")[0].columns
    assert (sent.name, sent.sql_expression, sent.udf.name) == ("up", "upper(text)", "")
    assert not fake.named("RegisterUdf")


def test_alter_columns_registers_and_maps(fake, docs):
    assert docs.alter_columns({"n": (words, ["text"]), "up": "upper(text)"}) == 3
    (sent,) = fake.named("AlterColumns")
    columns = [altered.column for altered in sent.columns]
    assert [(c.name, c.udf.name, c.sql_expression, list(c.input_columns)) for c in columns] == [
        ("n", "words", "", ["text"]),
        ("up", "", "upper(text)", []),
    ]
    assert sent.request_id
    with pytest.raises(errors.InvalidArgument, match=r"alter_columns.* takes at least one"):
        docs.alter_columns({})


def test_alter_columns_checks_annotations_where_the_columns_are_known(fake, docs):
    def words(size: str) -> int:
        return 0

    with pytest.raises(TypeError, match="Type mismatch for column size"):
        docs.alter_columns({"n": (leman.udf(version="1")(words), ["size"])})
    # the column's own mapping may hold: the planner knows
    docs.alter_columns({"n": leman.udf(version="1")(words)})


def test_code_that_holds_a_secret_of_the_environment_is_named(docs, monkeypatch, recwarn):
    monkeypatch.setenv("A_MODEL_API_KEY", "sk-0123456789")
    monkeypatch.setenv("A_MODEL_API_KEY_SHORT", "sk")
    monkeypatch.setenv("PLACE_OF_IT", "sk-0123456789")
    key = os.environ["A_MODEL_API_KEY"]

    @leman.udf
    def asks(text: str) -> int:
        return len(text + key)

    docs.add_columns({"n": words})
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"contains the value of the environment variable A_MODEL_API_KEY, .* env="):
        docs.add_columns({"m": asks})


def test_registered_code_is_not_sent_again(fake, docs):
    docs.add_columns({"n": words})
    docs.add_columns({"m": words})
    assert len(fake.named("RegisterUdf")) == 1


def holding(size):
    """A function that takes its data with it."""
    known = os.urandom(size)

    def lookup(text: str) -> int:
        return len(known)

    return leman.udf(version="1")(lookup)


def test_a_large_bundle_is_sent_in_pieces_before_the_function(fake, docs):
    docs.add_columns({"n": holding(1_200_000)})
    (upload,), (request,) = fake.named("UploadBundle"), fake.named("RegisterUdf")
    header, *pieces = upload
    data = b"".join(piece.data for piece in pieces)
    bundle = request.definition.python_bundle
    assert request.bundle == b""
    assert (header.header.database, header.header.sha256, header.header.size_bytes) == (
        request.database,
        bundle.sha256,
        bundle.size_bytes,
    )
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (bundle.sha256, bundle.size_bytes)
    assert max(len(piece.data) for piece in pieces) <= 512 << 10


def test_a_bundle_that_services_do_not_take_says_what_to_do(fake, docs):
    fake.scripts["UploadBundle"] = status("INVALID_ARGUMENT", "BUNDLE_TOO_LARGE", "at most 1 MB")
    with pytest.raises(errors.InvalidArgument, match=r"too large to send .*Load large data in __init__") as caught:
        docs.add_columns({"n": holding(1_200_000)})
    assert caught.value.reason == "BUNDLE_TOO_LARGE"
    assert not fake.named("RegisterUdf")


def test_other_options_under_the_same_version_are_set_without_sending_the_code(fake, docs):
    docs.add_columns({"n": words})
    other = leman.udf(batch_size=10)(words._target)
    assert other.version == words.version
    docs.add_columns({"m": other})
    first, second = fake.named("RegisterUdf")
    assert second.definition.batch_size == 10
    assert second.bundle == b""
    assert second.definition.python_bundle == first.definition.python_bundle


def test_a_function_whose_bundle_workers_cannot_load_is_sent_again(fake, docs):
    docs.add_columns({"n": words})

    def found(request):
        definition = fake.udfs[request.udf.name, request.udf.version]
        return catalog_pb2.GetUdfResponse(definition=definition, needs_bundle=True)

    fake.scripts["GetUdf"] = found
    docs.add_columns({"m": words})
    assert [bool(request.bundle) for request in fake.named("RegisterUdf")] == [True, True]


def test_a_function_whose_definition_is_damaged_is_sent_again(fake, docs):
    fake.scripts["GetUdf"] = status("DATA_LOSS", "UDF_DAMAGED", "damaged")
    docs.add_columns({"n": words})
    assert fake.named("RegisterUdf")[0].bundle


def test_other_type_under_an_explicit_version_is_refused(fake, docs):
    one = leman.udf(name="f", version="1", data_type=pa.int32())(words._target)
    two = leman.udf(name="f", version="1", data_type=pa.int64())(words._target)
    docs.add_columns({"n": one})
    with pytest.raises(errors.UdfExists, match="data_type"):
        docs.add_columns({"m": two})


def test_other_code_under_an_explicit_version_warns(fake, docs):
    docs.add_columns({"n": leman.udf(name="f", version="1")(words._target)})

    def f(text: str) -> int:
        return 0

    with pytest.warns(UserWarning, match="another version="):
        docs.add_columns({"m": leman.udf(version="1")(f)})


def test_annotation_is_checked_against_the_column(fake, docs):
    with pytest.raises(TypeError, match="Type mismatch for column size"):
        docs.add_columns({"n": (words, ["size"])})
    assert not fake.named("AddColumns")


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({}, errors.InvalidArgument, "at least one"),
        ({"n": " "}, errors.InvalidArgument, "expression is empty"),
        ({"n": "f@1"}, errors.InvalidArgument, "give a registered function together with the columns"),
        ({"n": ("f", ["x"])}, errors.InvalidArgument, "a registered one by .*name@version"),
        ({"n": ("upper(text)", ["text"])}, errors.InvalidArgument, "@leman.udf"),
        ({"n": len}, errors.InvalidArgument, "@leman.udf"),
        ({"n": (words, "text")}, TypeError, "list of column names"),
        ({"": words}, errors.InvalidArgument, "named by a str"),
    ],
)
def test_add_columns_refuses(docs, columns, kind, message):
    with pytest.raises(kind, match=message):
        docs.add_columns(columns)


def test_backfill_sends_only_what_was_given(fake, docs):
    docs.backfill_async("n")
    docs.backfill_async("n", where="size > 1", concurrency=3, max_checkpoint_size=5, read_version=2)
    plain, full = (request.backfill for request in fake.named("CreateJob"))
    plain.table.Clear()
    plain.column = ""
    assert plain.ByteSize() == len(plain.SerializeToString()) <= 4  # empty sub-messages only
    assert (full.where, full.concurrency, full.checkpoint.max_checkpoint_size) == ("size > 1", 3, 5)
    assert (full.read_version, full.read_tag) == (2, "")
    docs.backfill_async("n", read_version="v1-tag")
    tagged = fake.named("CreateJob")[2].backfill
    assert (tagged.read_version, tagged.read_tag) == (0, "v1-tag")
    with pytest.raises(errors.InvalidArgument, match="read_version is a whole number"):
        docs.backfill_async("n", read_version=" ")


def test_backfill_with_another_function_registers_it(fake, docs):
    docs.backfill_async("n", udf=words)
    spec = fake.named("CreateJob")[0].backfill
    assert (spec.udf.name, spec.udf.version) == ("words", words.version)
    assert ("words", words.version) in fake.udfs


def test_backfill_with_a_registered_name(fake, docs):
    docs.add_columns({"n": words})
    docs.backfill_async("n", udf="words")
    assert fake.named("CreateJob")[0].backfill.udf.version == words.version
    with pytest.raises(errors.UdfNotFound):
        docs.backfill_async("n", udf="words@other")


@pytest.mark.parametrize(
    "parameters",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1 << 31},
        {"task_size": 1.5},
        {"where": ""},
        {"where": 3},
        {"min_checkpoint_size": 5, "max_checkpoint_size": 4},
        {"num_frags": -1},
        {"udf": len},
    ],
)
def test_backfill_refuses_before_it_calls(fake, docs, parameters):
    with pytest.raises(errors.InvalidArgument):
        docs.backfill("n", **parameters)
    assert not fake.named("CreateJob")


def test_unknown_parameter_is_a_type_error(docs):
    with pytest.raises(TypeError, match="no parameter 'checkpoint': did you mean checkpoint_size"):
        docs.backfill("n", checkpoint=5)
    with pytest.raises(TypeError, match="no parameter 'shards': its parameters are where, "):
        docs.plan_backfill("n", shards=5)


def test_backfill_returns_the_job_id(docs):
    assert docs.backfill("n", progress=False) == "job-1"


def test_job_that_had_nothing_to_do_is_not_watched(fake, docs, capsys):
    job = make_job("job-1", "DONE", plan_summary="nothing to do: 2 of 2 fragments are current")
    fake.scripts["CreateJob"] = jobs_pb2.CreateJobResponse(job=job)
    assert docs.backfill("n") == "job-1"
    assert not fake.named("WatchJob")
    assert "docs.n: nothing to do: 2 of 2 fragments are current" in capsys.readouterr().err


def test_progress_function_is_called(fake, docs):
    fake.scripts["WatchJob"] = [
        jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "RUNNING", progress={"rows_committed": 5})),
        jobs_pb2.WatchJobResponse(sequence=2, job=make_job("job-1", "DONE", progress={"rows_committed": 9})),
    ]
    seen = []
    docs.backfill("n", progress=seen.append)
    assert [p.rows_committed for p in seen] == [5, 9]


def test_failed_job_tells_what_the_function_raised(fake, docs):
    message = "UDF 'f' failed on row 5 of fragment 1: ValueError: bad text"
    facts = {"error_type": "ValueError", "row_address": str((1 << 32) | 5)}
    failed = make_job("job-1", "FAILED", error=status("FAILED_PRECONDITION", "UDF_FAILED", message, **facts))
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=failed)]
    with pytest.raises(leman.JobFailed) as caught:
        docs.backfill("n", progress=False)
    text = str(caught.value)
    assert "ValueError: bad text" in text
    assert "row 5 of fragment 1" in text
    assert "row address" not in text  # it says the same
    assert caught.value.facts["row_address"] == "4294967301"
    assert "get_errors(job_id='job-1')" in text
    assert caught.value.reason == "UDF_FAILED"
    assert caught.value.job_id == "job-1"
    assert caught.value.facts["error_type"] == "ValueError"


@pytest.mark.parametrize("said", ["Finished work is kept.", "What was finished is kept (3 rows)."])
def test_that_work_is_kept_is_said_once(fake, docs, said):
    failed = make_job("job-1", "FAILED", error=status("FAILED_PRECONDITION", "WORKER_LOST", f"A worker died. {said}"))
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=failed)]
    with pytest.raises(leman.JobFailed) as caught:
        docs.backfill("n", progress=False)
    assert str(caught.value).count("is kept") == 1


@pytest.mark.parametrize(
    ("reason", "kept"), [("TABLE_NOT_FOUND", False), ("TABLE_REPLACED", False), ("NO_PROGRESS", True)]
)
def test_of_a_table_that_is_gone_nothing_is_said_to_be_kept(fake, docs, reason, kept):
    failed = make_job("job-1", "FAILED", error=status("NOT_FOUND", reason, "why"))
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=failed)]
    with pytest.raises(leman.JobFailed, match="failed: why") as caught:
        docs.backfill("n", progress=False)
    assert ("the same call continues from there" in str(caught.value)) is kept


def test_cancelled_job_raises(fake, docs):
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "CANCELLED"))]
    with pytest.raises(leman.JobCancelled):
        docs.backfill("n", progress=False)


def test_done_with_errors_returns_and_warns(fake, docs, caplog):
    job = make_job("job-1", "DONE_WITH_ERRORS", progress={"rows_failed": 3, "fragments_planned": 1})
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=job)]
    with caplog.at_level(logging.WARNING, "leman"):
        assert docs.backfill("n", progress=False) == "job-1"
    assert "3 rows failed" in caplog.text


def test_interrupt_cancels_the_job(fake, docs):
    def interrupt(_):
        raise KeyboardInterrupt

    ended = make_job("job-1", "CANCELLED", progress={"rows_checkpointed": 4000})
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=ended)]
    with pytest.raises(KeyboardInterrupt) as caught:
        docs.backfill("n", progress=interrupt)
    assert [r.job_id for r in fake.named("CancelJob")] == ["job-1"]
    assert str(caught.value) == (
        "docs.n: cancelled; 4,000 rows are kept, and the same call continues from there (job-1)"
    )
    frames = traceback.extract_tb(caught.tb)
    assert [Path(frame.filename).name for frame in frames] == ["test_client.py", "_call_boundary.py"]


def test_an_interrupt_tells_of_a_job_that_does_not_end_at_once(fake, docs, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("leman._jobs._CANCEL_SECONDS", 0.2)
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "CANCELLING"))]
    with pytest.raises(KeyboardInterrupt, match="is being cancelled; 0 rows are kept"):
        docs.backfill("n", progress=interrupt)


class Pressed:
    """The stream of a watch in which Ctrl-C comes after so many messages."""

    def __init__(self, *messages):
        self._messages = messages

    def __iter__(self):
        yield from self._messages
        raise KeyboardInterrupt

    def cancel(self):
        pass


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("wait", ["result", "updates", "watch", "events"])
def test_who_stops_waiting_for_a_job_hears_that_it_goes_on(fake, docs, monkeypatch, wait, seen):
    future = docs.backfill_async("n")
    messages = [jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "RUNNING"))] if seen else []
    monkeypatch.setattr(future._services.jobs, "WatchJob", lambda *_, **__: Pressed(*messages))
    with pytest.raises(KeyboardInterrupt) as caught:
        future.result() if wait == "result" else list(getattr(future, wait)())
    place = f"{future._database} job-1"
    how = f"`leman jobs watch {place}` shows it again, `leman jobs cancel {place}` ends it"
    assert str(caught.value) == f"{'docs.n' if seen else 'job-1'}: the job continues; {how}"
    frames = traceback.extract_tb(caught.tb)
    assert {Path(frame.filename).name for frame in frames} == {"test_client.py", "_call_boundary.py"}
    assert len(frames) <= 3
    assert not fake.named("CancelJob")


def test_watch_resumes_where_it_was(fake, docs):
    def event(sequence):
        return jobs_pb2.JobEvent(sequence=sequence, kind=jobs_pb2.JobEvent.KIND_COMMIT, message=f"event {sequence}")

    def message(sequence, state, *events):
        return jobs_pb2.WatchJobResponse(sequence=sequence, job=make_job("job-1", state), events=events)

    streams = iter(
        [
            [message(4, "RUNNING", event(3), event(4)), grpc.StatusCode.UNAVAILABLE],
            [message(5, "RUNNING", event(4), event(5))],  # ends early, without an error
            [message(6, "DONE", event(6))],
        ]
    )
    fake.scripts["WatchJob"] = lambda _: next(streams)
    events = list(docs.backfill_async("n").events())
    assert [e.message for e in events] == ["event 3", "event 4", "event 5", "event 6"]
    assert [r.after_sequence for r in fake.named("WatchJob")] == [0, 4, 5]


def test_watch_ends_on_an_error_that_no_retry_cures(fake, docs):
    fake.scripts["WatchJob"] = status("NOT_FOUND", "JOB_NOT_FOUND", "no job job-1")
    with pytest.raises(errors.JobNotFound):
        docs.backfill("n", progress=False)


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan")])
def test_a_timeout_that_is_no_time_is_refused_before_any_call(fake, docs, timeout):
    future = docs.backfill_async("n")
    for wait in (future.result, lambda timeout: next(future.updates(timeout=timeout))):
        with pytest.raises(errors.InvalidArgument, match=r"^timeout must be None or a number of seconds"):
            wait(timeout)
    assert not fake.named("WatchJob")


def test_result_times_out_while_the_job_goes_on(fake, docs):
    release = threading.Event()

    def wait():
        release.wait(10)
        return jobs_pb2.WatchJobResponse(sequence=2, job=make_job("job-1", "RUNNING"))

    running = jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "RUNNING"))
    fake.scripts["WatchJob"] = [running, wait]
    future = docs.backfill_async("n")
    with pytest.raises(TimeoutError, match="still running"):
        future.result(timeout=0.2)
    release.set()
    assert not fake.named("CancelJob")


def test_future(fake, docs):
    future = docs.backfill_async("n")
    assert future.status() == "RUNNING"
    assert not future.done()
    assert future.progress().rows_total == 0
    assert (future.pause(), future.resume()) == (leman.JobState.PAUSING, leman.JobState.PENDING)
    assert future.cancel() == leman.JobState.CANCELLING
    assert future.result() == "job-1"


def test_plan_reads_well(docs):
    text = str(docs.plan_backfill("n", where="size > 1"))
    assert text.splitlines()[0] == "docs.n = f(text)"
    assert "1,000 of 2,000 rows to compute, 1,000 reused, 3 failed before" in text
    assert "MISSING  never computed" in text
    plan = docs.plan_backfill("n")
    assert plan.fragments[0].missing == ((0, 1001),)
    assert plan.fragments[0].rows == 1000
    assert {r.reason: r.fragments for r in plan.reasons} == {"REUSED": 1, "MISSING": 1}


def test_errors_that_were_lost_are_warned_of(docs):
    with pytest.warns(UserWarning, match="errors.lance is damaged"):
        assert len(docs.get_errors(job_id="job-lost")) == 1


def test_errors_and_addresses(docs):
    error = docs.get_errors(job_id="job-1", column_name="n")[0]
    assert (error.fragment_id, error.offset, error.error_type) == (1, 5, "ValueError")
    assert str(error) == "n, fragment 1, row 5: ValueError: bad text"
    assert docs.get_failed_row_addresses(column_name="n") == [(4 << 32) | 1, (4 << 32) | 7], "both pages"
    assert docs.get_failed_row_addresses(job_id="job-1") == [(4 << 32) | 1], "row 105, where it is now"
    assert docs.get_failed_row_addresses(job_id="job-1", column_name="another") == []
    with pytest.raises(errors.InvalidArgument, match="job_id, column_name or both"):
        docs.get_failed_row_addresses()


def test_row_states(docs):
    states = docs.row_states("n")
    assert (states.computed, states.null, states.failed, states.not_computed) == (9, 2, 1, 3)
    assert states.kept == (leman.KeptRows("f", "0", 4),)


def test_retry(fake, db, docs):
    assert db.retry_job("job-0", progress=False) == "job-1"
    (request,) = fake.named("RetryJob")
    assert (request.job_id, request.udf.name, request.keep_others) == ("job-0", "", False)
    assert request.request_id
    fake.udfs["f", "1"] = udf_pb2.UdfDefinition(name="f", version="1")
    future = db.job_future("job-0").retry(udf="f@1", keep_others=True)
    assert future.job_id == "job-1"
    request = fake.named("RetryJob")[1]
    assert (request.udf.name, request.udf.version, request.keep_others) == ("f", "1", True)
    with pytest.raises(errors.InvalidArgument, match="keep_others needs udf"):
        db.retry_job("job-0", keep_others=True)


def test_tracebacks_end_at_the_callers_line(fake, docs):
    fake.scripts["CreateJob"] = status(
        "FAILED_PRECONDITION", "COLUMN_NOT_DEFINED", "Column x is not defined in this table"
    )
    with pytest.raises(errors.ColumnNotDefined) as caught:
        docs.backfill("x")
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= 3  # here, and the edge of the SDK
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_public_names_exist():
    assert all(hasattr(leman, name) for name in leman.__all__)
