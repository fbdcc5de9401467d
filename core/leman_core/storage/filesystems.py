"""Choose the file system of a path or uri, for everything but Lance's own reads and writes, and count requests.

Requests to object stores are counted only if metrics are exported. Lance counts those of each open table; a call of
pyarrow or obstore counts as one.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa
import pyarrow.fs as pafs

from leman_core.model.databases import StoreOptions
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores import account_of, options_of
from leman_core.storage.storage_errors import missing_bucket
from leman_core.telemetry import instruments
from leman_core.telemetry.instruments import Attributes

_READ, _WRITE = "read", "write"
#: Methods of a file system that send requests.
_OPERATIONS = {
    **dict.fromkeys(("get_file_info", "open_input_file", "open_input_stream"), _READ),
    **dict.fromkeys(("open_output_stream", "open_append_stream", "create_dir", "move", "copy_file"), _WRITE),
    **dict.fromkeys(("delete_file", "delete_dir", "delete_dir_contents"), _WRITE),
}


class _Counts(Protocol):
    """Lance's count of requests for one table since the last call."""

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

_lock = threading.RLock()  # a garbage-collected table may enter again while it is held
#: By scheme, library and operation.
_totals: Counter[tuple[str, str, str]] = Counter()
#: Open tables by id, with their finalizers. Counts are taken at the end of a table and at each export.
_open: dict[int, tuple[str, weakref.finalize[Any, Any]]] = {}


def show_request_counts() -> None:
    """Export this process's requests as metrics from now on."""
    instruments.STORE_REQUESTS.show(_look)


def count_request(place: str, library: str, *, writes: bool) -> None:
    """Count a request that is about to be sent."""
    if instruments.STORE_REQUESTS.is_shown and in_object_store(place):
        _add(_scheme(place), library, _WRITE if writes else _READ, 1)


def counted_files(filesystem: pafs.FileSystem, place: str) -> pafs.FileSystem:
    """Return a file system of an object store that counts its calls, if metrics are exported."""
    if not instruments.STORE_REQUESTS.is_shown:
        return filesystem
    return cast("pafs.FileSystem", _CountedFiles(filesystem, _scheme(place)))


def counted_table(table: Table) -> Table:
    """Return the open table. Its requests are counted from now on, if metrics are exported."""
    if instruments.STORE_REQUESTS.is_shown and in_object_store(table.uri):
        scheme, opened = _scheme(table.uri), table._ds
        ending = weakref.finalize(table, _ended, id(opened), scheme, opened)
        ending.atexit = False
        with _lock:
            _open[id(opened)] = scheme, ending
    return table


class _CountedFiles:
    """A file system that counts its calls."""

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
    except RuntimeError:  # another thread changes its version: take them next time
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
        (
            float(total),
            {instruments.STORE: scheme, instruments.LIBRARY: library, instruments.STORE_OPERATION: operation},
        )
        for (scheme, library, operation), total in totals.items()
    ]


def _scheme(place: str) -> str:
    return place.partition("://")[0]


#: File systems to keep, each with its connections.
_KEPT = 64
#: pyarrow asks when a token expires. The source of the options renews it in time.
_YEARS = datetime.timedelta(days=3650)
#: Retries of a request to S3, after 25 ms and then twice as long each time: 3 s in all. pyarrow's default of three
#: attempts lost one read of a history in a few thousand, at 7 % failing requests.
_S3_RETRIES = 7


