"""A database of the release before is opened, continued and verified.

`release_before.tar.gz` was made by `make_database.py` in an environment of that release: a table with computed columns
and rows that changed since, failed rows, a view that is behind its source, and a job whose services were killed.
"""

from __future__ import annotations

import importlib
import json
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

import leman

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def functions() -> ModuleType:
    """The functions, imported by the name that they had when the database was made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        return importlib.import_module("upgrade_functions")


@pytest.fixture
def unpacked(tmp_path):
    with tarfile.open(HERE / "release_before.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def expected(unpacked):
    return json.loads((unpacked / "expected.json").read_text())


@pytest.fixture
def lake(unpacked, system, expected):
    with system.connect(unpacked / "lake") as database:
        yield database


def by_id(table: leman.Table) -> dict[int, dict[str, object]]:
    return {row["id"]: row for row in table.to_arrow().to_pylist()}


def test_a_database_of_the_release_before_goes_on(lake, expected, functions):
    """One test: what it asks of the database changes it for what follows."""
    ended = expected["ended jobs"]
    assert {job: lake.job(job).state.name for job in ended} == ended
    docs, answers = lake.open_table("docs"), lake.open_table("answers")
    before = {row["id"]: row for row in expected["docs"]}
    assert by_id(docs) == before

    # The job that was killed goes on under its id, and keeps what was in checkpoints.
    lake.job_future(expected["running job"]).result()
    assert lake.job(expected["running job"]).state.name == "DONE"
    found = {row["question"]: row["answer"] for row in answers.to_arrow().to_pylist()}
    assert all(answer.startswith(f"{question}@") for question, answer in found.items())
    assert {question: found[question] for question in expected["checkpointed answers"]} == expected[
        "checkpointed answers"
    ]

    # The same functions have the versions that they had: nothing is stale, and nothing is declared again.
    columns = {"stamp": (functions.stamp, ["text"]), "grade": (functions.grade, ["text"])}
    docs.add_columns({**columns, "chained": (functions.chained, ["stamp"])})
    answers.add_columns({"answer": (functions.answer, ["question"])})
    version = answers.version
    answers.backfill("answer", progress=False)
    assert answers.version == version

    # Only rows that changed are computed.
    failed = docs.get_failed_row_addresses(column_name="grade")
    assert len(failed) == expected["failed rows"]
    docs.backfill(progress=False)
    after = by_id(docs)
    assert all(row["stamp"].startswith(f"{row['text']}@") for number, row in after.items())
    changed = {number for number, row in after.items() if row != before[number]}
    assert changed == {3, 60, 61, 62, 63, 64}
    assert all(after[number]["chained"].startswith(after[number]["stamp"]) for number in after)
    assert all(after[number]["length"] == len(after[number]["text"]) for number in after)

    # Failed rows are retried alone: they fail again, and the others stay.
    job = next(job for job in ended if ended[job] == "DONE_WITH_ERRORS")
    assert lake.get_errors(job, column_name="grade")
    lake.retry_job(job, progress=False)
    assert by_id(docs) == after
    assert len(docs.get_failed_row_addresses(column_name="grade")) == len(failed)

    # The view is refreshed at the cost of what changed.
    even, seen = lake.open_view("even"), {row["id"]: row["seen"] for row in expected["even"]}
    even.refresh(progress=False)
    rows = by_id(even)
    assert set(rows) == {number for number in after if number % 2 == 0}
    assert {number for number in rows if rows[number]["seen"] != seen.get(number)} == {60, 62, 64}

    assert lake.verify().sound
