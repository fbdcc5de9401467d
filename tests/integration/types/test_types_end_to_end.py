"""Types of the matrix through SDK, gRPC, Spark, Lance and a view: a sample, or with LEMAN_LONG=1 all of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import leman
from leman import JobState
from leman_core.functions import arrow_types
from tests.integration.types.matrix import FORMATS, ROWS, Cell, allowed, cells, stored
from tests.shares import LONG

pytestmark = pytest.mark.spark

STORABLE = [cell for cell in cells() if allowed(cell.kind, FORMATS["2.2"])]
#: In one table. No divisor of the number of types or nestings, so that a sample has all sorts of both.
TOGETHER, EVERY = 12, 61
SHARES = [
    STORABLE[first::EVERY][at : at + TOGETHER]
    for first in range(EVERY if LONG else 1)
    for at in range(0, len(STORABLE[first::EVERY]), TOGETHER)
]


def same(kind: str, column: str, cell: Cell) -> leman.UDF:
    """A function that gives what it is given."""

    def of_batch(rows: pa.RecordBatch) -> pa.Array:
        return rows.column(0)

    def of_value(x: Any) -> Any:
        return x

    options = {"name": f"{kind}_{column}", "version": "1", "input_columns": [column], "data_type": cell.kind}
    if kind == "batch":
        return leman.udf(of_batch, **options)
    if kind == "array":
        of_value.__annotations__ = {"x": pa.Array, "return": pa.Array}
    return leman.udf(of_value, **options)


@pytest.mark.parametrize("share", range(len(SHARES)))
def test_a_type_goes_in_and_out(db: leman.Database, share: int) -> None:
    held = {f"x{at}": cell for at, cell in enumerate(SHARES[share])}
    columns = {name: stored(cell.array) for name, cell in held.items()}
    table = db.create_table("t", pa.table({"id": range(ROWS), **columns}))
    kinds = ("scalar", "array", "batch")
    computed = {f"y{name[1:]}": (name, same(kinds[at % 3], name, cell)) for at, (name, cell) in enumerate(held.items())}
    table.add_columns({column: function for column, (_, function) in computed.items()})
    for column in computed:
        assert db.job(table.backfill(column, progress=False)).state is JobState.DONE, column
    view = db.create_materialized_view("v", table.search(None).select(["id", *held, *computed]))
    view.refresh(progress=False)
    for found in (table.to_lance().to_table(), view.to_lance().to_table().sort_by("id")):
        for name, cell in held.items():
            wanted = repr(cell.array.to_pylist())
            for column in (name, f"y{name[1:]}"):
                assert found[column].type == arrow_types.stored_type(cell.kind), (column, cell.title)
                assert repr(found[column].to_pylist()) == wanted, (column, cell.title)
