"""The commits of several columns of one job: one request for all, and an answer for each, an error too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from leman_core.model.job import Attempt, ColumnCommit, FragmentOutcome
from leman_core.model.plan import FragmentReplacement, OutputField, StagedFile
from leman_core.model.service_errors import ATTEMPT_FENCED, FailedPrecondition, Unavailable
from leman_core.model.table import TableField
from leman_executor.jobs import column_sharing
from leman_executor.jobs.column_sharing import CommitsTogether
from tests.unit.executor.manager_helpers import HEADER

STAGED = StagedFile(file="f.lance", size_bytes=1, digest="d", physical_rows=10, rows_computed=10, rows_failed=0)
FILES = [FragmentReplacement(fragment_id=i, staged=STAGED, input_files=(), replaces="") for i in range(2)]


class Commits:
    """Takes everything, in one version after the other; `refuses` says what is raised for columns instead."""

    def __init__(self, refuses: Any = lambda _columns: None) -> None:
        self.requests: list[list[str]] = []
        self._refuses = refuses

    async def replace_column(self, header: Any, output: Any, files: Any, **more: Any) -> ColumnCommit:
        return (await self.replace_columns([(header, output, files)], **more))[0]

    async def replace_columns(self, columns: Sequence[Any], **_: Any) -> list[ColumnCommit]:
        names = [output.name for _, output, _ in columns]
        self.requests.append(names)
        version = len(self.requests)
        await asyncio.sleep(0)
        if (error := self._refuses(names)) is not None:
            raise error
        done = [[FragmentOutcome(fragment_id=f.fragment_id, committed=True) for f in files] for _, _, files in columns]
        return [ColumnCommit(version, outcomes) for outcomes in done]


async def commit(together: CommitsTogether, column: str) -> int | Exception:
    """The version, or why there is none."""
    output = OutputField(TableField(pa.field(column, pa.int64()), (1,)), column)
    try:
        answer = await together.replace_column(
            replace(HEADER, output=output), output, FILES, attempt=Attempt("job-1", 1), request_id=column
        )
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error
    return answer.version


def committed(commits: Commits, *columns: str, expected: int | None = None) -> tuple[list[Any], list[Any]]:
    """The answers of columns that commit at once, and the versions that were reported."""
    told: list[tuple[int, list[str]]] = []

    async def scenario() -> list[Any]:
        together = CommitsTogether(commits, lambda version, names: told.append((version, list(names))))
        together.expect(len(columns) if expected is None else expected)
        async with asyncio.timeout(10):
            return await asyncio.gather(*(commit(together, column) for column in columns))

    return asyncio.run(scenario()), told


def test_columns_that_commit_at_once_are_one_request_and_one_version():
    commits = Commits()
    assert committed(commits, "a", "b", "c") == ([1, 1, 1], [(1, ["a", "b", "c"])])
    assert commits.requests == [["a", "b", "c"]]


def test_commits_wait_for_columns_that_may_still_commit_until_these_have_left():
    commits = Commits()

    async def scenario() -> list[Any]:
        together = CommitsTogether(commits, lambda *_: None)
        together.expect(3)
        asking = [asyncio.create_task(commit(together, column)) for column in ("a", "b")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not commits.requests
        together.leave()
        return await asyncio.gather(*asking)

    assert asyncio.run(scenario()) == [1, 1]
    assert commits.requests == [["a", "b"]]


def test_commits_wait_no_longer_than_a_moment(monkeypatch):
    monkeypatch.setattr(column_sharing, "_LONGEST_WAIT_SECONDS", 0.0)
    commits = Commits()
    assert committed(commits, "a", expected=2) == ([1], [(1, ["a"])])


def test_requests_have_a_bounded_number_of_files(monkeypatch):
    monkeypatch.setattr(column_sharing, "_MOST_FILES", 2 * len(FILES))
    commits = Commits()
    assert committed(commits, "a", "b", "c")[0] == [1, 1, 2]
    assert commits.requests == [["a", "b"], ["c"]]


def test_a_column_that_is_refused_does_not_keep_the_others_from_being_committed():
    refused = FailedPrecondition("TYPE_MISMATCH", "b is another column now")
    commits = Commits(lambda names: refused if "b" in names else None)
    answers, told = committed(commits, "a", "b", "c")
    assert answers == [2, refused, 4]
    assert commits.requests == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert told == [(2, ["a"]), (4, ["c"])]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("PEER_UNAVAILABLE", "the coordinator is away"),
        FailedPrecondition(ATTEMPT_FENCED, "another executor has the job"),
        RuntimeError("a bug"),
    ],
)
def test_what_is_no_columns_fault_is_the_answer_to_all_and_is_asked_once(error):
    commits = Commits(lambda _: error)
    assert committed(commits, "a", "b") == ([error, error], [])
    assert commits.requests == [["a", "b"]]
