"""Tells whether a store puts an object only where there is none, of which exactly one of many writers succeeds.

All that Leman and Lance promise of commits rests on it: where two writers of a version both succeed, one of them is
lost without a word. So it is tried once, by what Lance does for it, before a service first writes to a table: many make
the same table at the same moment. What came of it is kept beside the database, and in this process.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from core import whole_files
from core.errors import FailedPrecondition, Unavailable
from core.filesystems import filesystem_of
from core.lance_io.error_translation import LANCE_ERRORS
from core.lance_io.panics import panics_as_errors
from core.lance_io.store_failures import store_failed
from core.lance_io.table_creation import create_empty
from core.locations import OWN_FOLDER
from core.storage_errors import STORE_UNAVAILABLE, failed, in_use, refusal
from core.stores.known import options_of

#: So many try at once, and so often: Lance looks before it puts, and those who look late do not try.
WRITERS, _TRIES = 32, 3
_SCHEMA = pa.schema([("x", pa.int8())])
_NOTE = "conditional_puts.json"

_lock = threading.Lock()
#: Stores that passed: bucket and endpoint.
_passed: set[tuple[str, str]] = set()


def check_store(place: str) -> None:
    """Refuse a store in which of several writers of one object more than one may succeed.

    Costs nothing on a local disk, and where it was tried before; one request where somebody else has tried it.

    Args:
        place: a database, or a folder of Leman's own; what is tried lies in its folder `_leman`, and is removed.

    Raises:
        FailedPrecondition: STORE_NOT_ATOMIC; STORAGE_DENIED and its like.
        Unavailable: STORE_UNAVAILABLE, where it cannot be told.
    """
    if "://" not in place:
        return
    scheme, _, rest = place.partition("://")
    options = options_of(place)
    store = f"{scheme}://{rest.partition('/')[0]}", options.endpoint if options is not None else ""
    if store in _passed:
        return
    with _lock:  # who comes meanwhile has the answer of the first one
        if store not in _passed:
            _look_or_try(place, store[1])
            _passed.add(store)


def _look_or_try(place: str, endpoint: str) -> None:
    with in_use(f"The store of {place}", place):
        filesystem, root = filesystem_of(place)
        note = f"{root}/{OWN_FOLDER}/{_NOTE}"
        try:
            with filesystem.open_input_stream(note) as stream:
                if json.loads(stream.readall()) == {"endpoint": endpoint, "writers": WRITERS}:
                    return
        except (FileNotFoundError, ValueError):
            pass
        _judge(place)
        whole_files.put(filesystem, note, json.dumps({"endpoint": endpoint, "writers": WRITERS}).encode())


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
        together.wait()
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
    except LANCE_ERRORS as error:
        raise failed(error, f"What the store of {place} can do cannot be tried now: {error}", place) from error
    finally:
        _remove(uri)


def _remove(uri: str) -> None:
    filesystem, root = filesystem_of(uri)
    with contextlib.suppress(OSError):
        filesystem.delete_dir(root)
