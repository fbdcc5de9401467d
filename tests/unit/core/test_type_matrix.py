"""Every Arrow type, by itself and inside of others, as input and output of every kind of function.

There is one rule: a type is refused when the column is added, by the one place that decides and in the same words for
all, or every value comes back as it went, NULLs at every level, of the type that docs/types.md names.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfKind
from leman_core.functions import arrow_types
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from tests.integration.types.matrix import FORMATS, TRIED, Cell, allowed, cells, stored
from tests.shares import LONG
from tests.unit.core.matrix_table import DELETED, MatrixTable

KINDS = (UdfKind.SCALAR, UdfKind.ARRAY, UdfKind.RECORD_BATCH)
BY_LEAF: dict[str, list[Cell]] = defaultdict(list)
for _cell in cells():
    BY_LEAF[_cell.leaf].append(_cell)


#: A nesting meets one kind of function after the other, and SQL every third one, of the next type other ones; with
#: LEMAN_LONG=1 all meet all.
SHARE = 1 if LONG else 3


@pytest.mark.parametrize("file_format", TRIED)
@pytest.mark.parametrize("leaf", BY_LEAF)
def test_a_type_is_refused_or_kept(leaf: str, file_format: str, tmp_path: Path) -> None:
    version = FORMATS[file_format]
    held = {f"x{at}": cell for at, cell in enumerate(BY_LEAF[leaf]) if allowed(cell.kind, version)}
    columns = {name: stored(cell.array) for name, cell in held.items()}
    table = MatrixTable(tmp_path, {"id": pa.array(range(5)), **columns}, version)
    computed: dict[str, Cell] = {}
    for at, cell in enumerate(BY_LEAF[leaf]):
        for kind in KINDS[at % SHARE :: SHARE]:
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
        assert found[name].type == arrow_types.stored_type(cell.kind), (name, cell.title)
        assert repr(found[name].to_pylist()) == repr(values), (name, cell.title)


def _decoded(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


#: Expressions of a column, with what they make of its array.
SQL: dict[str, Callable[[pa.Array], pa.Array]] = {
    "{x}": lambda values: values,
    "coalesce({x}, {x})": lambda values: getattr(values, "storage", values),
    "case when id >= 0 then {x} end": _decoded,
    "{x} is null": lambda values: pa.array([value is None for value in values.to_pylist()]),
}


@pytest.mark.parametrize("leaf", BY_LEAF)
def test_sql_is_refused_or_has_the_values(leaf: str, tmp_path: Path) -> None:
    """Of extension types SQL sees what they are stored as, and of JSON nothing but whether it is NULL."""
    version = FORMATS["2.2"]
    tried = BY_LEAF[leaf][list(BY_LEAF).index(leaf) % SHARE :: SHARE]
    held = {f"x{at}": cell for at, cell in enumerate(tried) if allowed(cell.kind, version)}
    columns = {name: stored(cell.array) for name, cell in held.items()}
    table = MatrixTable(tmp_path, {"id": pa.array(range(5)), **columns}, version)
    wanted: dict[str, pa.Array] = {}
    for (x, cell), (text, made) in itertools.product(held.items(), SQL.items()):
        name = f"y{len(wanted)}"
        if _must_refuse(text, cell.kind):
            with pytest.raises(InvalidArgument) as caught:
                table.declare_sql(name, text.format(x=x))
            assert caught.value.reason == "INVALID_EXPRESSION", (text, cell.title)
            continue
        wanted[name] = made(stored(cell.array))
        assert table.declare_sql(name, text.format(x=x)) == wanted[name].type, (text, cell.title)
    found = table.fill()
    assert not table.faults
    for name, values in wanted.items():
        twice = values.to_pylist() * 2
        del twice[DELETED]
        assert found[name].type == values.type
        assert repr(found[name].to_pylist()) == repr(twice), name


def _must_refuse(text: str, kind: pa.DataType) -> bool:
    """NULL has no type, JSON is no other value, and CASE gives numbers, text, bytes, times and truth values."""
    if pa.types.is_null(kind):
        return "is null" not in text
    if isinstance(kind, pa.JsonType):
        return text not in {"{x}", "{x} is null"}
    odd = pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind) or isinstance(kind, pa.BaseExtensionType)
    return odd and text.startswith("case")


def _check_refused(table: MatrixTable, name: str, kind: UdfKind, cell: Cell) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        table.declare(name, kind, "id", cell.kind)
    assert caught.value.reason == "TYPE_NOT_STORABLE"
    assert caught.value.facts == {"column": name, "type": str(cell.kind)}
    assert f"Column '{name}' cannot have the type {cell.kind}" in caught.value.message
