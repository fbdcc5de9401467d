"""What a function of single rows is given of a column, it may be annotated with: for every type in every nesting."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from leman._signature import accepts, gives
from tests.integration.types.matrix import Cell, allowed, cells, stored

_NEWEST = (2, 2)


def annotation(values: list[Any]) -> Any:
    """Of the values that are there; None where there is none."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    if isinstance(found[0], list):
        inner = annotation([item for value in found for item in value])
        return list if inner is None else list[inner]
    if isinstance(found[0], tuple):
        parts = [annotation([pair[at] for pair in found]) for at in (0, 1)]
        return tuple if None in parts else tuple[parts[0], parts[1]]
    return type(found[0])


CELLS = [cell for cell in cells() if allowed(cell.kind, _NEWEST) and annotation(cell.array.to_pylist()) is not None]


@pytest.mark.parametrize("nesting", sorted({cell.nesting for cell in CELLS}))
def test_what_is_given_fits(nesting: str) -> None:
    for cell in (cell for cell in CELLS if cell.nesting == nesting):
        for said in _said(cell):
            assert accepts(said, stored(cell.array).type), (said, cell.title)
            assert gives(said, cell.kind), (said, cell.title)


def _said(cell: Cell) -> list[Any]:
    exact = annotation(cell.array.to_pylist())
    broad = [list] if exact is not list and str(exact).startswith("list") else []
    return [exact, exact | None, *broad, Any]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (list[tuple[str, str]], pa.map_(pa.string(), pa.int32())),
        (list[tuple[int, int]], pa.map_(pa.string(), pa.int32())),
        (list[tuple[str, int, int]], pa.map_(pa.string(), pa.int32())),
        (list[int], pa.map_(pa.string(), pa.int32())),
        (list[list[tuple[str, str]]], pa.list_(pa.map_(pa.string(), pa.int32()))),
        (int, pa.map_(pa.string(), pa.int32())),
        (list, pa.struct([("a", pa.int32())])),
        (list[str], pa.list_(pa.int32())),
        (str, pa.uuid()),
        (list[str], pa.list_(pa.uuid())),
    ],
    ids=str,
)
def test_what_is_not_given_does_not_fit(said: Any, kind: pa.DataType) -> None:
    assert not accepts(said, kind)
