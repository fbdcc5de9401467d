"""Registered functions of a folder of this machine: for reads where services would have to be started.

A definition is a JSON document with a digest of itself. Where one makes no sense here the services are asked for, which
say what is wrong with it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leman._table_model import UdfInfo

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

_ENDING = ".json"


def udfs(database: str) -> list[UdfInfo] | None:
    """All of them, by name, then newest first; None: the services know, or tell better what is wrong."""
    folder = f"{database}/_leman/udfs"
    found = []
    try:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():  # noqa: PTH112, PTH208 - a str, as on the wire
            if name.endswith(_ENDING) and not name.startswith("."):
                udf, registered_at = _read(f"{folder}/{name}")
                if f"{udf.name}@{udf.version}{_ENDING}" != name:
                    return None
                found.append((udf.name, -int(registered_at * 1e6), udf.version, udf))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return [entry[-1] for entry in sorted(found, key=lambda entry: entry[:3])]


def udf(database: str, name: str, version: str) -> UdfInfo | None:
    """One of them, without a version the newest; None: as for `udfs`, or there is none."""
    known = udfs(database) or ()
    return next((each for each in known if each.name == name and version in ("", each.version)), None)


def without_source(info: UdfInfo) -> UdfInfo:
    """As listings have it."""
    return dataclasses.replace(info, source="")


def _read(path: str) -> tuple[UdfInfo, float]:
    """A function, and when it was registered. Raises ValueError where the file is not as it was written; LookupError,
    TypeError, AttributeError where it is of another release."""
    with open(path, "rb") as file:  # noqa: PTH123
        data = file.read()
    document = json.loads(data)
    digest = document.pop("sha256")
    if digest != hashlib.sha256(_text(document)).hexdigest() or _text({**document, "sha256": digest}) != data:
        raise ValueError("the definition was changed")
    body = document["definition"]
    info = UdfInfo(
        name=body["name"],
        version=body["version"],
        kind=body["kind"],
        input_columns=tuple(body["input_columns"]),
        data_type=_type(body["output_type"]),
        stateful=body["stateful"],
        sql_expression=body["sql_expression"],
        options=_options(body),
        addresses=tuple(body["remote"]["addresses"]) if "remote" in body else (),
        source=document.get("source", ""),
    )
    return info, float(document["registered_at"])


def _options(body: Mapping[str, Any]) -> dict[str, object]:
    bounds, resources = body["checkpoint"], body.get("resources", {})
    all_of_them = {
        "batch_size": body["batch_size"],
        "checkpoint_size": bounds["checkpoint_size"],
        "min_checkpoint_size": bounds["min_checkpoint_size"],
        "max_checkpoint_size": bounds["max_checkpoint_size"],
        "timeout": body["timeout_seconds"],
        "num_cpus": resources.get("num_cpus"),
        "num_gpus": resources.get("num_gpus"),
        "memory": resources.get("memory_bytes"),
        "blob": body["blob"],
    }
    return {name: value for name, value in all_of_them.items() if value}


def _type(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text))).field(0).type


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
