"""Stages, where several refreshes are about the same one."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import lance
import numpy as np
import pyarrow as pa
import pytest

from core.domain.view import SOURCE_ROW_ID
from core.lance_io.views import scratch_table as view_stage

PARTS = [np.array([7, 8, 9]), np.array([], np.int64), np.array([1])]
COLUMNS = pa.schema([pa.field("d", pa.int64())])


@pytest.fixture
def uri(tmp_path):
    return f"{tmp_path}/__leman_stage_v_0.lance"


def ids(stage):
    return lance.dataset(stage.uri).to_table()[SOURCE_ROW_ID].to_pylist()


def test_a_stage_that_is_laid_by_many_at_once_is_one(uri):
    start = threading.Barrier(4)

    def lay(_):
        start.wait(10)
        return view_stage.lay(uri, "digest", PARTS, COLUMNS)

    with ThreadPoolExecutor(4) as pool:
        stages = list(pool.map(lay, range(4)))
    assert {tuple(stage.rows) for stage in stages} == {(3, 1)}
    assert ids(stages[0]) == [7, 8, 9, 1]
    assert lance.dataset(uri).version == 3  # laid once: the rows, the columns, what it is for


def test_a_stage_of_other_work_makes_room(uri):
    view_stage.lay(uri, "other", [np.array([5])], COLUMNS)
    assert view_stage.find(uri, "digest") is None
    assert ids(view_stage.lay(uri, "digest", PARTS, COLUMNS)) == [7, 8, 9, 1]
    assert view_stage.find(uri, "other") is None


def test_a_stage_is_shared_by_whoever_needs_no_other_rows(uri):
    view_stage.lay(uri, "digest", PARTS, COLUMNS)
    for parts in ([np.array([8, 1])], [np.array([9]), np.array([], np.int64)], []):
        assert view_stage.find_for(uri, "digest", parts) is not None
    for parts in ([np.array([8, 2])], [np.array([7]), np.array([10])]):
        assert view_stage.find_for(uri, "digest", parts) is None
    assert view_stage.find_for(uri, "other", PARTS) is None


def test_a_stage_that_lost_its_files_is_not_found_and_can_be_laid_again(uri):
    view_stage.lay(uri, "digest", PARTS, COLUMNS)
    assert view_stage.find(uri, "digest") is not None
    shutil.rmtree(f"{uri}/data")
    assert view_stage.find(uri, "digest") is None
    assert ids(view_stage.lay(uri, "digest", PARTS, COLUMNS)) == [7, 8, 9, 1]


def test_a_stage_can_be_dropped_twice(uri):
    view_stage.lay(uri, "digest", PARTS, COLUMNS)
    view_stage.drop(uri)
    view_stage.drop(uri)
    assert view_stage.find(uri, "digest") is None
