"""Commit queues: group commit, bounds, failures that do not say what happened, several coordinators."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from leman_coordinator.commits import commit_queue as queue_module
from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import AddColumnsRequest, Status
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.model.service_errors import (
    Aborted,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from leman_core.storage import transactions
from tests.integration.commits.commit_helpers import (
    ROWS,
    Planner,
    add_columns,
    between,
    flatten,
    in_queues,
    make_table,
    new_field,
    reasons,
    submit,
)

RIGHT = [10 * x for x in range(ROWS)]


class Gate:
    """Holds commits back, of one table or of all, until it is opened."""

    def __init__(self, monkeypatch, uri: str = "") -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        commit = lance.LanceDataset.commit

        def gated(dataset, *args, **kwargs):
            if uri in ("", dataset.uri):
                self.reached.set()
                assert self.open.wait(30)
            return commit(dataset, *args, **kwargs)

        monkeypatch.setattr(lance.LanceDataset, "commit", gated)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 -- threads tell no one; `in_queues` sets the deadline
        await asyncio.sleep(0.001)


def waiting(queues: CommitQueues, uri: str) -> int:
    return len(queues._queues[uri]._queue)


def test_a_request_without_fragments_is_answered(table):
    planner = Planner(table)
    request = planner.request()
    with pytest.raises(InvalidArgument, match="no fragment") as caught:
        submit(request)
    assert caught.value.reason == "MISSING_FIELD"


def test_a_manifest_that_is_zeroed_between_two_commits_is_damage(table):
    """The commit queue has the table open: it is not one that was dropped and made again."""
    planner = Planner(table)
    requests = [planner.request(fragment) for fragment in range(2)]

    def zero_the_latest() -> str:
        manifest = min(Path(table.uri, "_versions").glob("*.manifest"))
        manifest.write_bytes(bytes(manifest.stat().st_size))
        return str(manifest)

    async def load(queues):
        await queues.submit(requests[0])
        manifest = zero_the_latest()
        with pytest.raises(DataLoss) as caught:
            await queues.submit(requests[1])
        return manifest, caught.value

    manifest, error = in_queues(load)
    assert (error.reason, error.facts["path"]) == ("TABLE_DAMAGED", manifest)
    assert "Put it back from a backup" in error.message


# --------------------------------------------------------------------------------- group commit


def test_what_waits_while_a_commit_runs_becomes_one_version(tmp_path, monkeypatch):
    table = make_table(str(tmp_path / "t.lance"), fragments=100)
    planner = Planner(table)
    requests = [planner.request(i, request_id=f"r{i}", job_id=f"job{i % 16}") for i in range(100)]
    before = table.open().version
    gate = Gate(monkeypatch)

    async def load(queues):
        first = asyncio.ensure_future(queues.submit(requests[0]))
        await until(gate.reached.is_set)
        others = [asyncio.ensure_future(queues.submit(request)) for request in requests[1:]]
        await until(lambda: waiting(queues, table.uri) == 99)
        gate.open.set()
        return [await first, *await asyncio.gather(*others)]

    results = in_queues(load)

    assert set(flatten(results)) == {"committed"}
    assert table.open().version == before + 2
    assert {r.version for r in results[1:]} == {before + 2}
    assert table.column() == [10 * x for x in range(100 * ROWS)]
    record = transactions.find_commit(table.uri, "r57")
    assert set(record.request_ids) == {f"r{i}" for i in range(1, 100)}
    assert set(record.job_ids) == {f"job{i}" for i in range(16)}


def test_under_load_there_are_fewer_versions_than_submits(tmp_path):
    columns = ["c", "d"]
    table = make_table(str(tmp_path / "t.lance"), fragments=50, columns=columns)
    planners = [Planner(table, column=name, scale=scale) for name, scale in zip(columns, (10, 3), strict=True)]
    requests = [planner.request(i) for i in range(50) for planner in planners]
    before = table.open().version
    assert set(flatten(submit(*requests))) == {"committed"}
    assert table.open().version - before < 100
    assert table.column("c") == [10 * x for x in range(500)]
    assert table.column("d") == [3 * x for x in range(500)]


def of_column(table, name: str, *fragment_ids: int, **options):
    """A request of the executor's: it says what the column reads."""
    planner = Planner(table, column=name)
    return replace(planner.request(*fragment_ids, **options), input_field_ids=planner.input_ids)


