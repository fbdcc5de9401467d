"""Every Arrow type, by itself and inside of others, as input and output of every kind of function.

There is one rule: a type is refused when the column is added, by the one place that decides and in the same words for
all, or every value comes back as it went, NULLs at every level, of the type that docs/types.md names.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from core.domain.udf import UdfKind
from core.errors import FailedPrecondition
from core.udf import storable
from tests.integration.types.matrix import FORMATS, Cell, allowed, cells, stored
from tests.unit.matrix_table import DELETED, MatrixTable

KINDS = (UdfKind.SCALAR, UdfKind.ARRAY, UdfKind.RECORD_BATCH)
BY_LEAF: dict[str, list[Cell]] = defaultdict(list)
for _cell in cells():
    BY_LEAF[_cell.leaf].append(_cell)


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("leaf", BY_LEAF)
def test_a_type_is_refused_or_kept(leaf: str, file_format: str, tmp_path: Path) -> None:
    version = FORMATS[file_format]
    held = {f"x{at}": cell for at, cell in enumerate(BY_LEAF[leaf]) if allowed(cell.kind, version)}
    columns = {name: stored(cell.array) for name, cell in held.items()}
    table = MatrixTable(tmp_path, {"id": pa.array(range(5)), **columns}, version)
    computed: dict[str, Cell] = {}
    for at, cell in enumerate(BY_LEAF[leaf]):
        for kind in KINDS:
            name = f"{kind.value}_{at}"
            if f"x{at}" in held:
                table.declare(name, kind, f"x{at}", cell.kind)
                computed[name] = cell
            else:
                _check_refused(table, name, kind, cell)
    found = table.fill()
    assert not table.faults
    for name, cell in computed.items():
        values = cell.array.to_pylist() * 2
        del values[DELETED]
        assert found[name].type == storable.stored_type(cell.kind), (name, cell.title)
        assert repr(found[name].to_pylist()) == repr(values), (name, cell.title)


def _check_refused(table: MatrixTable, name: str, kind: UdfKind, cell: Cell) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        table.declare(name, kind, "id", cell.kind)
    assert caught.value.reason == "TYPE_NOT_STORABLE"
    assert caught.value.facts == {"column": name, "type": str(cell.kind)}
    assert f"Column '{name}' cannot have the type {cell.kind}" in caught.value.message
