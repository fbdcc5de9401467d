"""Extension types inside of other types: each works, or is refused when the column is added."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.wire import convert_udfs

_OFFSETS = pa.array([0, 1, 2], pa.int32())
_UUIDS = pa.array([uuid.UUID(int=7).bytes, None], pa.binary(16))
_STORAGE = {
    pa.uuid(): _UUIDS,
    pa.bool8(): pa.array([1, None], pa.int8()),
    pa.json_(): pa.array(['{"a":1}', None], pa.string()),
}
INSIDE: dict[str, Callable[[pa.Array], pa.Array]] = {
    "list": lambda a: pa.ListArray.from_arrays(_OFFSETS, a),
    "large_list": lambda a: pa.LargeListArray.from_arrays(_OFFSETS.cast(pa.int64()), a),
    "fixed_size_list": lambda a: pa.FixedSizeListArray.from_arrays(a, 1),
    "struct": lambda a: pa.StructArray.from_arrays([a], names=["u"]),
    "map": lambda a: pa.MapArray.from_arrays(_OFFSETS, pa.array(["k", "l"]), a),
    "list of struct": lambda a: INSIDE["list"](INSIDE["struct"](a)),
    "struct of list": lambda a: INSIDE["struct"](INSIDE["list"](a)),
}


def refused(kind: pa.DataType, inside: str) -> bool:
    return kind == pa.json_() or inside == "fixed_size_list"


@pytest.mark.parametrize("kind", _STORAGE, ids=str)
@pytest.mark.parametrize("inside", INSIDE)
def test_inside_of_another_type(pipeline, kind, inside):
    values = INSIDE[inside](pa.ExtensionArray.from_storage(kind, _STORAGE[kind]))
    plain = pa.table({"id": [0, 1], "x": [0, 1]})
    table = pipeline.table(plain if refused(kind, inside) else plain.set_column(1, "x", values))
    for of in (UdfKind.SCALAR, UdfKind.ARRAY, UdfKind.RECORD_BATCH):
        udf = pipeline.function(values.type, of)
        if refused(kind, inside):
            with pytest.raises(FailedPrecondition, match="'y' cannot have the type") as caught:
                pipeline.add(table, "y", udf)
            assert caught.value.reason == "TYPE_NOT_STORABLE"
        else:
            pipeline.add(table, of.value, udf)
            pipeline.backfill(table, of.value)
            assert pipeline.values(table, of.value).equals(pipeline.values(table, "x"))
            assert not pipeline.backfill(table, of.value).tasks


class Unknown(pa.ExtensionType):
    """Of someone's own."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "somebody.own")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Unknown:
        return cls()


@pytest.mark.parametrize("kind", [Unknown(), pa.list_(Unknown()), pa.struct([("a", Unknown())])], ids=str)
def test_an_extension_type_that_arrow_does_not_know_is_refused(kind):
    udf = UdfDefinition("f", "1", UdfKind.ARRAY, ("x",), kind, entrypoint="m:f")
    with pytest.raises(InvalidArgument, match=r"somebody\.own is not known to Arrow") as caught:
        convert_udfs.udf_from_proto(convert_udfs.udf_to_proto(udf))
    assert caught.value.reason == "BAD_UDF"