def test_columns_that_wait_together_get_one_version(tmp_path, monkeypatch):
    table = make_table(str(tmp_path / "t.lance"), columns=["c", "d", "e"])
    requests = [of_column(table, name, 0, number) for number, name in enumerate(("c", "d", "e"), 1)]
    blocker = Planner(table).request(3)
    before = table.open().version
    gate = Gate(monkeypatch)

    async def load(queues):
        first = asyncio.ensure_future(queues.submit(blocker))
        await until(gate.reached.is_set)
        others = [asyncio.ensure_future(queues.submit(request)) for request in requests]
        await until(lambda: waiting(queues, table.uri) == 3)
        gate.open.set()
        await first
        return await asyncio.gather(*others)

    assert set(flatten(in_queues(load))) == {"committed"}
    assert table.open().version == before + 2
    for number, name in enumerate(("c", "d", "e"), 1):
        for fragment_id in (0, number):
            assert table.column(name)[fragment_id * ROWS : (fragment_id + 1) * ROWS] == [
                10 * x for x in range(fragment_id * ROWS, (fragment_id + 1) * ROWS)
            ]
    table.open().validate()


def together(table, *names: str, fragments=(0, 1)):
    first, *others = [of_column(table, name, *fragments, request_id="together") for name in names]
    return replace(first, others=tuple(others))


def test_a_request_of_several_columns_is_one_version(tmp_path):
    table = make_table(str(tmp_path / "t.lance"), columns=["c", "d", "e"])
    table.open().create_scalar_index("d", "BTREE")
    request, before = together(table, "c", "d", "e"), table.open().version

    result = submit(request)[0]

    assert reasons(result) == ["committed"] * 6
    assert [outcome.fragment_id for outcome in result.outcomes] == [0, 1] * 3
    dataset = table.open()
    assert dataset.version == result.version == before + 1
    assert [table.column(name)[: 2 * ROWS] for name in ("c", "d", "e")] == [[10 * x for x in range(20)]] * 3
    assert dataset.to_table(filter="d = 30").num_rows == 1, "the index leaves the fragments out"
    moved = dataset.to_table(columns=["_row_last_updated_at_version"])["_row_last_updated_at_version"].to_pylist()
    assert (set(moved[: 2 * ROWS]), max(moved[2 * ROWS :])) == ({result.version}, 1)
    dataset.validate()
    record = transactions.find_commit(table.uri, "together")
    assert (record.version, record.operation, record.fragments) == (result.version, "DataReplacement", 2)
    assert {i: sorted(files) for i, files in record.files.items()} == {
        i: sorted(r.staged.file for column in request.columns for r in column.replacements if r.fragment_id == i)
        for i in (0, 1)
    }
    assert submit(request)[0].outcomes == result.outcomes, "sent again it commits nothing"
    assert table.open().version == before + 1


def test_a_column_that_reads_another_one_is_not_in_its_version(tmp_path):
    table = make_table(str(tmp_path / "t.lance"), columns=["c"])
    add_columns(table.uri, ["d"], inputs="c")
    submit(of_column(table, "c", 0))
    request, before = together(table, "c", "d", fragments=(0,)), table.open().version
    newer = replace(of_column(table, "c", 0), replacements=Planner(table, version="v2").request(0).replacements)
    assert reasons(submit(replace(newer, others=request.others))[0]) == ["committed", "INPUT_CHANGED"]
    assert table.open().version == before + 1


