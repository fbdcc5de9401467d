"""Tables of tens of thousands of columns: what is looked up for each column is not looked for among all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from leman_coordinator.lance_io.row_reading import _wanted
from leman_core.model.table import TableField, TableSnapshot

COLUMNS = 20_000


class Counted(tuple[TableField, ...]):
    """Columns that count how often someone goes through them all."""

    times = 0

    def __iter__(self) -> Iterator[TableField]:
        Counted.times += 1
        return super().__iter__()


def test_columns_of_a_wide_table_are_found_in_one_look_each():
    fields = Counted(TableField(pa.field(f"c{number}", pa.int64()), (number,)) for number in range(COLUMNS))
    table = TableSnapshot(uri="/t.lance", version=1, incarnation="", fields=fields, fragments=())
    names = tuple(f"c{number}" for number in reversed(range(COLUMNS)))
    Counted.times = 0
    assert [field.name for field in _wanted(table, (), is_view=False)] == list(reversed(names))
    assert tuple(field.name for field in _wanted(table, names, is_view=False)) == names
    assert table.column("nothing") is None
    assert Counted.times < 10
