"""Create a table unless it exists, so that exactly one of several concurrent creators succeeds.

Every promise of Leman and Lance about commits needs a store with atomic conditional puts: if two writers of one version
both succeed, one commit is lost silently. `check_conditional_puts` tries that before a service first writes to a store:
many threads create the same table at once. The result is stored in the database, and remembered in this process.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
import pyarrow.fs as pafs
from lance import LanceOperation

from leman_core.model.service_errors import FailedPrecondition, LemanError, Unavailable
from leman_core.storage import whole_files
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.filesystems import check_bucket, counted_table, filesystem_of
from leman_core.storage.locations import OWN_FOLDER, in_object_store
from leman_core.storage.object_stores import endpoint_of, lance_options, were_renewed
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import (
    STORE_UNAVAILABLE,
    refusal_error,
    storage_failed,
    store_failed,
    translating_os_errors,
)

#: Lance's texts if another creator was first: at its first check, at the manifest, and at the base of version 1.
_THERE = ("already exists", "_versions/0.manifest was not found")


def create_empty(
    uri: str,
    schema: pa.Schema,
    *,
    stable_row_ids: bool = False,
    version: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Create a table without rows unless it exists.

    `lance.write_dataset(mode="create")` checks and then overwrites: several concurrent creators succeed, and the later
    one deletes what the earlier one wrote. A commit without retries is conditional.

    Args:
        uri: The table.
        schema: Its schema.
        stable_row_ids: See Lance.
        version: The file format; None: Lance's default. Any other needs `write_dataset`.
        properties: Properties of the transaction.

    Raises:
        FileExistsError: The table exists, or is being created.
        Exception: What Lance raises.
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
    """Commit the first version of a table. Raises what `create_empty` raises."""
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
        return FileExistsError(f"another writer created a table at {uri}: {error}")
    return error


@functools.cache
def _own_version() -> str:
    schema = pa.schema([pa.field("x", pa.int64())])
    made = lance.LanceDataset.commit(f"memory://{uuid.uuid4().hex}", LanceOperation.Overwrite(schema, []))
    return str(made.data_storage_version)


#: Concurrent writers, and trials: Lance checks before it puts, and a late writer does not put.
WRITERS, _TRIES = 32, 3
_SCHEMA = pa.schema([("x", pa.int8())])
_NOTE = "conditional_puts.json"
#: The time by which all writers of a trial have started.
_START_SECONDS = 30.0
#: Pause after a failed trial: an unreachable store may take a minute to fail.
_FAILED_SECONDS = 5.0


@dataclass(slots=True)
class _Known:
    """What is known of a store. `lock` is held during a check, so that other stores do not wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    passed: bool = False
    failure: LemanError | None = None
    failed_at: float = 0.0


#: By bucket and endpoint.
_stores: defaultdict[tuple[str, str], _Known] = defaultdict(_Known)


def check_conditional_puts(place: str) -> None:
    """Refuse a store in which more than one of several writers of one object may succeed.

    Free on a local disk and for a store that this process checked; one request if another process checked it.

    Args:
        place: A database, or a folder of Leman's own. The trial writes to its folder `_leman`, and cleans up.

    Raises:
        FailedPrecondition: STORE_NOT_ATOMIC; STORAGE_DENIED, STORAGE_MISSING and their like.
        Unavailable: STORE_UNAVAILABLE if the trial cannot be made now.
    """
    if not in_object_store(place):
        return
    scheme, _, rest = place.partition("://")
    endpoint = endpoint_of(place)
    bucket = f"{scheme}://{rest.partition('/')[0]}"
    known = _stores[bucket, endpoint]
    with known.lock:  # concurrent callers get the result of the first
        if known.passed:
            return
        failure = known.failure if time.monotonic() < known.failed_at + _FAILED_SECONDS else None
        if failure is not None and not were_renewed(place):
            raise failure.with_traceback(None)
        try:
            _look_or_try(place, {"store": bucket, "endpoint": endpoint, "writers": WRITERS})
        except LemanError as error:
            known.failure, known.failed_at = error, time.monotonic()
            raise
        known.passed = True


def _look_or_try(place: str, told: dict[str, Any]) -> None:
    with translating_os_errors(f"The store of {place}", place):
        filesystem, root = filesystem_of(place)
        note = f"{root}/{OWN_FOLDER}/{_NOTE}"
        try:
            with filesystem.open_input_stream(note) as stream:
                if json.loads(stream.readall()) == told:
                    return
        except FileNotFoundError:
            check_bucket(place)
        except ValueError:
            pass
        except OSError:
            filesystem.get_file_info(pafs.FileSelector(root))  # its error may say why: an answer to HEAD has no text
            raise
        _judge(place)
        whole_files.put_whole_file(filesystem, note, json.dumps(told).encode())


def _judge(place: str) -> None:
    winners = 0
    for _ in range(_TRIES):  # if the winner's answer is lost, its retry fails
        winners = max(winners, _winners(place))
        if winners > 1:
            break
    if winners == 1:
        return
    if not winners:
        raise Unavailable(
            STORE_UNAVAILABLE, f"Conditional puts in the store of {place} cannot be tried now: no writer succeeded"
        )
    raise FailedPrecondition(
        "STORE_NOT_ATOMIC",
        f"The store of {place} is not safe for tables: of {WRITERS} writers that put one object with If-None-Match: * "
        f"at the same moment, {winners} succeeded. Use a store with atomic conditional puts, or a newer release of "
        "this one; a gateway or proxy in front of it has to pass that header on",
        place=place,
        winners=winners,
    )


def _winners(place: str) -> int:
    """Let many threads create one table at once. Return how many succeeded."""
    uri = f"{place}/{OWN_FOLDER}/trial-{uuid.uuid4().hex}.lance"
    together = threading.Barrier(WRITERS)

    def made() -> bool:
        together.wait(_START_SECONDS)
        try:
            with panics_as_errors():
                create_empty(uri, _SCHEMA)
        except LANCE_ERRORS as error:  # another writer was first, or overwrote it
            if refusal_error(error, uri) is not None or store_failed(error):
                raise
            return False
        return True

    try:
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="conditional-puts") as writers:
            return sum(future.result() for future in [writers.submit(made) for _ in range(WRITERS)])
    except RuntimeError as error:  # a thread cannot be started; the others gave up
        raise Unavailable(
            STORE_UNAVAILABLE,
            f"Conditional puts in the store of {place} cannot be tried now: {str(error) or 'too few threads'}",
        ) from error
    except LANCE_ERRORS as error:
        raise storage_failed(
            error, f"Conditional puts in the store of {place} cannot be tried now: {error}", place
        ) from error
    finally:
        _remove(uri)


def _remove(uri: str) -> None:
    filesystem, root = filesystem_of(uri)
    with contextlib.suppress(OSError):
        filesystem.delete_dir(root)
