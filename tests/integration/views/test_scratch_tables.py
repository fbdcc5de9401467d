"""Scratch tables, where several refreshes are about the same one."""

from __future__ import annotations

import errno
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format.view_definitions import SOURCE_ROW_ID
from leman_core.model.service_errors import Aborted
from leman_core.storage import scratch_table as view_scratch

PARTS = [np.array([7, 8, 9]), np.array([], np.int64), np.array([1])]
COLUMNS = pa.schema([pa.field("d", pa.int64())])


@pytest.fixture
def uri(tmp_path):
    return f"{tmp_path}/__leman_scratch_v_0.lance"


def ids(scratch):
    return lance.dataset(scratch.uri).to_table()[SOURCE_ROW_ID].to_pylist()


def test_a_scratch_that_is_made_by_many_at_once_is_one(uri):
    start = threading.Barrier(4)

    def make(_):
        start.wait(10)
        return view_scratch.create(uri, "digest", PARTS, COLUMNS)

    with ThreadPoolExecutor(4) as pool:
        scratch_tables = list(pool.map(make, range(4)))
    assert {tuple(scratch.rows) for scratch in scratch_tables} == {(3, 1)}
    assert ids(scratch_tables[0]) == [7, 8, 9, 1]
    assert lance.dataset(uri).version == 3  # made once: the rows, the columns, what it is for


def test_a_scratch_of_other_work_makes_room(uri):
    view_scratch.create(uri, "other", [np.array([5])], COLUMNS)
    assert view_scratch.find(uri, "digest") is None
    assert ids(view_scratch.create(uri, "digest", PARTS, COLUMNS)) == [7, 8, 9, 1]
    assert view_scratch.find(uri, "other") is None


def test_a_scratch_is_shared_by_whoever_needs_no_other_rows(uri):
    view_scratch.create(uri, "digest", PARTS, COLUMNS)
    for parts in ([np.array([8, 1])], [np.array([9]), np.array([], np.int64)], []):
        assert view_scratch.find_for(uri, "digest", parts) is not None
    for parts in ([np.array([8, 2])], [np.array([7]), np.array([10])]):
        assert view_scratch.find_for(uri, "digest", parts) is None
    assert view_scratch.find_for(uri, "other", PARTS) is None


def test_a_scratch_that_lost_its_files_is_not_found_and_can_be_made_again(uri):
    view_scratch.create(uri, "digest", PARTS, COLUMNS)
    assert view_scratch.find(uri, "digest") is not None
    shutil.rmtree(f"{uri}/data")
    assert view_scratch.find(uri, "digest") is None
    assert ids(view_scratch.create(uri, "digest", PARTS, COLUMNS)) == [7, 8, 9, 1]


def test_a_scratch_whose_store_refuses_to_say_is_not_believed_to_be_gone(uri, monkeypatch):
    scratch = view_scratch.create(uri, "digest", PARTS, COLUMNS)

    def refuse(_uri):
        raise PermissionError(errno.EACCES, "not you", uri)

    with monkeypatch.context() as refused:
        refused.setattr(view_scratch, "open_latest", refuse)
        assert scratch.is_there()
    view_scratch.drop(uri)
    assert not scratch.is_there()


def test_a_scratch_can_be_dropped_twice(uri):
    view_scratch.create(uri, "digest", PARTS, COLUMNS)
    view_scratch.drop(uri)
    view_scratch.drop(uri)
    assert view_scratch.find(uri, "digest") is None


def test_a_scratch_that_another_refresh_put_in_its_place_is_not_read(uri):
    """Not even one with as many rows and versions."""
    mine = view_scratch.create(uri, "digest", PARTS, COLUMNS)
    assert mine.is_there()
    view_scratch.create(uri, "other", [ids + 1 for ids in PARTS], COLUMNS)
    assert not mine.is_there()
    with pytest.raises(Aborted) as caught:
        mine.again()
    assert caught.value.reason == "SCRATCH_TABLE_TAKEN"


def test_values_that_nobody_has_computed_are_not_read_as_null(uri):
    with pytest.raises(Aborted) as caught:
        view_scratch.create(uri, "digest", PARTS, COLUMNS).values(["d"], 0, 1)
    assert caught.value.reason == "SCRATCH_TABLE_TAKEN"
