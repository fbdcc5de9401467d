"""Makes tables such that of several makers exactly one succeeds."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
from lance import LanceOperation

from leman_core.storage.object_stores.lance_options import lance_options
from leman_core.storage.object_stores.requests import counted_table

#: What Lance says where somebody else was faster: at its first look, at the manifest, and when it looks for what the
#: first version is based on.
_THERE = ("already exists", "_versions/0.manifest was not found")


def create_empty(
    uri: str,
    schema: pa.Schema,
    *,
    stable_row_ids: bool = False,
    version: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Make a table without rows where there is none.

    `lance.write_dataset(mode="create")` looks first and then overwrites: of makers at the same moment more than one
    succeeds, and takes away what the one before has written. A commit that is not tried again is conditional.

    Args:
        uri: Of the table.
        schema: Of the table.
        stable_row_ids: See Lance.
        version: Of the file format; None: Lance's own. One that is not Lance's own cannot be made so, and is made by
            `write_dataset`.
        properties: Of the transaction.

    Raises:
        FileExistsError: there is a table, or somebody else is making one.
        Exception: what Lance raises.
    """
    if version is not None and version != _own_version():
        _write(uri, schema, stable_row_ids=stable_row_ids, version=version, properties=properties)
        return
    operation = LanceOperation.Overwrite(schema, [])
    commit_first(
        uri, lance.Transaction(0, operation, str(uuid.uuid4()), dict(properties or {})), stable_row_ids=stable_row_ids
    )


def commit_first(
    uri: str, transaction: lance.Transaction, *, stable_row_ids: bool, timeout: timedelta | None = None
) -> None:
    """Commit the first version of a table; raises as `create_empty`."""
    more: dict[str, Any] = {} if timeout is None else {"commit_timeout": timeout}
    try:
        counted_table(
            lance.LanceDataset.commit(
                uri,
                transaction,
                max_retries=0,
                enable_stable_row_ids=stable_row_ids,
                storage_options=lance_options(uri),
                **more,
            )
        )
    except OSError as error:
        raise _judged(uri, error) from error


def _write(
    uri: str, schema: pa.Schema, *, stable_row_ids: bool, version: str, properties: Mapping[str, str] | None
) -> None:
    try:
        counted_table(
            lance.write_dataset(
                schema.empty_table(),
                uri,
                mode="create",
                enable_stable_row_ids=stable_row_ids,
                data_storage_version=version,  # type: ignore[arg-type]
                transaction_properties=dict(properties or {}),
                storage_options=lance_options(uri),
            )
        )
    except OSError as error:
        raise _judged(uri, error) from error


def _judged(uri: str, error: OSError) -> OSError:
    if any(sign in str(error) for sign in _THERE):
        return FileExistsError(f"somebody else has made a table at {uri}: {error}")
    return error


@functools.cache
def _own_version() -> str:
    schema = pa.schema([pa.field("x", pa.int64())])
    made = lance.LanceDataset.commit(f"memory://{uuid.uuid4().hex}", LanceOperation.Overwrite(schema, []))
    return str(made.data_storage_version)
