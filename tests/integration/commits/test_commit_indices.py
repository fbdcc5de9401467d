"""Indexes on a computed column: what they leave out after a commit, and how they are brought up to date."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_coordinator.lance_io import column_definitions
from leman_core.model.service_errors import Aborted, FailedPrecondition, NotFound
from leman_core.storage import lance_tables
from tests.integration.commits.commit_helpers import ROWS, Planner, make_table, reasons, submit

FRAGMENTS = 4


@pytest.fixture
def table(tmp_path):
    """All of `c` is computed and indexed; so is `x`."""
    made = make_table(str(tmp_path / "t.lance"), FRAGMENTS)
    submit(Planner(made).request(*range(FRAGMENTS)))
    made.open().create_scalar_index("c", "BTREE", name="by c")
    made.open().create_scalar_index("x", "BTREE")
    return made


def left_out(table, *columns):
    return {index.name: index.rows_left_out for index in lance_tables.index_coverage(table.uri, columns)[1]}


def test_what_a_commit_replaces_is_in_no_index_on_the_column_and_in_the_others(table):
    assert left_out(table) == {"by c": 0, "x_idx": 0}
    submit(Planner(table, scale=20, version="v2").request(1, 2))
    assert left_out(table) == {"by c": 2 * ROWS, "x_idx": 0}
    assert left_out(table, "x") == {"x_idx": 0}
    _, [index] = lance_tables.index_coverage(table.uri, ["c"])
    assert (index.kind, index.columns, index.fragments, index.fragments_covered) == ("BTree", ("c",), FRAGMENTS, 2)


def test_only_the_indexes_that_are_asked_for_and_leave_rows_out_are_touched(table):
    submit(Planner(table, scale=20, version="v2").request(1))
    lance.write_dataset(pa.table({"id": [-1], "x": [-1]}), table.uri, mode="append")
    version = table.open().version
    found, covered = column_definitions.optimize_indices(table.uri, ["c"], [])
    assert (found, [(i.name, i.rows_left_out) for i in covered]) == (version + 1, [("by c", 0)])
    assert left_out(table) == {"by c": 0, "x_idx": 1}
    assert column_definitions.optimize_indices(table.uri, ["c"], []) == (found, covered)
    assert column_definitions.optimize_indices(table.uri, [], ["x_idx"])[0] == version + 2
    assert left_out(table) == {"by c": 0, "x_idx": 0}
    wanted = [20 * x for x in range(ROWS, 2 * ROWS)]
    got = table.open().to_table(filter=f"c >= {min(wanted)} AND x >= {ROWS} AND x < {2 * ROWS}")
    assert got["c"].to_pylist() == wanted


def test_a_table_without_indexes_and_an_index_that_there_is_not(tmp_path, table):
    plain = make_table(str(tmp_path / "plain.lance"), 1)
    assert column_definitions.optimize_indices(plain.uri, [], []) == (plain.open().version, [])
    with pytest.raises(NotFound) as caught:
        column_definitions.optimize_indices(table.uri, [], ["none"])
    assert caught.value.reason == "INDEX_NOT_FOUND"
    with pytest.raises(FailedPrecondition, match="Column 'nope' not found") as refused:
        column_definitions.optimize_indices(table.uri, ["c", "nope"], [])
    assert (refused.value.reason, refused.value.facts["column"]) == ("COLUMN_NOT_FOUND", "nope")
    with pytest.raises(NotFound, match="no table"):
        column_definitions.optimize_indices(str(tmp_path / "none.lance"), [], [])


def test_deleted_rows_and_fragments_that_compaction_took_away_count_for_nothing(table):
    submit(Planner(table, scale=20, version="v2").request(1, 2))
    table.open().delete(f"x >= {ROWS} AND x < {2 * ROWS}")
    assert left_out(table, "c") == {"by c": ROWS}
    table.open().delete(f"x >= {2 * ROWS} AND x < {3 * ROWS}")
    assert left_out(table, "c") == {"by c": 0}


def test_a_commit_meanwhile_is_kept_and_the_index_tried_again(table, monkeypatch):
    submit(Planner(table, scale=20, version="v2").request(1))
    request = Planner(table, scale=30, version="v3").request(1, 2)
    optimizer = type(table.open().optimize)
    build, tries = optimizer.optimize_indices, []

    def late(self, **options):
        tries.append(1)
        if len(tries) == 1:
            assert reasons(submit(request)[0]) == ["committed", "committed"]
        return build(self, **options)

    monkeypatch.setattr(optimizer, "optimize_indices", late)
    for _ in range(2):  # the first may leave out what came meanwhile
        _, [index] = column_definitions.optimize_indices(table.uri, ["c"], [])
    assert index.rows_left_out == 0
    assert table.fragment_values(1) == [30 * x for x in range(ROWS, 2 * ROWS)]
    assert table.open().to_table(filter=f"c = {30 * ROWS} AND x = {ROWS}").num_rows == 1


def test_writers_that_always_come_first(table, monkeypatch):
    submit(Planner(table, scale=20, version="v2").request(1))

    def refuse(self, **_):
        raise OSError("Retryable commit conflict for version 9")

    monkeypatch.setattr(type(table.open().optimize), "optimize_indices", refuse)
    monkeypatch.setattr(column_definitions, "_TRIES", 2)
    with pytest.raises(Aborted) as caught:
        column_definitions.optimize_indices(table.uri, [], [])
    assert caught.value.reason == "CONFLICT"


def test_a_fast_search_finds_a_new_value_once_its_vector_index_is_up_to_date(tmp_path):
    uri = str(tmp_path / "v.lance")
    vectors = np.random.default_rng(1).random((300, 8), np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)
    lance.write_dataset(pa.table({"id": range(300), "v": column}), uri)
    lance.dataset(uri).create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)
    far = np.full(8, 9, np.float32)
    new = pa.table({"id": [1000], "v": pa.FixedSizeListArray.from_arrays(pa.array(far), 8)})
    lance.write_dataset(new, uri, mode="append")

    def nearest():
        query = {"column": "v", "q": far, "k": 1, "nprobes": 2}
        return lance.dataset(uri).to_table(nearest=query, fast_search=True)["id"].to_pylist()

    assert nearest() != [1000]
    column_definitions.optimize_indices(uri, ["v"], [])
    assert nearest() == [1000]