def test_columns_that_conflict_together_are_committed_apart(tmp_path, monkeypatch):
    """Lance refuses an Update of a fragment of which rows were deleted meanwhile, and no DataReplacement."""
    table = make_table(str(tmp_path / "t.lance"), columns=["c", "d"])
    request, before = together(table, "c", "d"), table.open().version
    commit, rows = lance.LanceDataset.commit, iter(range(ROWS))

    def deleting_first(dataset, transaction, **options):
        if isinstance(transaction.operation, lance.LanceOperation.Update):
            lance.dataset(table.uri).delete(f"x = {next(rows)}")
        return commit(dataset, transaction, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", deleting_first)
    assert reasons(submit(request)[0]) == ["committed"] * 4
    tried = next(rows)
    assert table.open().version == before + tried + 2
    for name in ("c", "d"):
        assert table.column(name)[: 2 * ROWS - tried] == [10 * x for x in range(tried, 2 * ROWS)]


def test_a_file_that_is_refused_leaves_the_other_columns_in(tmp_path):
    table = make_table(str(tmp_path / "t.lance"), columns=["c", "d", "e"])
    request = together(table, "c", "d", "e")
    Path(table.uri, "data", request.others[0].replacements[1].staged.file).write_bytes(b"damaged")
    before = table.open().version
    assert reasons(submit(request)[0]) == [*["committed"] * 3, "FILE_DAMAGED", "committed", "committed"]
    assert table.open().version == before + 1
    assert table.column("d")[: 2 * ROWS] == [*(10 * x for x in range(ROWS)), *[None] * ROWS]


def test_first_of_two_for_one_fragment_wins_and_the_other_is_looked_at_again(table, monkeypatch):
    blocker = Planner(table).request(3)
    first = Planner(table, scale=1, version="v1").request(0)
    equal = Planner(table, scale=1, version="v1").request(1, 0)
    other = Planner(table, scale=2, version="v2").request(0, 2)
    gate = Gate(monkeypatch)

    async def load(queues):
        tasks = [asyncio.ensure_future(queues.submit(blocker))]
        await until(gate.reached.is_set)
        for number, request in enumerate((first, equal, other), 1):
            tasks.append(asyncio.ensure_future(queues.submit(request)))
            await until(lambda n=number: waiting(queues, table.uri) == n)
        gate.open.set()
        return await asyncio.gather(*tasks)

    assert [reasons(result) for result in in_queues(load)[1:]] == [
        ["committed"],
        ["committed", "already_current"],
        ["FRAGMENT_CHANGED", "committed"],
    ]
    assert table.fragment_values(0) == list(range(ROWS))
    assert table.fragment_values(2) == [2 * x for x in range(20, 30)]


def test_outcomes_come_in_the_order_of_the_request(table):
    request = Planner(table).request(3, 0, 2)
    assert [o.fragment_id for o in submit(request)[0].outcomes] == [3, 0, 2]


def test_nothing_committed_is_version_zero(table):
    submit(Planner(table).request(0))
    result = submit(Planner(table).request(0))[0]
    assert (result.version, reasons(result)) == (0, ["already_current"])


@pytest.mark.parametrize(
    "type_",
    [
        pa.string(),
        pa.list_(pa.float32()),
        pa.list_(pa.float32(), 3),
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        pa.map_(pa.string(), pa.int32()),
        pa.timestamp("us", "UTC"),
        pa.decimal128(12, 3),
        pa.large_binary(),
        pa.bool_(),
    ],
    ids=str,
)
def test_columns_of_every_shape_are_installed_and_replaced(tmp_path, type_):
    table = make_table(str(tmp_path / "t.lance"), fragments=2, columns=[])
    name = "c d'e"
    add_columns(table.uri, [name], type_)
    for version in ("v1", "v2"):
        request = Planner(table, column=name, version=version).request(0, values=[None] * ROWS)
        assert reasons(submit(request)[0]) == ["committed"]
        assert reasons(submit(request)[0]) == ["committed"]
        assert table.files(0, name) == (request.replacements[0].staged.file,)
    assert table.column(name) == [None] * 2 * ROWS
    table.open().validate()


# ------------------------------------------------------------------------------------- bounds


def test_full_queue_refuses_at_once(table, monkeypatch):
    requests = [Planner(table).request(i) for i in range(3)]
    gate = Gate(monkeypatch)

    async def load(queues):
        admitted = [asyncio.ensure_future(queues.submit(request)) for request in requests[:2]]
        await until(gate.reached.is_set)
        with pytest.raises(ResourceExhausted) as caught:
            await queues.submit(requests[2])
        gate.open.set()
        await asyncio.gather(*admitted)
        return caught.value.reason, await queues.submit(requests[2])

    reason, later = in_queues(load, Limits(max_queued_requests=2))
    assert reason == "COMMIT_QUEUE_FULL"
    assert reasons(later) == ["committed"]


def test_idle_queue_goes_and_comes_back(table):
    async def load(queues):
        await queues.submit(Planner(table).request(0))
        assert queues.tables == {table.uri}
        await until(lambda: not queues.tables)
        return await queues.submit(Planner(table).request(1))

    assert reasons(in_queues(load, Limits(idle_seconds=0.01))) == ["committed"]


def test_tables_have_queues_of_their_own(tmp_path, monkeypatch):
    """A commit that hangs on one table does not hold up another."""
    slow, quick = (make_table(str(tmp_path / f"{name}.lance")) for name in ("slow", "quick"))
    stuck, request = Planner(slow).request(0), Planner(quick).request(0)
    gate = Gate(monkeypatch, slow.uri)

    async def load(queues):
        first = asyncio.ensure_future(queues.submit(stuck))
        await until(gate.reached.is_set)
        result = await queues.submit(request)
        gate.open.set()
        return result, await first

    assert flatten(in_queues(load)) == ["committed", "committed"]


# --------------------------------------------------------- failures that do not say what happened


def failing(monkeypatch, *, commits: bool, times: int = 1, error: BaseException | None = None) -> list[int]:
    """The first `times` commits raise, after (`commits`) or before they reach the table. Returns the calls made."""
    commit, calls = lance.LanceDataset.commit, []

    def unreliable(*args, **kwargs):
        calls.append(1)
        if len(calls) > times:
            return commit(*args, **kwargs)
        if commits:
            commit(*args, **kwargs)
        raise error or OSError("connection reset by peer")

    monkeypatch.setattr(lance.LanceDataset, "commit", unreliable)
    return calls


def fail_after_commits(monkeypatch, errors: list[BaseException]) -> list[BaseException]:
    """Looks at the latest version raise these errors, one each, from the second look on; return those that are left."""
    latest, looks = TableHandle.latest, []

    def unreadable(handle, *args):
        looks.append(1)
        if len(looks) > 1 and errors:
            raise errors.pop()
        return latest(handle, *args)

    monkeypatch.setattr(TableHandle, "latest", unreadable)
    return errors


@pytest.mark.parametrize("commits", [True, False])
def test_lost_reply_of_the_store_is_looked_after(table, monkeypatch, commits):
    request = Planner(table).request(0)
    before = table.open().version
    calls = failing(monkeypatch, commits=commits)
    assert reasons(submit(request)[0]) == ["committed"]
    assert table.open().version == before + 1
    assert len(calls) == (1 if commits else 2)


def test_lost_reply_is_found_in_the_history_when_the_file_is_gone_again(table, monkeypatch):
    request = Planner(table).request(0)

    class CommittedAnyway(OSError):
        """Raised once the file was installed and compacted away."""

    commit = lance.LanceDataset.commit

    def lost(*args, **kwargs):
        commit(*args, **kwargs)
        table.open().optimize.compact_files()
        raise CommittedAnyway("reply lost")

    monkeypatch.setattr(lance.LanceDataset, "commit", lost)
    assert reasons(submit(request)[0]) == ["committed"]
    assert sorted(v for v in table.column() if v is not None) == RIGHT


def test_unknown_is_not_reported_as_failed(table, monkeypatch):
    request = Planner(table).request(0)
    calls = failing(monkeypatch, commits=False, times=99)
    with pytest.raises(Unavailable) as caught:
        submit(request, limits=Limits(version_conflict_max_retries=2, longest_backoff_seconds=0.01))
    assert caught.value.reason == "COMMIT_UNKNOWN"
    assert len(calls) == 3
    monkeypatch.undo()
    assert reasons(submit(request)[0]) == ["committed"]


def test_last_try_that_committed_counts(table, monkeypatch):
    request = Planner(table).request(0)
    failing(monkeypatch, commits=True, times=99)
    limits = Limits(version_conflict_max_retries=0)
    assert reasons(submit(request, limits=limits)[0]) == ["committed"]


def test_queue_survives_a_panic_and_a_bug(table, monkeypatch):
    class Panic(BaseException):
        """What a Rust panic looks like."""

    planner = Planner(table)

    async def load(queues):
        outcomes = []
        for number, error in enumerate((Panic("unwrap"), RuntimeError("bug"))):
            look = queue_module.TableHandle.latest
            monkeypatch.setattr(queue_module.TableHandle, "latest", raising(error))
            result = await asyncio.gather(
                queues.submit(planner.request(number, request_id=f"a{number}")), return_exceptions=True
            )
            outcomes.append(result[0].reason)
            monkeypatch.setattr(queue_module.TableHandle, "latest", look)
        return outcomes, await queues.submit(planner.request(0, 1))

    outcomes, after = in_queues(load)
    assert outcomes == ["INTERNAL_BUG", "INTERNAL_BUG"]
    assert reasons(after) == ["committed", "committed"]


def raising(error: BaseException):
    def fail(*_args, **_kwargs):
        raise error

    return fail


def test_conflict_without_end_is_a_rejection(table, monkeypatch):
    """Someone adds a column each time: Lance takes that for a conflict, our checks do not."""
    request = Planner(table).request(0)
    commit, names = lance.LanceDataset.commit, []

    def contested(*args, **kwargs):
        names.append(f"extra{len(names)}")
        add_columns(table.uri, names[-1:])
        return commit(*args, **kwargs)

    monkeypatch.setattr(lance.LanceDataset, "commit", contested)
    limits = Limits(version_conflict_max_retries=3, longest_backoff_seconds=0.01)
    assert reasons(submit(request, limits=limits)[0]) == ["CONFLICT"]
    assert len(names) == 4
    assert table.column() == [None] * 4 * ROWS


def test_conflict_of_one_fragment_does_not_reject_the_others(table, monkeypatch):
    request = Planner(table, scale=1).request(0, 1, 2)
    between(monkeypatch, lambda: submit(Planner(table, scale=2, version="v2").request(1)))
    assert reasons(submit(request)[0]) == ["committed", "FRAGMENT_CHANGED", "committed"]
    assert table.column()[: 3 * ROWS] == [*range(10), *range(20, 40, 2), *range(20, 30)]


# ------------------------------------------------------------------------- tables come and go


def test_queue_follows_its_table_through_deletion_and_re_creation(table):
    async def load(queues):
        first = await queues.submit(Planner(table).request(0))
        stale = Planner(table).request(1)
        shutil.rmtree(table.uri)
        with pytest.raises(NotFound):
            await queues.submit(stale)
        make_table(table.uri)
        with pytest.raises(Aborted):
            await queues.submit(stale)
        return first, await queues.submit(Planner(table, scale=3).request(0))

    assert flatten(in_queues(load)) == ["committed", "committed"]
    assert table.fragment_values(0) == [3 * x for x in range(ROWS)]


# ------------------------------------------------------------------------------- added columns


def test_columns_are_added_in_the_queue_beside_commits(table):
    base = table.snapshot()
    additions = [
        AddColumnsRequest(
            uri=table.uri,
            incarnation=base.incarnation,
            request_id=f"a{n}",
            schema=pa.schema([new_field(base, f"new{n}")]),
        )
        for n in range(5)
    ]
    requests = [Planner(table).request(i) for i in range(4)]
    results = submit(*(item for pair in zip(requests, additions, strict=False) for item in pair), additions[4])
    assert set(flatten(results)) == {"committed"}
    assert table.column() == [10 * x for x in range(40)]
    assert set(table.open().schema.names) >= {f"new{n}" for n in range(5)}
    added = [r for r in results if not r.outcomes]
    assert sorted(r.version for r in added) == sorted({r.version for r in added})


def test_addition_is_answered_the_same_when_sent_again(table):
    base = table.snapshot()
    request = AddColumnsRequest(
        uri=table.uri, incarnation=base.incarnation, request_id="a", schema=pa.schema([new_field(base, "d")])
    )
    assert submit(request) == submit(request)  # other commit queues: a coordinator that was restarted
    twin = replace(request, request_id="b", schema=pa.schema([new_field(base, "d")]))
    with pytest.raises(FailedPrecondition) as caught:
        submit(twin)
    assert caught.value.reason == "COLUMN_EXISTS"


def test_addition_is_for_the_table_that_was_planned(table):
    base = table.snapshot()
    schema = pa.schema([new_field(base, "d")])
    with pytest.raises(Aborted) as caught:
        submit(AddColumnsRequest(uri=table.uri, incarnation="another", request_id="a", schema=schema))
    assert caught.value.reason == "TABLE_REPLACED"
    assert (
        submit(AddColumnsRequest(uri=table.uri, incarnation="", request_id="b", schema=schema))[0].version
        == table.open().version
    )


def test_addition_to_no_table_is_not_found(tmp_path):
    schema = pa.schema([pa.field("d", pa.int64())])
    with pytest.raises(NotFound):
        submit(AddColumnsRequest(uri=str(tmp_path / "none.lance"), incarnation="", request_id="a", schema=schema))


# ------------------------------------------------------------------------- several coordinators


def test_two_coordinators_on_one_table_lose_and_double_nothing(tmp_path):
    """Each fragment is offered to both, with other values: exactly one wins it."""
    table = make_table(str(tmp_path / "t.lance"), fragments=24)
    planners = {1: Planner(table, scale=1), 2: Planner(table, scale=2, version="v2")}
    offers = {scale: [p.request(i, i + 1) for i in range(0, 24, 2)] for scale, p in planners.items()}

    async def both(mine):
        theirs = CommitQueues(Limits())
        try:
            tasks = [mine.submit(r) for r in offers[1]] + [theirs.submit(r) for r in offers[2]]
            results = await asyncio.gather(*tasks)
        finally:
            await theirs.close()
        return results[:12], results[12:]

    first, second = in_queues(both)

    def won(results):
        return {o.fragment_id for r in results for o in r.outcomes if o.status is Status.COMMITTED}

    assert won(first) | won(second) == set(range(24))
    assert won(first) & won(second) == set()
    losers = set(flatten([*first, *second])) - {"committed"}
    assert losers == {"FRAGMENT_CHANGED"}
    scale = {i: 1 if i in won(first) else 2 for i in range(24)}
    assert table.column() == [scale[x // ROWS] * x for x in range(24 * ROWS)]


def test_two_coordinators_with_one_request_commit_it_once(table):
    request = Planner(table).request(0, 1, 2, 3)
    before = table.open().version

    async def both(mine):
        theirs = CommitQueues(Limits())
        try:
            return await asyncio.gather(mine.submit(request), theirs.submit(request))
        finally:
            await theirs.close()

    assert set(flatten(in_queues(both))) == {"committed"}
    assert table.open().version == before + 1


def die_after_commit(request) -> None:
    """In a process of its own: a coordinator that is killed between commit and reply."""
    commit = lance.LanceDataset.commit

    def last(*args, **kwargs):
        commit(*args, **kwargs)
        os._exit(9)

    lance.LanceDataset.commit = last
    submit(request)


@pytest.mark.faults
def test_coordinator_killed_between_commit_and_reply(table):
    request = Planner(table).request(0, 1)
    before = table.open().version
    victim = multiprocessing.get_context("spawn").Process(target=die_after_commit, args=(request,))
    victim.start()
    victim.join(60)
    assert victim.exitcode == 9
    assert reasons(submit(request)[0]) == ["committed", "committed"]
    assert table.open().version == before + 1
    assert table.column()[: 2 * ROWS] == [10 * x for x in range(20)]
