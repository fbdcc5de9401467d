"""One scan for several columns: each pass gets all rows, or an error; none takes half of them for everything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import Aborted
from leman_core.storage.scan import Chunk, FragmentReader
from leman_executor.worker import sql_source
from leman_executor.worker.sql_source import SharedScan

ROWS = 100
WHOLE = RowRange(0, ROWS)


class CountingReader(FragmentReader):
    """Counts what is read; `breaks` is raised after the first ten rows."""

    def __init__(self, uri: str, breaks: BaseException | None = None) -> None:
        super().__init__(uri, 1)
        self.reads: list[Any] = []
        self._breaks = breaks

    def read(self, fragment_id: int, covered: RowRange, columns: Any, **more: Any) -> Iterator[Chunk]:
        self.reads.append(columns)
        for chunk in super().read(fragment_id, covered, columns, **more):
            if self._breaks is not None:
                yield Chunk(RowRange(0, 10), np.arange(10), chunk.rows.slice(0, 10))
                raise self._breaks
            yield chunk


@pytest.fixture
def uri(tmp_path) -> str:
    lance.write_dataset(pa.table({"x": range(ROWS)}), tmp_path / "t.lance")
    return str(tmp_path / "t.lance")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.fixture(autouse=True)
def chunk_by_chunk(monkeypatch):
    monkeypatch.setattr(sql_source, "merge_chunks", iter)


def read(scan: SharedScan, member: int) -> tuple[list[int], BaseException | None]:
    """What a pass of a member reads, and the error that it ends by."""
    found: list[int] = []
    try:
        for chunk in scan.reader_for(member).read(0, WHOLE, {"value": f"x + {member}"}, deletions=False):
            found += chunk.rows.column("value").to_pylist()
    except BaseException as error:  # noqa: BLE001 - it is looked at
        return found, error
    finally:
        scan.leave(member)
    return found, None


def test_all_members_get_their_values_of_one_read(uri, pool):
    reader = CountingReader(uri)
    scan = SharedScan(reader, 0, WHOLE, 3)
    passes = [pool.submit(read, scan, member) for member in range(3)]
    scan.run(deletions=False)
    assert [done.result(10) for done in passes] == [([x + n for x in range(ROWS)], None) for n in range(3)]
    assert reader.reads == [{"c0": "x + 0", "c1": "x + 1", "c2": "x + 2"}]


def test_a_member_that_leaves_is_not_waited_for(uri, pool):
    """Its rows are another job's, or its pass failed at once."""
    reader = CountingReader(uri)
    scan = SharedScan(reader, 0, WHOLE, 2)
    running = pool.submit(scan.run, deletions=False)
    scan.leave(0)
    assert read(scan, 1) == ([x + 1 for x in range(ROWS)], None)
    running.result(10)
    assert reader.reads == [{"c1": "x + 1"}]


@pytest.mark.parametrize(
    ("breaks", "raised"),
    [
        (Aborted("FRAGMENT_GONE", "it was compacted", fragment=0), Aborted),
        (OSError("a disk"), RuntimeError),
        (SystemExit("a panic is no Exception"), RuntimeError),
    ],
)
def test_whatever_ends_a_scan_is_raised_by_all_members(uri, pool, breaks, raised):
    """A pass to which it looked like the end of the fragment would store a file without the other rows."""
    scan = SharedScan(CountingReader(uri, breaks), 0, WHOLE, 2)
    passes = [pool.submit(read, scan, member) for member in range(2)]
    scan.run(deletions=False)
    for member, done in enumerate(passes):
        found, error = done.result(10)
        assert found == [x + member for x in range(10)]
        assert type(error) is raised
        assert str(breaks) in str(error)
    if isinstance(breaks, Aborted):
        errors = [done.result()[1] for done in passes]
        assert all(e.reason == "FRAGMENT_GONE" and e.facts == breaks.facts for e in errors)
        assert len({id(error) for error in [breaks, *errors]}) == 3


def test_after_a_failed_scan_a_member_reads_the_rest_by_itself(uri, pool):
    reader = CountingReader(uri, OSError("a disk"))
    scan = SharedScan(reader, 0, WHOLE, 1)
    running = pool.submit(scan.run, deletions=False)
    own = scan.reader_for(0)
    with pytest.raises(RuntimeError):
        list(own.read(0, WHOLE, {"value": "x"}, deletions=False))
    scan.leave(0)
    running.result(10)
    chunks = list(own.read(0, RowRange(10, ROWS), {"value": "x"}, deletions=False))
    assert sum(len(chunk.offsets) for chunk in chunks) == ROWS - 10


@pytest.mark.parametrize("begun", [False, True])
def test_an_abandoned_scan_ends_and_looks_like_the_end_to_nobody(uri, pool, begun):
    reading = threading.Event()

    class Held(CountingReader):
        def read(self, *args: Any, **more: Any) -> Iterator[Chunk]:
            reading.set()
            assert abandoned.wait(10)
            yield from super().read(*args, **more)

    abandoned = threading.Event()
    scan = SharedScan(Held(uri), 0, WHOLE, 2)
    running = pool.submit(scan.run, deletions=False)
    if begun:
        early = pool.submit(read, scan, 0)
        scan.leave(1)
        assert reading.wait(10)
    scan.abandon()
    abandoned.set()
    running.result(10)
    _, error = early.result(10) if begun else read(scan, 0)
    assert isinstance(error, RuntimeError)
