"""A function's definition as JSON with a digest of all of it, as it lies in the database.

Arrow types are base64 of IPC schemas.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pyarrow as pa

from leman_core.model.errors import DataLoss
from leman_core.model.udf import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    RemoteFunction,
    Resources,
    UdfDefinition,
    UdfKind,
)
from leman_core.storage import sealed_documents, stored_formats


def encode(udf: UdfDefinition, registered_at: float) -> bytes:
    """Return a definition as bytes.

    Args:
        registered_at: in seconds since the epoch; it is no part of the definition.
    """
    body = dataclasses.asdict(udf)
    body["kind"] = udf.kind.value
    body["output_type"] = _type_text(udf.output_type)
    body["input_types"] = [None if t is None else _type_text(t) for t in udf.input_types]
    for rule in body["error_policy"]["rules"]:
        rule["action"] = rule["action"].value
    if udf.remote is None:
        del body["remote"]  # releases that know no remote functions read all others
    source = body.pop("source")  # beside the definition, where earlier releases look over it
    document = {"format": stored_formats.FUNCTION.current, "registered_at": registered_at, "definition": body}
    return sealed_documents.seal({**document, "source": source} if source else document)


def decode(data: bytes, where: str) -> tuple[UdfDefinition, float]:
    """Return the definition and when it was registered, of the very bytes that were written.

    Raises:
        DataLoss: UDF_DAMAGED for all other bytes, naming the file `where`.
        UnknownFormat: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
    """
    try:
        _check_unsealed(data, where)
        document = sealed_documents.unseal(data)
        stored_formats.FUNCTION.check(document.get("format"), where)
        udf = _definition(document["definition"])
        return dataclasses.replace(udf, source=str(document.get("source", ""))), float(document["registered_at"])
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, OSError) as error:
        raise damaged(where, str(error)) from None


def _check_unsealed(data: bytes, where: str) -> None:
    """Refuse a definition without a digest, as the first format had none; one that has lost it is damaged."""
    document = json.loads(data)
    if isinstance(document, dict) and "definition" in document and "sha256" not in document:
        stored_formats.FUNCTION.check(document.get("format"), where)


def damaged(where: str, what: str) -> DataLoss:
    """Return the error of a definition that must not be used."""
    return DataLoss(
        "UDF_DAMAGED",
        f"{where} is not the definition of a function that was stored there ({what}). Register the function again, "
        "with the version that it had (an expression: by CatalogService.AlterColumns of its column), or restore "
        "the file; nothing is computed with it until then",
        path=where,
    )


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
        "remote": _remote(body["remote"]) if "remote" in body else None,
    }
    return UdfDefinition(**{**body, **read})


def _rule(body: dict[str, Any]) -> ErrorRule:
    return ErrorRule(**{**body, "exception_types": tuple(body["exception_types"])})


def _remote(body: dict[str, Any]) -> RemoteFunction:
    return RemoteFunction(**{**body, "addresses": tuple(body["addresses"])})


def _type_text(type_: pa.DataType) -> str:
    return base64.b64encode(bytes(pa.schema([pa.field("", type_)]).serialize())).decode()


def _type(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text))).field(0).type
