"""Every Arrow type, by itself and inside of others: values with NULLs at every level, made by rule from the cases."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from leman_core.functions import arrow_types
from leman_core.model.service_errors import FailedPrecondition
from tests.integration.types.type_cases import CASES, REFUSED

ROWS = 5
#: Row 1 is NULL, row 2 empty, row 4 empty too: the values lie in rows 0 and 3.
_OFFSETS = [0, 2, 2, 2, 5, 5]
_NULL = pa.array([False, True, False, False, False])


FORMATS = {"2.0": (2, 0), "2.1": (2, 1), "2.2": (2, 2)}
#: All of them with LEMAN_LONG=1; else the one that Lance writes of its own accord, which holds the most.
TRIED = FORMATS if os.environ.get("LEMAN_LONG") else {"2.2": FORMATS["2.2"]}


@dataclass(frozen=True)
class Cell:
    """A type in the matrix: `leaf` is what lies in the `nesting`. `array`: its values, ROWS of them."""

    leaf: str
    nesting: str
    array: pa.Array

    @property
    def kind(self) -> pa.DataType:
        return self.array.type

    @property
    def title(self) -> str:
        return f"{self.nesting} of {self.leaf}" if self.nesting else self.leaf


def stored(array: pa.Array) -> pa.Array:
    """As a column has it."""
    kind = arrow_types.stored_type(array.type)
    return array if array.type == kind else array.cast(kind)


def allowed(kind: pa.DataType, file_format: tuple[int, int]) -> bool:
    """Whether a column can have the type."""
    try:
        arrow_types.check_storable("c", kind, file_format)
    except FailedPrecondition:
        return False
    return True


def _list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(_OFFSETS, pa.int32()), values, mask=_NULL)


def _large_list(values: pa.Array) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(_OFFSETS, pa.int64()), values, mask=_NULL)


def _fixed_size_list(values: pa.Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.concat_arrays([values, values]), 2, mask=_NULL)


def _struct(values: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values, pa.array(range(ROWS))], ["a", "n"], mask=_NULL)


def _map(values: pa.Array) -> pa.Array:
    keys = pa.array(["k", "l", "k", "l", "m"])
    return pa.MapArray.from_arrays(pa.array(_OFFSETS, pa.int32()), keys, values, mask=_NULL)


def _keys(values: pa.Array) -> pa.Array:
    """Keys are never NULL: the first value is none."""
    one = values.slice(0, 1)
    offsets = pa.array([0, 1, 1, 1, 1, 1], pa.int32())
    return pa.MapArray.from_arrays(offsets, one, pa.array([7]), mask=_NULL)


def _dictionary(values: pa.Array) -> pa.Array:
    """The second value is NULL: rows are NULL by their own account and by that of the dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0, None], pa.int8()), values.slice(0, 2))


NESTINGS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "": lambda values: values,
    "list": _list,
    "large_list": _large_list,
    "fixed_size_list": _fixed_size_list,
    "struct": _struct,
    "map": _map,
    "map by": _keys,
    "dictionary": _dictionary,
    "list of list": lambda values: _list(_list(values)),
    "list of struct": lambda values: _list(_struct(values)),
    "list of map": lambda values: _list(_map(values)),
    "list of fixed_size_list": lambda values: _list(_fixed_size_list(values)),
    "list of dictionary": lambda values: _list(_dictionary(values)),
    "struct of list": lambda values: _struct(_list(values)),
    "struct of struct": lambda values: _struct(_struct(values)),
    "struct of map": lambda values: _struct(_map(values)),
    "struct of fixed_size_list": lambda values: _struct(_fixed_size_list(values)),
    "map of list": lambda values: _map(_list(values)),
    "map of struct": lambda values: _map(_struct(values)),
    "fixed_size_list of struct": lambda values: _fixed_size_list(_struct(values)),
    "fixed_size_list of fixed_size_list": lambda values: _fixed_size_list(_fixed_size_list(values)),
}


@functools.cache
def cells() -> list[Cell]:
    """All that Arrow itself can make. Types that hold others are a nesting each, and lie in no further one."""
    found = []
    for case in (*CASES, *REFUSED):
        values = case.make()
        values = values if len(values) == ROWS else pa.concat_arrays([values] * ROWS).slice(0, ROWS)
        for name in [""] if _holds_others(case.kind) else NESTINGS:
            nested = _made(name, values)
            if nested is not None:
                found.append(Cell(case.title, name, nested))
    return found


def _holds_others(kind: pa.DataType) -> bool:
    return pt.is_nested(kind) and not pt.is_union(kind)


def _made(nesting: str, values: pa.Array) -> pa.Array | None:
    """None where Arrow has no such array: maps by NULL or of views, dictionaries of unions."""
    try:
        made = NESTINGS[nesting](values)
        made.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, AttributeError):
        return None
    return made
