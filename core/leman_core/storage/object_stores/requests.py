"""Requests of this process to object stores, counted where somebody reads the measures.

Lance counts those of each open table by itself; of pyarrow and obstore, which do not, each call counts as one.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import pyarrow.fs as pafs

from leman_core.storage.locations import in_object_store
from leman_core.telemetry import measures
from leman_core.telemetry.instruments import Attributes

_READ, _WRITE = "read", "write"
#: Methods of a file system that send requests.
_OPERATIONS = {
    **dict.fromkeys(("get_file_info", "open_input_file", "open_input_stream"), _READ),
    **dict.fromkeys(("open_output_stream", "open_append_stream", "create_dir", "move", "copy_file"), _WRITE),
    **dict.fromkeys(("delete_file", "delete_dir", "delete_dir_contents"), _WRITE),
}


class _Counts(Protocol):
    """What Lance tells of the requests for one table since it was asked before."""

    @property
    def read_iops(self) -> int: ...
    @property
    def write_iops(self) -> int: ...


class _OpenTable(Protocol):
    def io_stats_incremental(self) -> _Counts: ...


class _Table(Protocol):
    @property
    def uri(self) -> str: ...
    @property
    def _ds(self) -> _OpenTable: ...


Table = TypeVar("Table", bound=_Table)

_lock = threading.RLock()  # an open table may end wherever memory is asked for, also while it is held
#: By scheme, library and operation.
_totals: Counter[tuple[str, str, str]] = Counter()
#: Open tables by their number, each with what ends with it: their counts are taken when they end, and when looked at.
_open: dict[int, tuple[str, weakref.finalize[Any, Any]]] = {}


def show() -> None:
    """Have the measures of this process show its requests from now on."""
    measures.STORE_REQUESTS.show(_look)


def count(place: str, library: str, *, writes: bool) -> None:
    """Count a request that is about to be sent."""
    if measures.STORE_REQUESTS.is_shown and in_object_store(place):
        _add(_scheme(place), library, _WRITE if writes else _READ, 1)


def counted_files(filesystem: pafs.FileSystem, place: str) -> pafs.FileSystem:
    """Return a file system of an object store whose calls are counted, where somebody reads the measures."""
    if not measures.STORE_REQUESTS.is_shown:
        return filesystem
    return cast("pafs.FileSystem", _CountedFiles(filesystem, _scheme(place)))


def counted_table(table: Table) -> Table:
    """Return the open table; Lance's requests for it are counted from now on, where somebody reads the measures."""
    if measures.STORE_REQUESTS.is_shown and in_object_store(table.uri):
        scheme, opened = _scheme(table.uri), table._ds
        ending = weakref.finalize(table, _ended, id(opened), scheme, opened)
        ending.atexit = False
        with _lock:
            _open[id(opened)] = scheme, ending
    return table


class _CountedFiles:
    """A file system whose calls are counted."""

    def __init__(self, filesystem: pafs.FileSystem, scheme: str) -> None:
        self._filesystem = filesystem
        self._scheme = scheme

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._filesystem, name)
        operation = _OPERATIONS.get(name)
        return found if operation is None else functools.partial(self._called, found, operation)

    def _called(self, method: Callable[..., Any], operation: str, *args: Any, **kwargs: Any) -> Any:
        _add(self._scheme, "pyarrow", operation, 1)
        return method(*args, **kwargs)


def _ended(number: int, scheme: str, opened: _OpenTable) -> None:
    with _lock:
        _open.pop(number, None)
    _take(scheme, opened)


def _take(scheme: str, opened: _OpenTable) -> None:
    try:
        counts = opened.io_stats_incremental()
    except RuntimeError:  # another thread moves it to another version: they are taken with the next look
        return
    _add(scheme, "lance", _READ, counts.read_iops)
    _add(scheme, "lance", _WRITE, counts.write_iops)


def _add(scheme: str, library: str, operation: str, requests: int) -> None:
    with _lock:
        _totals[scheme, library, operation] += requests


def _look() -> list[tuple[float, Attributes]]:
    with _lock:
        still_open = list(_open.values())
    for scheme, ending in still_open:
        known = ending.peek()
        if known is not None:
            _take(scheme, known[2][2])
    with _lock:
        totals = dict(_totals)
    return [
        (float(total), {measures.STORE: scheme, measures.LIBRARY: library, measures.STORE_OPERATION: operation})
        for (scheme, library, operation), total in totals.items()
    ]


def _scheme(place: str) -> str:
    return place.partition("://")[0]