def filesystem_with(options: StoreOptions, uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a uri that the options cover, and the path in it.

    Raises:
        OSError: The storage of the uri cannot be used.
    """
    authority, _, path = uri.partition("://")[2].partition("/")
    container = authority.partition("@")[0]
    # a file system does not survive a fork
    return _made(options, authority, os.getpid()), f"{container}/{path}".rstrip("/")


@functools.lru_cache(_KEPT)
def _made(options: StoreOptions, authority: str, _process: int) -> pafs.FileSystem:
    return _MADE[options.scheme](options, authority)


def _s3(options: StoreOptions, _bucket: str) -> pafs.FileSystem:
    scheme, _, host = options.endpoint.partition("://")
    place: dict[str, Any] = {"endpoint_override": host, "scheme": scheme} if host else {}
    if host:  # many servers refuse a body with a trailing checksum, or lose their place in the connection
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    return pafs.S3FileSystem(
        access_key=options.access_key_id or None,
        secret_key=options.secret_access_key or None,
        session_token=options.session_token or None,
        region=options.region,
        anonymous=options.anonymous,
        force_virtual_addressing=options.virtual_hosted,
        retry_strategy=pafs.AwsDefaultS3RetryStrategy(max_attempts=_S3_RETRIES),
        allow_delayed_open=True,  # one request for a small file instead of three
        **place,
    )


def _gs(options: StoreOptions, _bucket: str) -> pafs.FileSystem:
    scheme, _, host = options.endpoint.partition("://")
    given: dict[str, Any] = {"endpoint_override": host, "scheme": scheme} if host else {}
    if options.token:
        given["access_token"] = options.token
        given["credential_token_expiration"] = datetime.datetime.now(datetime.UTC) + _YEARS
    return pafs.GcsFileSystem(anonymous=options.anonymous, **given)


def _azure(options: StoreOptions, authority: str) -> pafs.FileSystem:
    scheme, _, host = options.endpoint.partition("://")
    place = {f"{service}_storage_{part}": value for service in ("blob", "dfs") for part, value in _parts(scheme, host)}
    return pafs.AzureFileSystem(
        account_of(authority),
        account_key=options.account_key or None,
        sas_token=f"?{options.sas_token}" if options.sas_token else None,
        tenant_id=options.tenant_id or None,
        client_id=options.client_id or None,
        client_secret=options.client_secret or None,
        **place,
    )


def _parts(scheme: str, host: str) -> tuple[tuple[str, str], ...]:
    return (("scheme", scheme), ("authority", host)) if host else ()


_MADE = {"s3": _s3, "gs": _gs, "abfss": _azure}


#: A failed search for a bucket's region takes pyarrow six seconds, and a call opens many files: do not repeat it for
#: so long.
_UNREACHED_SECONDS = 10.0
#: Buckets that no options cover and that could not be reached → when, and the error. A lost update does no harm.
_unreached: dict[str, tuple[float, str]] = {}
#: Azure containers that no options cover and that were reached.
_reached: set[str] = set()


def filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or uri, and the path in it.

    Raises:
        OSError: The storage of the uri cannot be used.
        ValueError: pyarrow does not know such a storage.
    """
    if not in_object_store(uri):
        return pafs.LocalFileSystem(), uri
    filesystem, path = _in_store(uri)
    return counted_files(filesystem, uri), path


def _in_store(uri: str) -> tuple[pafs.FileSystem, str]:
    options = options_of(uri)
    if options is not None:
        return filesystem_with(options, uri)
    if uri.startswith("s3://"):
        return _s3_of_the_environment(uri)
    if uri.startswith("abfss://"):
        return _azure_of_the_environment(uri)
    filesystem, path = pafs.FileSystem.from_uri(uri)
    return filesystem, path


def _azure_of_the_environment(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of an Azure container, after a first request to it: pyarrow's error is no OSError.

    Raises:
        OSError: The environment has no credentials, or the container cannot be used.
    """
    container = uri.removeprefix("abfss://").partition("/")[0]
    at, said = _unreached.get(container, (0.0, ""))
    if said and time.monotonic() - at < _UNREACHED_SECONDS:
        raise OSError(said)
    filesystem, path = pafs.FileSystem.from_uri(uri)
    if container not in _reached:
        try:
            # a path in the container: without credentials, pyarrow ends the process on a look at the container itself
            filesystem.get_file_info(f"{container.partition('@')[0]}/_")
        except (OSError, pa.ArrowException) as error:
            _unreached[container] = (time.monotonic(), str(error))
            raise OSError(str(error)) from error
        _reached.add(container)
    return filesystem, path


def _s3_of_the_environment(uri: str) -> tuple[pafs.FileSystem, str]:
    bucket = uri.removeprefix("s3://").partition("/")[0]
    at, said = _unreached.get(bucket, (0.0, ""))
    if said and time.monotonic() - at < _UNREACHED_SECONDS:
        raise OSError(said)
    try:
        filesystem, path = pafs.FileSystem.from_uri(f"{uri}?allow_delayed_open=true")
    except OSError as error:
        _unreached[bucket] = (time.monotonic(), str(error))
        raise
    _unreached.pop(bucket, None)
    return filesystem, path


def delete_folder(system: pafs.FileSystem, path: str) -> None:
    """Delete a folder with its content.

    A store that keeps folders as objects needs a second call for those that had files in them.

    Raises:
        OSError: The folder cannot be deleted.
    """
    try:
        system.delete_dir(path)
    except FileNotFoundError:
        raise
    except OSError:
        if isinstance(system, pafs.LocalFileSystem):
            raise
        with contextlib.suppress(FileNotFoundError):
            system.delete_dir(path)


def check_bucket(place: str) -> None:
    """Refuse a place in a missing bucket or container. One that may not be read counts as existing.

    A store answers a listing of a missing bucket like that of an empty one. It takes one request, and none on a local
    disk.

    Raises:
        FailedPrecondition: STORAGE_MISSING.
    """
    if not in_object_store(place):
        return
    try:
        filesystem, root = filesystem_of(place)
        found = filesystem.get_file_info(root.partition("/")[0])
    except (OSError, ValueError):
        return
    if found.type == pafs.FileType.NotFound:
        raise missing_bucket(place)
