"""Two commit coordinators of one table: what both are given at the same moment is done once, and nothing is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import CommitResult, DeleteRowsRequest, RowsRequest
from leman_coordinator.lance_io import table_removal
from leman_coordinator.lance_io.row_rewrites import StagedMerge
from leman_coordinator.lance_io.row_staging import StagedRows
from leman_coordinator.tables import table_changes
from leman_coordinator.tables.arrow_streams import Incoming
from leman_core.model.service_errors import AlreadyExists, Internal, Unavailable
from leman_core.storage.lance_tables import INCARNATION_KEY, incarnation_at
from tests.integration.commits.commit_helpers import between, submit
from tests.unit.commit_coordinator.test_staged_merges import RULES as BY_ID

RULES = replace(BY_ID, on=("n",))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"n": pa.array([0], pa.int64())}), path, enable_stable_row_ids=True)
    return path


def sent(staged: Any, numbers: list[int], request_id: str, body: str = "b") -> RowsRequest:
    """Rows as one coordinator has taken them, about to be committed."""
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)

    async def take() -> None:
        incoming = Incoming()
        writing = asyncio.ensure_future(asyncio.to_thread(staged.write, incoming))
        await incoming.put(sink.getvalue().to_pybytes())
        incoming.end()
        await writing

    asyncio.run(take())
    return staged.request(request_id, body)


def appended(uri: str, numbers: list[int], request_id: str, body: str = "b") -> RowsRequest:
    return sent(StagedRows(uri, 1 << 20), numbers, request_id, body)


def merged(uri: str, numbers: list[int], request_id: str) -> RowsRequest:
    return sent(StagedMerge(uri, RULES, 1 << 20), numbers, request_id)


def numbers_in(uri: str) -> list[int]:
    return sorted(lance.dataset(uri).to_table().column("n").to_pylist())


async def through_both(asked: list[tuple[RowsRequest, RowsRequest]]) -> list[Any]:
    """Give the first of each pair to one coordinator and the second to another one, all at once."""
    coordinators = [CommitQueues(Limits(version_conflict_max_retries=50)) for _ in range(2)]
    try:
        async with asyncio.timeout(60):
            calls = [each.submit(one) for pair in asked for each, one in zip(coordinators, pair, strict=True)]
            return await asyncio.gather(*calls)
    finally:
        for each in coordinators:
            await each.close()


@pytest.mark.parametrize("ask", [appended, merged])
def test_a_request_that_both_are_about_to_commit_is_committed_once_and_answered_alike(uri, monkeypatch, ask):
    first: list[CommitResult] = []
    theirs = ask(uri, [1, 2], "r")
    between(monkeypatch, lambda: first.extend(submit(theirs)))
    (second,) = submit(ask(uri, [1, 2], "r"))
    assert numbers_in(uri) == [0, 1, 2]
    assert (second.version, second.rows, second.merged) == (first[0].version, first[0].rows, first[0].merged)
    before = lance.dataset(uri).version
    (again,) = submit(ask(uri, [1, 2], "r"))
    assert (again.version, again.rows, again.repeated) == (first[0].version, 2, True)
    assert lance.dataset(uri).version == before, "what was taken back once is not looked for again"


def test_other_rows_under_the_id_of_a_request_of_that_moment_are_refused_and_taken_back(uri, monkeypatch):
    theirs = appended(uri, [1], "r", "these")
    between(monkeypatch, lambda: submit(theirs))
    with pytest.raises(AlreadyExists, match="was used for another request"):
        submit(appended(uri, [9], "r", "others"))
    assert numbers_in(uri) == [0, 1]


def test_what_a_coordinator_added_twice_that_died_is_taken_back_by_whoever_comes_next(uri, monkeypatch):
    theirs = appended(uri, [1], "r")
    between(monkeypatch, lambda: submit(theirs))
    looks_back = table_changes._first

    def dies(table: Any, request: RowsRequest, base: Any, made: CommitResult) -> CommitResult:
        assert made.version == base.version + 1, "it is killed before it looks back"
        return looks_back(table, request, base, made)

    with monkeypatch.context() as dying:
        dying.setattr(table_changes, "_first", dies)
        with pytest.raises(Internal):
            submit(appended(uri, [1], "r"))
    assert numbers_in(uri) == [0, 1, 1]
    submit(DeleteRowsRequest(uri, "other", "b", "n = 0"))
    assert numbers_in(uri) == [1]


def test_rows_come_and_go_through_both_at_once(uri):
    """Each request goes to both: as a caller who asks again while the first coordinator is at work."""
    asked = [(appended(uri, [n], f"a{n}"), appended(uri, [n], f"a{n}")) for n in range(1, 13)]
    asked += [(merged(uri, [n], f"m{n}"), merged(uri, [n], f"m{n}")) for n in range(20, 24)]
    answers = asyncio.run(through_both(asked))
    assert [(a.version, a.rows) for a in answers[::2]] == [(a.version, a.rows) for a in answers[1::2]]
    assert Counter(numbers_in(uri)) == Counter([0, *range(1, 13), *range(20, 24)])
    submit(DeleteRowsRequest(uri, uuid.uuid4().hex, "b", "n > 5"))
    assert numbers_in(uri) == [0, 1, 2, 3, 4, 5]


def test_merges_of_different_callers_through_one_coordinator_insert_a_key_once(uri):
    asked = [merged(uri, [n, n + 1], f"{who}{n}") for n in range(1, 20, 3) for who in "ab"]

    async def through_one() -> list[Any]:
        coordinator = CommitQueues(Limits())
        try:
            async with asyncio.timeout(60):
                return await asyncio.gather(*(coordinator.submit(one) for one in asked))
        finally:
            await coordinator.close()

    answers = asyncio.run(through_one())
    assert numbers_in(uri) == [0, *(n for n in range(1, 21) if n % 3)]
    for pair in zip(answers[::2], answers[1::2], strict=True):
        assert sorted(answer.merged for answer in pair) == [(0, 2, 0), (2, 0, 0)]


@pytest.mark.xfail(strict=True, reason="Lance lets two inserts pass side by side (decision 46)")
def test_merges_of_different_callers_through_two_coordinators_insert_a_key_once(uri, monkeypatch):
    theirs = merged(uri, [1, 2], "theirs")
    between(monkeypatch, lambda: submit(theirs))
    submit(merged(uri, [2, 3], "ours"))
    assert numbers_in(uri) == [0, 1, 2, 3]


def test_a_drop_that_fails_leaves_a_table_what_another_coordinator_gave_it(uri):
    """A job knows its table by that; it would take it for another one."""

    def given_meanwhile() -> None:
        lance.dataset(uri).update_config({INCARNATION_KEY: "of a job"})

    def fails(_: str) -> None:
        raise Unavailable("STORE_UNAVAILABLE", "away")

    with pytest.raises(Unavailable):
        table_removal.drop_once(uri, "r", given_meanwhile, fails)
    assert incarnation_at(uri) == "of a job"


def replaced(uri: str) -> None:
    """Another coordinator drops the table, and someone makes another one."""
    table_removal.remove_folder(uri, "")
    lance.write_dataset(pa.table({"n": [7, 8]}), uri)


def removed(uri: str, kind: str, incarnation: str) -> None:
    if kind == "view":
        table_removal.drop_view(str(Path(uri).parent), "t", incarnation)
    else:
        table_removal.remove_table(uri, incarnation)


@pytest.mark.parametrize("kind", ["table", "view"])
@pytest.mark.parametrize("amid", [False, True])
def test_a_coordinator_that_freezes_in_a_drop_leaves_what_others_made_meanwhile(uri, kind, amid, monkeypatch):
    def remove(incarnation: str) -> None:
        if amid:
            monkeypatch.setattr(table_removal, "remove_checkpoints_elsewhere", replaced)
        else:
            replaced(uri)
        removed(uri, kind, incarnation)

    table_removal.drop_once(uri, "r", lambda: None, remove)
    assert lance.dataset(uri).to_table().to_pydict() == {"n": [7, 8]}
    assert [path.name for path in (Path(uri).parent / "_leman").iterdir()] == ["drops"]


def test_a_folder_that_one_drop_looks_at_is_not_removed_by_another_one(uri, monkeypatch):
    """It would be half a table by the time it gets its name back."""
    known, own = table_removal.incarnation_at, Path(uri).parent / "_leman"

    def other_drops(place: str) -> str | None:
        table_removal._sweep(own)
        return known(place)

    monkeypatch.setattr(table_removal, "incarnation_at", other_drops)
    monkeypatch.setattr(table_removal, "remove_checkpoints_elsewhere", replaced)
    table_removal.drop_once(uri, "r", lambda: None, lambda incarnation: table_removal.remove_table(uri, incarnation))
    assert lance.dataset(uri).to_table().to_pydict() == {"n": [7, 8]}
    monkeypatch.undo()
    monkeypatch.setattr(table_removal, "incarnation_at", other_drops)
    table_removal.drop_once(uri, "s", lambda: None, lambda incarnation: table_removal.remove_table(uri, incarnation))
    assert not Path(uri).exists()
    assert [path.name for path in own.iterdir()] == ["drops"]


def test_what_somebody_stopped_looking_at_goes_a_day_later(uri, monkeypatch):
    left = Path(uri).parent / "_leman" / "moved-before"
    (left / "data").mkdir(parents=True)
    table_removal._sweep(left.parent)
    assert left.exists()
    monkeypatch.setattr(table_removal, "DAY", -1.0)
    table_removal._sweep(left.parent)
    assert not left.exists()


def test_what_somebody_is_about_to_make_gets_its_name_back_too(uri, monkeypatch):
    def begun(place: str) -> None:
        table_removal.remove_folder(place, "")
        (Path(place) / "data").mkdir(parents=True)
        (Path(place) / "data" / "rows.lance").write_bytes(b"rows")

    def remove(incarnation: str) -> None:
        monkeypatch.setattr(table_removal, "remove_checkpoints_elsewhere", begun)
        table_removal.remove_table(uri, incarnation)

    table_removal.drop_once(uri, "r", lambda: None, remove)
    assert (Path(uri) / "data" / "rows.lance").read_bytes() == b"rows"


def test_a_table_that_loses_its_name_to_a_third_one_is_set_aside(uri, monkeypatch):
    is_other_table = table_removal.is_other_table

    def third(place: str, incarnation: str) -> bool:
        if not Path(uri).exists():
            lance.write_dataset(pa.table({"n": [9]}), uri)
        return is_other_table(place, incarnation)

    def remove(incarnation: str) -> None:
        monkeypatch.setattr(table_removal, "remove_checkpoints_elsewhere", replaced)
        monkeypatch.setattr(table_removal, "is_other_table", third)
        table_removal.remove_table(uri, incarnation)

    table_removal.drop_once(uri, "r", lambda: None, remove)
    assert lance.dataset(uri).to_table().to_pydict() == {"n": [9]}
    (aside,) = (Path(uri).parent / "_leman").glob("set-aside-*")
    assert lance.dataset(str(aside)).to_table().to_pydict() == {"n": [7, 8]}
