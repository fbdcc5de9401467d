"""What others commit while our files wait: before the coordinator looks, and between its look and its commit."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman_core.model.service_errors import LemanError
from tests.integration.commits.commit_helpers import (
    ROWS,
    Planner,
    Table,
    add_columns,
    between,
    make_table,
    reasons,
    submit,
)


def append(table: Table) -> None:
    lance.write_dataset(pa.table({"id": [900], "x": [900]}), table.uri, mode="append")


def delete_rows(table: Table) -> None:
    table.open().delete("id in (2, 5)")


def other_column(table: Table) -> None:
    assert reasons(submit(Planner(table, column="d").request(0))[0]) == ["committed"]


def other_fragment(table: Table) -> None:
    assert reasons(submit(Planner(table).request(1))[0]) == ["committed"]


def rename(table: Table) -> None:
    table.open().alter_columns({"path": "c", "name": "renamed"})


def configure(table: Table) -> None:
    table.open().update_config({"k": "v"})


def newer_values(table: Table) -> None:
    assert reasons(submit(Planner(table, scale=2, version="v2").request(0))[0]) == ["committed"]


def equal_values(table: Table) -> None:
    assert reasons(submit(Planner(table).request(0))[0]) == ["committed"]


def update_rows(table: Table) -> None:
    table.open().update({"x": "x + 1000"}, where="id = 4")


def merge_rows(table: Table) -> None:
    changed = pa.table({"id": pa.array([4, 901], pa.int64()), "x": pa.array([-1, -2], pa.int64())})
    merge = table.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(changed)


def compact(table: Table) -> None:
    table.open().optimize.compact_files()


def add_column(table: Table) -> None:
    add_columns(table.uri, ["e"])


def cast_other(table: Table) -> None:
    table.open().alter_columns({"path": "id", "data_type": pa.int32()})


def cast_input(table: Table) -> None:
    table.open().alter_columns({"path": "x", "data_type": pa.int32()})


def index_target(table: Table) -> None:
    table.open().create_scalar_index("c", "BTREE")


def delete_fragment(table: Table) -> None:
    table.open().delete(f"id < {ROWS}")


def drop_target(table: Table) -> None:
    table.open().drop_columns(["c"])


def cast_target(table: Table) -> None:
    table.open().alter_columns({"path": "c", "data_type": pa.int32()})


def overwrite(table: Table) -> None:
    lance.write_dataset(table.open().to_table(), table.uri, mode="overwrite", max_rows_per_file=ROWS)


def restore(table: Table) -> None:
    version = table.open().version
    table.open().delete("id = 7")
    lance.dataset(table.uri, version=version).restore()


CASES = [
    # what came between, outcome where the coordinator sees it at its first look, outcome where it does not
    (append, "committed", "committed"),
    (delete_rows, "committed", "committed"),
    (other_column, "committed", "committed"),
    (other_fragment, "committed", "committed"),
    (rename, "COLUMN_NOT_DEFINED", "committed"),
    (configure, "committed", "committed"),
    (newer_values, "FRAGMENT_CHANGED", "FRAGMENT_CHANGED"),
    (equal_values, "already_current", "already_current"),
    (update_rows, "committed", "committed"),
    (merge_rows, "committed", "committed"),
    (compact, "FRAGMENT_GONE", "FRAGMENT_GONE"),
    (add_column, "committed", "committed"),
    (cast_other, "committed", "committed"),
    (cast_input, "INPUT_CHANGED", "INPUT_CHANGED"),
    (index_target, "committed", "committed"),
    (delete_fragment, "FRAGMENT_GONE", "FRAGMENT_GONE"),
    (drop_target, "COLUMN_NOT_DEFINED", "COLUMN_NOT_DEFINED"),
    (cast_target, "TYPE_MISMATCH", "TYPE_MISMATCH"),
    (overwrite, "FRAGMENT_GONE", "FRAGMENT_GONE"),
    (restore, "committed", "committed"),
]


def became(request) -> str:
    try:
        return reasons(submit(request)[0])[0]
    except LemanError as error:
        return error.reason


@pytest.mark.parametrize("when", ["before the look", "before the commit"])
@pytest.mark.parametrize(("action", "seen", "unseen"), CASES, ids=[action.__name__ for action, _, _ in CASES])
def test_commit_beside(tmp_path, monkeypatch, when, action, seen, unseen):
    table = make_table(str(tmp_path / "t.lance"), columns=["c", "d"])
    request = Planner(table).request(0)
    if when == "before the look":
        action(table)
        assert became(request) == seen
    else:
        between(monkeypatch, lambda: action(table))
        assert became(request) == unseen
        seen = unseen
    assert_right(table, installed=seen == "committed", scale=2 if action is newer_values else 10)


def assert_right(table: Table, *, installed: bool, scale: int) -> None:
    """Every value of the column is NULL or right for its row, and all of fragment 0 is filled if it was installed."""
    dataset = table.open()
    name = next((n for n in ("c", "renamed") if n in dataset.schema.names), None)
    if name is None:
        assert not installed
        return
    rows = dataset.to_table(columns=["x", name], with_row_address=True)
    filled = 0
    for x, value, address in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        assert value in (None, scale * x)
        filled += value is not None and address >> 32 == 0
    live = sum(address >> 32 == 0 for address in rows.column("_rowaddr").to_pylist())
    assert filled == (live if installed or filled else 0)
    if installed:
        probe = rows.column("x")[0].as_py()
        assert dataset.to_table(filter=f"{name} = {scale * probe}").column("x").to_pylist() == [probe]
    dataset.validate()
