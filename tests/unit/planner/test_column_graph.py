"""Which computed columns rest on which others."""

import pyarrow as pa
import pytest

from leman._format import column_bindings
from leman._format.column_bindings import NOT_YET, ColumnBinding, ColumnInput
from leman_core.functions import binding
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.table import TableField, TableSnapshot
from leman_planner.planning.column_graph import (
    check_cycles,
    columns_read,
    inputs_first,
    pending_columns,
    upstream_columns,
    with_columns,
)

X = 0


def computed(name, *inputs):
    """A column that reads (name, field id) pairs."""
    bound = ColumnBinding(f"id-{name}", "f", "1", tuple(ColumnInput(*pair) for pair in inputs))
    return column_bindings.bind(pa.field(name, pa.int64()), bound)


def table(*columns):
    """x, with id 0, and computed columns with the ids from 1 on."""
    fields = [TableField(pa.field("x", pa.int64()), (X,))]
    fields += [TableField(field, (at + 1,)) for at, field in enumerate(columns)]
    return TableSnapshot(uri="/t.lance", version=1, incarnation="i", fields=tuple(fields), fragments=())


CHAIN = table(computed("c", ("b", 2)), computed("b", ("a", 3), ("x", X)), computed("a", ("x", X)))


def test_inputs_come_before_what_reads_them():
    assert upstream_columns(CHAIN, "c") == ["a", "b"]
    assert upstream_columns(CHAIN, "b") == ["a"]
    assert upstream_columns(CHAIN, "a") == upstream_columns(CHAIN, "x") == []
    assert columns_read(CHAIN, "b") == ["a", "x"]


def test_other_inputs_than_those_of_the_column_may_be_asked_about():
    x, b = CHAIN.column("x"), CHAIN.column("b")
    assert upstream_columns(CHAIN, "a", [x]) == []
    with pytest.raises(FailedPrecondition) as caught:
        upstream_columns(CHAIN, "a", [b])
    assert caught.value.reason == "COLUMN_CYCLE"
    assert "a → b → a" in caught.value.message or "b → a → b" in caught.value.message


def test_a_cycle_is_refused_where_a_binding_closes_it():
    check_cycles(CHAIN, [computed("a", ("x", X))])
    with pytest.raises(FailedPrecondition) as caught:
        check_cycles(CHAIN, [computed("a", ("c", 1))])
    assert caught.value.reason == "COLUMN_CYCLE"


def test_a_field_of_a_struct_is_a_part_of_its_column():
    box = pa.field("box", pa.struct([pa.field("w", pa.int64())]))
    bound = binding.read(computed("box", ("x", X)))
    made = TableField(column_bindings.bind(box, bound), (5, 6), (TableField(pa.field("w", pa.int64()), (6,)),))
    found = TableSnapshot(
        uri="/t.lance", version=1, incarnation="i", fragments=(),
        fields=(TableField(pa.field("x", pa.int64()), (X,)), made, TableField(computed("y", ("box.w", 6)), (7,))),
    )  # fmt: skip
    assert upstream_columns(found, "y") == ["box"]


def test_columns_that_are_about_to_be_are_known_by_name():
    coming = with_columns(CHAIN, [computed("d", ("c", 1)), computed("e", ("d", NOT_YET))])
    assert upstream_columns(coming, "e") == ["a", "b", "c", "d"]
    assert [field.name for field in pending_columns(coming)] == ["d", "e"]
    assert with_columns(coming, [computed("a", ("x", X))]) is coming


def test_an_order_is_found_or_the_cycle_is_named():
    assert inputs_first({"b": ["a"], "a": []}) == ["a", "b"]
    with pytest.raises(FailedPrecondition, match="in a cycle"):
        inputs_first({"b": ["a"], "a": ["b"]})


def test_a_binding_that_is_damaged_ends_a_chain_without_a_word():
    broken = computed("b", ("a", 3)).with_metadata({column_bindings.COLUMN_ID: b"id-b"})
    assert upstream_columns(table(computed("c", ("b", 2)), broken), "c") == []
