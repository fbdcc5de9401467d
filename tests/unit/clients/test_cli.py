"""The command line, against a made-up Leman on real gRPC."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys

import pyarrow as pa
import pytest

import leman
from leman._local import running_systems
from leman.cli import _service_commands, main
from leman.cli._terminal import moment, print_table
from leman.progress import Display
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2, udf_pb2
from tests.unit.clients.fake_services import FakeLeman, make_job, status


@pytest.fixture(scope="module")
def shared():
    server = FakeLeman()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def fake(shared):
    shared.scripts.clear()
    shared.calls.clear()
    return shared


@pytest.fixture
def run(fake, tmp_path, monkeypatch, capsys):
    """Runs a command on the database; returns exit code, standard output and standard error."""

    def call(*arguments, remote=True):
        argv = ["leman", *arguments, *(["--endpoint", fake.address] if remote else [])]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return call


@pytest.fixture
def db(tmp_path):
    return str(tmp_path)


def watched(*jobs):
    return [jobs_pb2.WatchJobResponse(sequence=i + 1, job=job) for i, job in enumerate(jobs)]


def test_backfill(run, db, fake):
    fake.scripts["WatchJob"] = watched(make_job("job-1", "DONE", progress={"fragments_planned": 1, "rows_computed": 5}))
    code, out, err = run("backfill", db, "docs", "n", "--where", "size > 1", "--concurrency", "2", "--num-frags", "3")
    assert (code, out) == (0, "")
    assert "docs.n: 5 rows computed" in err
    spec = fake.named("CreateJob")[0].backfill
    assert (spec.where, spec.concurrency, spec.num_frags) == ("size > 1", 2, 3)


def test_backfill_options_all_arrive(run, db, fake):
    sizes = [
        "checkpoint-size",
        "min-checkpoint-size",
        "max-checkpoint-size",
        "task-size",
        "commit-granularity",
        "read-version",
        "task-shuffle-diversity",
        "commit-rows",
    ]
    run("backfill", db, "docs", "n", *(text for i, name in enumerate(sizes) for text in (f"--{name}", str(i + 1))))
    spec = fake.named("CreateJob")[0].backfill
    bounds = spec.checkpoint
    assert [bounds.checkpoint_size, bounds.min_checkpoint_size, bounds.max_checkpoint_size] == [1, 2, 3]
    assert [spec.task_size, spec.commit_granularity, spec.read_version] == [4, 5, 6]
    assert [spec.task_shuffle_diversity, spec.commit_rows] == [7, 8]
    run("backfill", db, "docs", "n", "--read-version", "v1-tag")
    assert fake.named("CreateJob")[1].backfill.read_tag == "v1-tag"


def test_backfill_of_several_columns_is_one_job(run, db, fake):
    more = [catalog_pb2.ComputedColumn(name="m"), catalog_pb2.ComputedColumn(name="o")]
    fake.scripts["DescribeTable"] = catalog_pb2.DescribeTableResponse(
        uri="db/docs.lance",
        schema=pa.schema([("text", pa.string())]).serialize().to_pybytes(),
        computed_columns=[catalog_pb2.ComputedColumn(name="n"), *more],
    )
    job = make_job("job-1", "DONE", progress={"fragments_planned": 1, "rows_computed": 5})
    job.backfill.column = ""
    job.backfill.columns.extend(["n", "m"])
    fake.scripts["WatchJob"] = watched(job)
    code, out, err = run("backfill", db, "docs", "n", "m", "--where", "size > 1")
    assert (code, out) == (0, "")
    assert "docs: n, m: 5 rows computed" in err
    assert run("backfill", db, "docs")[0] == 0
    (two, all_of_them) = (request.backfill for request in fake.named("CreateJob"))
    assert (two.column, list(two.columns), two.where) == ("", ["n", "m"], "size > 1")
    assert (all_of_them.column, list(all_of_them.columns)) == ("", ["n", "m", "o"])
    code, _, err = run("backfill", db, "docs", "n", "nope")
    assert (code, "nope is not computed by a function" in err) == (1, True)
    code, _, err = run("backfill", db, "docs", "n", "m", "--udf", "f")
    assert (code, "udf replaces the function of one column" in err) == (2, True)
    assert len(fake.named("CreateJob")) == 2


def test_jobs_of_several_columns_name_them(run, db, fake):
    job = make_job("job-1", "DONE")
    job.backfill.column = ""
    job.backfill.columns.extend(["n", "m"])
    fake.scripts["GetJob"] = jobs_pb2.GetJobResponse(job=job)
    code, out, _ = run("jobs", "show", db, "job-1")
    assert code == 0
    assert re.search(r"columns\s+docs: n, m", out)


STALE = planner_pb2.IndexCoverage(name="n_idx", columns=["n"], fragments=3, fragments_covered=1, rows_left_out=1200)


def test_a_backfill_says_what_a_fast_search_misses(run, db, fake):
    fake.scripts["WatchJob"] = watched(
        make_job("job-1", "DONE", progress={"fragments_planned": 1, "rows_evaluated": 5}, stale_indices=[STALE])
    )
    code, _, err = run("backfill", db, "docs", "n")
    assert code == 0
    assert "index n_idx covers 1 of 3 fragments, a fast search misses 1,200 rows" in err
    assert not fake.named("CreateJob")[0].backfill.optimize_indices


def test_backfill_and_refresh_bring_indexes_up_to_date_where_they_are_asked_to(run, db, fake):
    run("backfill", db, "docs", "n", "--optimize-indices")
    assert fake.named("CreateJob")[-1].backfill.optimize_indices
    assert run("backfill", db, "docs", "n", "--no-wait")[0] == 0
    assert not fake.named("CreateJob")[-1].backfill.optimize_indices


def test_indexes_are_brought_up_to_date_by_themselves(run, db, fake):
    code, out, _ = run("tables", "optimize-indices", db, "docs", "--column", "n", "--column", "m")
    assert (code, list(fake.named("OptimizeIndices")[0].columns)) == (0, ["n", "m"])
    assert "n_idx" in out
    assert "3 of 3" in out
    code, out, _ = run("tables", "optimize-indices", db, "docs", "--json")
    assert (code, list(fake.named("OptimizeIndices")[1].columns)) == (0, [])
    assert json.loads(out)[0]["rows_left_out"] == 0


def test_quiet_backfill_says_nothing(run, db):
    assert run("backfill", db, "docs", "n", "--quiet") == (0, "", "")


def test_backfill_without_waiting(run, db, fake):
    assert run("backfill", db, "docs", "n", "--no-wait") == (0, "job-1\n", "")
    assert not fake.named("WatchJob")


def test_failed_rows_are_exit_code_3(run, db, fake):
    fake.scripts["WatchJob"] = watched(
        make_job("job-1", "DONE_WITH_ERRORS", progress={"rows_failed": 2, "fragments_planned": 1})
    )
    code, _, err = run("backfill", db, "docs", "n")
    assert code == 3
    assert "2 rows failed" in err


FAILED = make_job("job-1", "FAILED", error=status("FAILED_PRECONDITION", "UDF_FAILED", "ValueError: bad text"))


def test_failed_job_is_exit_code_1(run, db, fake):
    fake.scripts["WatchJob"] = watched(FAILED)
    code, out, err = run("backfill", db, "docs", "n", "--quiet")
    assert (code, out) == (1, "")
    assert "ValueError: bad text" in err
    assert "[UDF_FAILED]" in err
    assert "Traceback" not in err


def test_failed_job_as_json(run, db, fake):
    fake.scripts["WatchJob"] = watched(FAILED)
    code, out, err = run("backfill", db, "docs", "n", "--json", "--quiet")
    assert code == 1
    assert json.loads(out)["error"]["reason"] == "UDF_FAILED"
    assert err == "leman: the backfill of docs.n failed: ValueError: bad text [UDF_FAILED]\n"


def test_refused_job(run, db, fake):
    fake.scripts["CreateJob"] = status(
        "FAILED_PRECONDITION", "COLUMN_NOT_DEFINED", "Column x is not defined in this table"
    )
    code, out, err = run("backfill", db, "docs", "x", "--json")
    assert code == 1
    assert err == "leman: Column x is not defined in this table [COLUMN_NOT_DEFINED]\n"
    assert json.loads(out)["error"]["reason"] == "COLUMN_NOT_DEFINED"


def test_bad_filter_is_wrong_usage(run, db, fake):
    fake.scripts["ExplainPlan"] = status("INVALID_ARGUMENT", "INVALID_FILTER", "no such column")
    assert run("plan", db, "docs", "n", "--where", "x =")[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("backfill", "db"),
        ("backfill", "db", "docs", "n", "--concurrency", "0"),
        ("backfill", "db", "docs", "n", "--gpu"),
        ("jobs", "ls", "db", "--limit", "x"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_exit_code_2(run, arguments):
    code, out, err = run(*arguments, remote=False)
    assert code == 2
    assert "Error" in out + err


def test_plan(run, db):
    code, out, _ = run("plan", db, "docs", "n")
    assert code == 0
    assert "1,000 of 2,000 rows to compute" in out
    plan = json.loads(run("plan", db, "docs", "n", "--json")[1])
    assert plan["rows_to_compute"] == 1000
    assert plan["reasons"][1] == {"reason": "MISSING", "fragments": 1, "rows": 1000}


def test_a_job_shows_what_it_waits_for(run, db, fake):
    stall = jobs_pb2.Stall(worker="worker 1", fragment_id=3, message="worker 1 has not moved for 30 s")
    stall.rows.end = 10
    fake.scripts["GetJob"] = jobs_pb2.GetJobResponse(job=make_job("job-7", "RUNNING", stalls=[stall]))
    assert "waits for   worker 1 has not moved for 30 s\n" in run("jobs", "show", db, "job-7")[1]
    (told,) = json.loads(run("jobs", "show", db, "job-7", "--json")[1])["stalls"]
    assert (told["worker"], told["fragment_id"], told["rows"]) == ("worker 1", 3, [0, 10])


def test_a_job_that_waits_for_its_turn_shows_its_place(run, db, fake):
    waiting = make_job("job-7", "PENDING", queue_position=3)
    fake.scripts["GetJob"] = jobs_pb2.GetJobResponse(job=waiting)
    fake.scripts["ListJobs"] = jobs_pb2.ListJobsResponse(jobs=[waiting])
    assert "state       PENDING, 3 in the queue\n" in run("jobs", "show", db, "job-7")[1]
    assert "PENDING, 3 in the queue" in run("jobs", "ls", db)[1]
    assert json.loads(run("jobs", "show", db, "job-7", "--json")[1])["queue_position"] == 3
    at = datetime.datetime(2026, 5, 4, 12, 30, 15, tzinfo=datetime.UTC)
    waiting.expected_start_time.FromDatetime(at)
    fake.scripts["ListJobs"] = jobs_pb2.ListJobsResponse(jobs=[waiting])
    assert f"3 in the queue, its turn at about {at.astimezone():%H:%M:%S}" in " ".join(run("jobs", "ls", db)[1].split())


def test_damage_of_the_job_history_is_told(run, db, fake):
    fake.scripts["ListJobs"] = jobs_pb2.ListJobsResponse(jobs=[make_job("job-7", "DONE")], warnings=["set aside"])
    code, out, said = run("jobs", "ls", db)
    assert (code, said) == (0, "leman: set aside\n")
    assert "job-7" in out


def test_jobs(run, db, fake):
    assert "docs.n" in run("jobs", "ls", db)[1]
    assert json.loads(run("jobs", "ls", db, "--json", "--table", "docs", "--limit", "5")[1])[0]["state"] == "DONE"
    assert (fake.named("ListJobs")[1].filter.tables, fake.named("ListJobs")[1].page_size) == (["docs"], 5)
    assert "job-7" in run("jobs", "show", db, "job-7")[1]
    assert json.loads(run("jobs", "show", db, "job-7", "--json")[1])["progress"]["rows_total"] == 0
    assert run("jobs", "cancel", db, "job-7")[1] == "job-7: CANCELLING\n"
    assert run("jobs", "pause", db, "job-7")[1] == "job-7: PAUSING\n"
    assert run("jobs", "resume", db, "job-7")[1] == "job-7: PENDING\n"
    assert json.loads(run("jobs", "pause", db, "job-7", "--json")[1])["job_id"] == "job-7"
    assert [call.job_id for call in fake.named("PauseJob")] == ["job-7"] * 2
    assert run("jobs", "delete", db, "job-7")[1] == "job-7: deleted\n"
    assert [call.job_id for call in fake.named("DeleteJob")] == ["job-7"]
    assert run("jobs", "watch", db, "job-1")[0] == 0
    assert json.loads(run("jobs", "watch", db, "job-1", "--json")[1])["state"] == "DONE"


def test_unknown_job(run, db, fake):
    fake.scripts["GetJob"] = status("NOT_FOUND", "JOB_NOT_FOUND", "no job x")
    assert run("jobs", "watch", db, "x") == (1, "", "leman: no job x [JOB_NOT_FOUND]\n")


def test_errors(run, db):
    out = run("errors", db, "job-1", "--rows")[1]
    assert "ValueError" in out
    assert "bad text" in out
    assert json.loads(run("errors", db, "job-1", "--rows", "--json")[1])[0]["row_address"] == (1 << 32) | 5
    out = run("errors", db, "job-1")[1]
    assert out.splitlines()[0].split() == ["rows", "error", "message", "for", "example"]
    assert out.splitlines()[1].split() == ["1", "ValueError", "bad", "text", "fragment", "1,", "row", "5"]
    (group,) = json.loads(run("errors", db, "job-1", "--json")[1])
    assert group == {"error_type": "ValueError", "message": "bad text", "rows": 1, "example": (1 << 32) | 5}


def test_retry(run, db, fake):
    fake.udfs["f", "1"] = udf_pb2.UdfDefinition(name="f", version="1")
    assert run("jobs", "retry", db, "job-0", "--udf", "f@1", "--keep-others", "--quiet")[0] == 0
    (request,) = fake.named("RetryJob")
    assert (request.job_id, request.udf.version, request.keep_others) == ("job-0", "1", True)
    assert run("jobs", "retry", db, "job-0", "--no-wait")[1] == "job-1\n"
    assert run("jobs", "retry", db, "job-0", "--keep-others")[0] == 2


def test_errors_says_how_many_kinds_and_rows_it_leaves_out(run, db):
    out = run("errors", db, "job-many", "--limit", "1")[1]
    assert out.splitlines()[-2:] == [
        "and 2 more kinds of errors; --limit shows more",
        "and 7 rows with other errors; --rows lists rows",
    ]


def test_row_states(run, db):
    out = run("tables", "show", db, "docs", "--states")[1]
    assert out.splitlines()[-1].split() == ["n", "9", "2", "4", "1", "3", "2", "1"]
    shown = json.loads(run("tables", "show", db, "docs", "--states", "--json")[1])
    assert shown["row_states"]["n"]["failed"] == 1


def test_tables(run, db):
    assert "docs" in run("tables", "ls", db)[1]
    assert json.loads(run("tables", "ls", db, "--json")[1])[0]["row_count"] == 10
    out = run("tables", "show", db, "docs")[1]
    assert "10 rows in 2 fragments" in out
    shown = json.loads(run("tables", "show", db, "docs", "--json")[1])
    assert shown["schema"][1] == {"name": "size", "type": "int32", "nullable": True}


def test_the_graph_of_a_table(run, db, fake):
    answer = catalog_pb2.DescribeTableResponse(schema=pa.schema([("text", pa.string())]).serialize().to_pybytes())
    for name, inputs in (("b", ["a", "text"]), ("a", ["text"]), ("c", ["b"]), ("w", ["gone.w"])):
        answer.computed_columns.add(name=name, udf=udf_pb2.UdfRef(name="f", version="1"), input_columns=inputs)
    fake.scripts["DescribeTable"] = answer
    assert run("tables", "show", db, "docs", "--graph")[1].splitlines()[-7:] == [
        "text",
        "├─ b = f(a, text)",
        "│  └─ c = f(b)",
        "└─ a = f(text)",
        "   └─ b = f(a, text) …",
        "gone",
        "└─ w = f(gone.w)",
    ]
    shown = json.loads(run("tables", "show", db, "docs", "--graph", "--json")[1])
    assert shown["graph"] == {"b": ["a", "text"], "a": ["text"], "c": ["b"], "w": ["gone"]}
    del answer.computed_columns[:]
    assert "no column is computed" in run("tables", "show", db, "docs", "--graph")[1]


def test_udfs(run, db, fake):
    def f(x: int):
        return x

    made = leman.udf(name="f", version="1", data_type=pa.list_(pa.float32()))(f)
    fake.udfs["f", "1"] = made.describe()
    assert "list<item: float>" in run("udfs", "ls", db)[1]
    assert json.loads(run("udfs", "ls", db, "--json")[1])[0]["kind"] == "scalar"
    options = {"num_cpus": 2, "num_gpus": 0.5, "memory": 2 << 30, "checkpoint_size": 7, "timeout": 1.5, "batch_size": 3}
    sized = leman.udf(name="g", version="1", blob=True, **{**options, "memory": "2g"})(f)
    fake.udfs["g", "1"] = sized.describe()
    shown = run("udfs", "show", db, "g@1")[1]
    assert "g@1" in shown
    assert "num_gpus" in shown
    assert json.loads(run("udfs", "show", db, "g@1", "--json")[1])["options"] == options | {"blob": True}
    assert json.loads(run("udfs", "show", db, "f@1", "--json")[1])["options"] == {}
    assert run("udfs", "show", db, "h@1")[0] == 1
    fake.udfs.clear()


def test_long_values_are_not_cut_off_when_piped(run, db, fake):
    fake.scripts["ListJobs"] = jobs_pb2.ListJobsResponse(jobs=[make_job("job-1", "DONE", plan_summary="why " * 200)])
    assert ("why " * 200).strip() in run("jobs", "ls", db)[1]


def test_brackets_in_values_are_shown(run, db, fake):
    fake.scripts["ListJobs"] = jobs_pb2.ListJobsResponse(jobs=[make_job("job-1", "DONE", plan_summary="[red]x[/]")])
    assert "[red]x[/]" in run("jobs", "ls", db)[1]


@pytest.mark.parametrize("control", ["\x1b]0;x\a", "\x9b2J", "\x7f", "\r", "\u202e"], ids=ascii)
@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
def test_no_control_character_of_a_value_reaches_the_terminal(run, db, fake, control, as_json):
    colour = "\x1b[31m"
    job = make_job("job-1", "DONE", plan_summary=f"a{control}b{colour}c")
    fake.scripts["ListJobs"] = jobs_pb2.ListJobsResponse(jobs=[job])
    code, out, err = run("jobs", "ls", db, *as_json)
    assert code == 0
    assert not set(out + err) & set(control + colour) - set("0;x2J[31m]")
    if as_json:
        assert json.loads(out)[0]["plan_summary"] == job.plan_summary


def test_checkpoints(run, db, fake):
    found = json.loads(run("checkpoints", "ls", db, "docs", "--json")[1])
    assert [found[0][k] for k in ("kind", "udf_name", "udf_version", "column")] == [
        "checkpoint",
        "f_range-1-2",
        "ab",
        "n",
    ]
    assert [found[0][k] for k in ("fragment_id", "start", "end", "size_bytes")] == [3, 0, 100, 5]
    out = run("checkpoints", "ls", db, "docs")[1]
    assert "f_range-1-2@ab" in out
    assert "its rows are in the table" in out
    assert "legacy, not used" in out
    request = fake.named("CollectGarbage")[0]
    assert (request.dry_run, request.include_kept, request.table.table) == (True, True, "docs")


def test_checkpoints_gc(run, db, fake):
    code, out, err = run("checkpoints", "gc", db, "docs", "--older-than", "12h", "--dry-run", "--limit", "2")
    assert (code, err) == (0, "")
    assert out.endswith("2 files (1,234 bytes) would be deleted, 3 kept\n")
    assert run("checkpoints", "gc", db, "docs")[1].endswith("2 files (1,234 bytes) deleted, 3 kept\n")
    document = json.loads(run("checkpoints", "gc", db, "docs", "--older-than", "0", "--json")[1])
    assert [document[k] for k in ("files_removed", "dry_run", "files_kept")] == [2, False, 3]
    assert [f["removed"] for f in document["files"]] == [True, False]
    asked = fake.named("CollectGarbage")
    assert [(r.older_than.seconds, r.dry_run, r.include_kept) for r in asked] == [
        (12 * 3600, True, False),
        (7 * 86400, False, False),
        (0, False, False),
    ]
    assert all(r.HasField("older_than") for r in asked)
    assert asked[0].max_files == 2


@pytest.mark.parametrize("age", ["7", "-1d", "1.5h", "soon", ""])
def test_checkpoints_gc_of_a_bad_age(run, db, fake, age):
    code, _, err = run("checkpoints", "gc", db, "docs", f"--older-than={age}")
    assert code == 2
    assert "older_than" in err
    assert not fake.named("CollectGarbage")


def test_token_from_the_environment(run, db, fake, monkeypatch):
    monkeypatch.setenv("LEMAN_TOKEN", "secret")
    run("tables", "ls", db)
    assert {m.get("authorization") for _, _, m in fake.calls} == {"Bearer secret"}


def test_bugs_are_told_in_a_line(run, db, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(leman.Database, "jobs", broken)
    code, _, err = run("jobs", "ls", db)
    assert code == 1
    assert err == "leman: ZeroDivisionError: oops. LEMAN_DEBUG=1 shows the traceback. [INTERNAL_BUG]\n"


def test_alone_it_shows_help_and_what_to_try(run):
    code, out, _ = run(remote=False)
    assert code == 0
    assert "leman demo" in out
    assert "checkpoints" in out


def test_settings_come_with_their_origin():
    command = [sys.executable, "-m", "leman.cli", "config", "show", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {row["env"]: row for row in json.loads(done.stdout)}["LEMAN_SERVER__PORT"]["origin"] == "default"


def interrupted(monkeypatch):
    """Ctrl-C comes as soon as a job is shown."""

    class Pressed(Display):
        def update(self, job, events):
            raise KeyboardInterrupt

    monkeypatch.setattr("leman.cli._job_commands.make_display", lambda *_: Pressed())


def test_an_interrupt_is_told_in_a_line(run, db, fake, monkeypatch):
    interrupted(monkeypatch)
    ended = make_job("job-1", "CANCELLED", progress={"rows_checkpointed": 1})
    fake.scripts["WatchJob"] = watched(ended)
    code, out, err = run("backfill", db, "docs", "n")
    assert (code, out) == (130, "")
    assert err == "leman: docs.n: cancelled; 1 row is kept, and the same call continues from there (job-1)\n"
    assert len(fake.named("CancelJob")) == 1


def test_a_watch_that_is_left_says_how_to_come_back(run, db, fake, monkeypatch):
    interrupted(monkeypatch)
    fake.scripts["WatchJob"] = watched(make_job("job-1", "RUNNING"))
    code, _, err = run("jobs", "watch", db, "job-1")
    assert code == 130
    assert "docs.n: the job continues; `leman jobs watch " in err
    assert len(err.splitlines()) == 1
    assert fake.named("CancelJob") == []


def test_ids_and_states_are_whole_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    job, state = "job-0123456789abcdef", "DONE_WITH_ERRORS"
    row = (job, state, "definitions.embedding", "1,234,567", "12", "12 min 20 s", "2026-01-01 00:00:00", "3 of 9 " * 5)
    headings = ("job", "state", "column", "rows", "failed", "took", "begun", "plan")
    print_table(headings, [row], whole=("job", "state"))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, shown)) <= 80
    assert [line for line in shown if f"{job}  {state}  " in line]
    plan = "".join(line[-20:] for line in shown[1:])
    assert plan.count("of 9") == 5, "what is folded is not lost"


def narrow(monkeypatch, columns):
    """A terminal of so many columns; what it shows, as lines."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    return lambda out: [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()]


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (80, "job-1  RUNNING  12:00:00  6 of 6 fragments to do (2 missing, 4 partial); about …"),
        (38, "job-1  RUNNING  12:00:00  6 of 6 frag…"),
        (37, "job-1  RUNNING  12:00:00"),
        (0, "job-1  RUNNING  12:00:00  6 of 6 fragments to do (2 missing, 4 partial); about 12 rows"),
    ],
)
def test_a_job_is_one_line_however_much_there_is_to_say(monkeypatch, capsys, columns, line):
    shown = narrow(monkeypatch, columns) if columns else str.splitlines
    row = ("job-1", "RUNNING", "12:00:00", "6 of 6 fragments to do (2 missing, 4 partial); about 12 rows")
    print_table(("job", "state", "begun", "plan"), [row], cut_last=True)
    heading, told = shown(capsys.readouterr().out)
    assert told == line
    assert heading.split() == ["job", "state", "begun", "plan"][: 3 if columns == 37 else 4]


