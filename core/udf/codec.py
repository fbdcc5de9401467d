"""A function's definition as JSON, as it lies in the database. Arrow types are base64 of IPC schemas."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pyarrow as pa

from core.domain.udf import CheckpointBounds, ErrorAction, ErrorPolicy, ErrorRule, Resources, UdfDefinition, UdfKind
from core.errors import DataLoss

FORMAT = 1


def encode(udf: UdfDefinition, registered_at: float) -> bytes:
    """`registered_at` in seconds since the epoch; it is no part of the definition."""
    body = dataclasses.asdict(udf)
    body["kind"] = udf.kind.value
    body["output_type"] = _type_text(udf.output_type)
    body["input_types"] = [None if t is None else _type_text(t) for t in udf.input_types]
    for rule in body["error_policy"]["rules"]:
        rule["action"] = rule["action"].value
    document = {"format": FORMAT, "registered_at": registered_at, "definition": body}
    return json.dumps(document, indent=1, sort_keys=True).encode()


def decode(data: bytes, where: str) -> tuple[UdfDefinition, float]:
    """The definition and when it was registered. Raises DataLoss (UDF_DAMAGED), naming the file `where`."""
    try:
        document = json.loads(data)
        return _definition(document["definition"]), float(document["registered_at"])
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, OSError) as error:
        raise DataLoss(
            "UDF_DAMAGED", f"{where} is no definition of a function ({error}): register it again", path=where
        ) from None


def _definition(body: dict[str, Any]) -> UdfDefinition:
    policy = body["error_policy"]
    rules = [{**rule, "action": ErrorAction(rule["action"])} for rule in policy["rules"]]
    read = {
        "kind": UdfKind(body["kind"]),
        "input_columns": tuple(body["input_columns"]),
        "output_type": _type(body["output_type"]),
        "input_types": tuple(None if t is None else _type(t) for t in body["input_types"]),
        "checkpoint": CheckpointBounds(**body["checkpoint"]),
        "resources": Resources(**body.get("resources", {})),
        "error_policy": ErrorPolicy(**{**policy, "rules": tuple(_rule(rule) for rule in rules)}),
    }
    return UdfDefinition(**{**body, **read})


def _rule(body: dict[str, Any]) -> ErrorRule:
    return ErrorRule(**{**body, "exception_types": tuple(body["exception_types"])})


def _type_text(type_: pa.DataType) -> str:
    return base64.b64encode(bytes(pa.schema([pa.field("", type_)]).serialize())).decode()


def _type(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text))).field(0).type
