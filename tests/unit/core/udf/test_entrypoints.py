"""Entrypoints that a function may name."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions.function_definitions import check_definition
from leman_core.model.service_errors import InvalidArgument

NAMED = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:f")


@pytest.mark.parametrize("entrypoint", ["m:f", "package.module:name", "m:Model.embed", "m:_private", "übung:größe"])
def test_a_module_and_a_name_in_it(entrypoint):
    check_definition(dataclasses.replace(NAMED, entrypoint=entrypoint))


@pytest.mark.parametrize(
    "entrypoint",
    [
        *("m", "m:", ":f", "m:f:g", "m:f.", "m:.f", ".m:f", "m..n:f", "1m:f", "m:1f", "m f:g", "m:f g"),
        *("m:__loader__.get_data", "m:f.__globals__", "m:__import__", "math:sqrt\nos:system", "math:sqrt;os"),
    ],
)
def test_what_names_no_function_of_a_module(entrypoint):
    with pytest.raises(InvalidArgument) as caught:
        check_definition(dataclasses.replace(NAMED, entrypoint=entrypoint))
    assert (caught.value.reason, caught.value.field) == ("BAD_UDF", "definition.entrypoint")