@pytest.mark.parametrize(("days", "told"), [(0, "%H:%M:%S"), (400, "%Y-%m-%d %H:%M")])
def test_a_moment_is_told_as_short_as_it_can_be(days, told):
    when = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
    assert moment(when) == when.astimezone().strftime(told)


def test_systems_are_a_line_each_on_a_narrow_terminal(monkeypatch, capsys, tmp_path):
    said = {"pid": 2**22 + 1, "version": "0.1.0", "started_at": datetime.datetime.now(datetime.UTC).isoformat()}
    said |= {"python": f"{tmp_path}/env/bin/python3.11"}
    served = {"databases": [f"{tmp_path}/lake", "/data/other", "/data/more"]}
    (tmp_path / "databases.json").write_text(json.dumps(served))
    other = said | {"python": "/a/project/with/quite/a/long/name/.venv/bin/python"}
    found = [running_systems.System(tmp_path, said), running_systems.System(tmp_path / "nothing", other)]
    monkeypatch.setattr(running_systems, "list_systems", lambda: found)
    monkeypatch.setenv("HOME", str(tmp_path))
    _service_commands.ps()
    told = capsys.readouterr().out
    assert f" {tmp_path}/env/bin/python3.11 " in told
    assert f"  {tmp_path}/lake, /data/other and 1 more\n" in told
    shown = narrow(monkeypatch, 80)
    _service_commands.ps()
    _, one, two = shown(capsys.readouterr().out)
    assert re.match(r"4194305  session  0\.1\.0    \d\d:\d\d:\d\d +~/env +~/lake, .*…$", one)
    assert "  …a/long/name/.venv  no database" in two
    assert max(map(len, (one, two))) <= 80


def test_views_are_marked(run, db, fake):
    _, out, _ = run("tables", "ls", db)
    heading, *rows = (line.split() for line in out.splitlines())
    assert heading[:2] == ["table", "kind"]
    assert [row[1] for row in rows] == ["table"]
