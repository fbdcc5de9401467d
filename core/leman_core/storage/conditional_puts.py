"""Tells whether a store puts an object only where there is none, of which exactly one of many writers succeeds.

All that Leman and Lance promise of commits rests on it: where two writers of a version both succeed, one of them is
lost without a word. So it is tried once, by what Lance does for it, before a service first writes to a table: many make
the same table at the same moment. What came of it is kept beside the database, and in this process.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from leman_core.model.errors import FailedPrecondition, LemanError, Unavailable
from leman_core.storage import whole_files
from leman_core.storage.buckets import check_bucket
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import OWN_FOLDER, in_object_store
from leman_core.storage.object_stores.endpoints import endpoint_of
from leman_core.storage.object_stores.known import were_renewed
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import STORE_UNAVAILABLE, failed, in_use, refusal
from leman_core.storage.store_failures import store_failed
from leman_core.storage.table_creation import create_empty

#: So many try at once, and so often: Lance looks before it puts, and those who look late do not try.
WRITERS, _TRIES = 32, 3
_SCHEMA = pa.schema([("x", pa.int8())])
_NOTE = "conditional_puts.json"
#: All writers of a trial are there by then.
_START_SECONDS = 30.0
#: For so long what could not be tried is not tried again, as a store that does not answer may take a minute to say so.
_FAILED_SECONDS = 5.0


@dataclass(slots=True)
class _Known:
    """What is known of a store. `lock`: held while it is looked at; others of other stores do not wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    passed: bool = False
    failure: LemanError | None = None
    failed_at: float = 0.0


#: By bucket and endpoint.
_stores: defaultdict[tuple[str, str], _Known] = defaultdict(_Known)


def check_store(place: str) -> None:
    """Refuse a store in which of several writers of one object more than one may succeed.

    Costs nothing on a local disk, and where it was tried before; one request where somebody else has tried it.

    Args:
        place: a database, or a folder of Leman's own; what is tried lies in its folder `_leman`, and is removed.

    Raises:
        FailedPrecondition: STORE_NOT_ATOMIC; STORAGE_DENIED, STORAGE_MISSING and their like.
        Unavailable: STORE_UNAVAILABLE, where it cannot be told.
    """
    if not in_object_store(place):
        return
    scheme, _, rest = place.partition("://")
    endpoint = endpoint_of(place)
    bucket = f"{scheme}://{rest.partition('/')[0]}"
    known = _stores[bucket, endpoint]
    with known.lock:  # who comes meanwhile has the answer of the first one
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
    with in_use(f"The store of {place}", place):
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
            filesystem.get_file_info(pafs.FileSelector(root))  # which may say why: an answer to HEAD has no words
            raise
        _judge(place)
        whole_files.put(filesystem, note, json.dumps(told).encode())


def _judge(place: str) -> None:
    winners = 0
    for _ in range(_TRIES):  # where the reply to the winner is lost, it is told that it was not the first
        winners = max(winners, _winners(place))
        if winners > 1:
            break
    if winners == 1:
        return
    if not winners:
        raise Unavailable(
            STORE_UNAVAILABLE, f"What the store of {place} can do cannot be tried now: no writer succeeded"
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
    """Have many writers make one table at the same moment; return how many of them succeeded."""
    uri = f"{place}/{OWN_FOLDER}/trial-{uuid.uuid4().hex}.lance"
    together = threading.Barrier(WRITERS)

    def made() -> bool:
        together.wait(_START_SECONDS)
        try:
            with panics_as_errors():
                create_empty(uri, _SCHEMA)
        except LANCE_ERRORS as error:  # somebody was faster, or has overwritten it meanwhile
            if refusal(error, uri) is not None or store_failed(error):
                raise
            return False
        return True

    try:
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="conditional-puts") as writers:
            return sum(future.result() for future in [writers.submit(made) for _ in range(WRITERS)])
    except RuntimeError as error:  # no thread can be started; those that were gave up
        raise Unavailable(
            STORE_UNAVAILABLE,
            f"What the store of {place} can do cannot be tried now: {str(error) or 'too few threads'}",
        ) from error
    except LANCE_ERRORS as error:
        raise failed(error, f"What the store of {place} can do cannot be tried now: {error}", place) from error
    finally:
        _remove(uri)


def _remove(uri: str) -> None:
    filesystem, root = filesystem_of(uri)
    with contextlib.suppress(OSError):
        filesystem.delete_dir(root)
