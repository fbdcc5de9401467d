"""The order in which columns are computed."""

from __future__ import annotations

import pytest

from leman import ComputedColumn, errors
from leman._table_model import inputs_first


def column(name: str, *inputs: str) -> ComputedColumn:
    return ComputedColumn(name, "f", "1", inputs)


def test_inputs_come_first_and_else_the_order_of_the_table_stays():
    assert inputs_first([column("b", "a.part"), column("a", "x"), column("c", "x")]) == ["a", "c", "b"]
    assert inputs_first([column("b", "x"), column("a", "x")]) == ["b", "a"]


def test_a_cycle_is_named():
    with pytest.raises(errors.FailedPrecondition, match="in a cycle") as caught:
        inputs_first([column("a", "b"), column("b", "a")])
    assert caught.value.reason == "COLUMN_CYCLE"
