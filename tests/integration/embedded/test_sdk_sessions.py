"""What one session defined, another finds: versions, bundles and the command line, on the real services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

import leman

HELPERS = """
    STOP = {"the", "a", "of"}

    def counted(text):
        return [word for word in text.split() if word not in STOP]
"""
SCRIPT = """
    import sys
    import leman
    import helpers

    @leman.udf
    def words(text: str) -> int:
        return len(helpers.counted(text))

    @leman.udf
    class Scaled:
        def __init__(self, by=1):
            self.by = by

        def __call__(self, text: str) -> int:
            return self.by * len(helpers.counted(text))

    database, endpoint, token = sys.argv[1:]
    with leman.connect(database, endpoint, token=token) as db:
        if "docs" in db.table_names():
            table = db.open_table("docs")
        else:
            table = db.create_table("docs", {"text": ["the end of a day", "one two"]})
            table.add_columns({"words": words, "scaled": Scaled(by=10)})
        for column, function in (("words", words), ("scaled", Scaled(by=10))):
            job = db.job(table.backfill(column, udf=function, progress=False))
            print(job.progress.rows_evaluated, table.to_arrow([column])[column].to_pylist())
"""


@pytest.fixture
def endpoint(system):
    return str(system.service["executor"]), str(system.service["token"])


@pytest.fixture
def database(tmp_path):
    return tmp_path / "lake"


def run_script(folder, database, endpoint, seed):
    folder.mkdir()
    (folder / "helpers.py").write_text(textwrap.dedent(HELPERS))
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-W", "error", "script.py", str(database), *endpoint]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_same_source_in_another_session_computes_nothing(tmp_path, database, endpoint):
    first = run_script(tmp_path / "here", database, endpoint, seed="1")
    again = run_script(tmp_path / "elsewhere", database, endpoint, seed="2")
    assert first == ["2 [2, 2]", "2 [20, 20]"]
    assert again == ["0 [2, 2]", "0 [20, 20]"]


@pytest.fixture
def cli(database, endpoint):
    def call(*arguments):
        command = [sys.executable, "-m", "leman.cli", *arguments, "--endpoint", endpoint[0], "--json"]
        environment = {**os.environ, "LEMAN_TOKEN": endpoint[1]}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout), done.stderr

    return call


def test_command_line(cli, database, endpoint):
    @leman.udf(error_handling=leman.ErrorHandlingConfig(on_error=[leman.Skip(ZeroDivisionError)]))
    def inverse(x: int) -> float:
        return 1 / x

    with leman.connect(database, endpoint[0], token=endpoint[1]) as db:
        db.create_table("numbers", {"x": [4, 0, 2]}).add_columns({"y": inverse})

    db = str(database)
    assert cli("plan", db, "numbers", "y")[1]["rows_to_compute"] == 3
    code, job, err = cli("backfill", db, "numbers", "y")
    assert (code, job["state"]) == (3, "DONE_WITH_ERRORS")
    assert "1 row failed" in err
    assert cli("backfill", db, "numbers", "y")[1]["progress"]["fragments_planned"] == 0
    (group,) = cli("errors", db, job["job_id"])[1]
    assert (group["error_type"], group["rows"]) == ("ZeroDivisionError", 1)
    (error,) = cli("errors", db, job["job_id"], "--rows")[1]
    assert (error["error_type"], error["row_address"]) == ("ZeroDivisionError", 1)
    assert [j["state"] for j in cli("jobs", "ls", db)[1]] == ["DONE_WITH_ERRORS"] * 2
    assert cli("jobs", "watch", db, job["job_id"])[0] == 3
    assert cli("tables", "ls", db)[1][0]["computed_columns"][0]["udf_name"] == "inverse"
    assert cli("udfs", "ls", db)[1][0]["version"] == inverse.version
    code, document, err = cli("backfill", db, "numbers", "z")
    assert (code, document["error"]["reason"]) == (1, "COLUMN_NOT_DEFINED")
    assert err.startswith("leman: Column z is not defined in this table")
    assert len(err.splitlines()) == 1


def test_what_reads_a_database_without_services_is_told_the_same_and_starts_none(
    tmp_path, database, endpoint, monkeypatch
):
    @leman.udf(error_handling=leman.ErrorHandlingConfig(on_error=[leman.Skip(ZeroDivisionError)]))
    def inverse(x: int) -> float:
        return 1 / x

    def told(db, job_id):
        table = db.open_table("numbers")
        return [db.udfs(), db.get_errors(job_id), table.plan_backfill("y"), table.checkpoints()]

    with leman.connect(database, endpoint[0], token=endpoint[1]) as served:
        table = served.create_table("numbers", {"x": [4, 0, 2]})
        table.add_columns({"y": inverse})
        job_id = table.backfill("y", progress=False)
        table.add([{"x": 5}])
        by_services = told(served, job_id)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = sorted(database.rglob("*"))
    with leman.connect(database) as alone:
        assert told(alone, job_id) == by_services
    assert by_services[2].rows_to_compute == 1
    assert all(by_services)
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]  # such as a log of services
    assert sorted(database.rglob("*")) == before


def test_watching_tells_everything_once(db):
    @leman.udf
    def same(x: int) -> int:
        return x

    table = db.create_table("t", {"x": list(range(100))}, max_rows_per_file=25)
    table.add_columns({"y": same})
    future = table.backfill_async("y")
    watched = list(future.watch())
    assert [job.state.terminal for job, _ in watched] == [False] * (len(watched) - 1) + [True]
    told = [event.sequence for _, events in watched for event in events]
    assert told == sorted(set(told))
    last = watched[-1][0]
    assert last.progress.rows_committed == 100
    assert future.result() == last.job_id
    assert [event.sequence for event in future.events()] == told
