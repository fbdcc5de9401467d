"""Write files and objects so that a reader never sees an incomplete one, even if the writer is killed; read small ones.

On a local disk, a file is first written under a temporary name that garbage collection knows (`UNFINISHED_NAME`). An
object in a store always appears as a whole. Conditional puts and ETags need obstore, because neither Lance nor pyarrow
offers them. While an object's ETag stays the same, its content is unchanged.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import importlib.util
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import structlog
import xxhash
from lance.file import LanceFileSession

from leman_core.model.databases import StoreOptions
from leman_core.model.garbage import DAY, UNFINISHED_NAME
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.filesystems import count_request, filesystem_of
from leman_core.storage.lance_files import as_file
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores import lance_options, options_of
from leman_core.storage.panics import panics_as_errors


def put_whole_file(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    """Write a file, replacing an existing one.

    Raises:
        OSError: The file cannot be written.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        _write(filesystem, path, content)
        return
    with _unfinished(filesystem, path, content) as unfinished:
        filesystem.move(unfinished, path)


def create_whole_file(path: str, content: bytes) -> bool:
    """Write a file on a local disk unless the path exists already. Return whether this call created the file.

    Raises:
        OSError: The file cannot be written.
    """
    with _unfinished(pafs.LocalFileSystem(), path, content) as unfinished:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
        return True


class UnfinishedFile:
    """A file that is written in pieces. It does not exist under its name before `finish`. `discard` deletes it.

    It has a temporary name before `finish` in an object store, too, because an abandoned upload may leave an object
    with the bytes written so far.

    Raises:
        OSError: The file cannot be written. All methods but `discard` raise it, too.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        folder = path.rpartition("/")[0]
        self._filesystem = filesystem
        self._path = path
        self._unfinished = f"{folder}/.tmp{uuid.uuid4().hex}"
        try:
            self._stream = filesystem.open_output_stream(self._unfinished)
        except FileNotFoundError:
            filesystem.create_dir(folder, recursive=True)
            self._stream = filesystem.open_output_stream(self._unfinished)

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._stream.write(data)

    def finish(self) -> None:
        """Give the file its name, replacing an existing one."""
        self._stream.close()
        self._filesystem.move(self._unfinished, self._path)

    def discard(self) -> None:
        """Delete what was written."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._unfinished)


def sweep_unfinished(folder: str, older_than: float = DAY) -> None:
    """Delete the unfinished files in a folder of a local disk that are older than this many seconds."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # the file's writer may rename it at this moment
                if UNFINISHED_NAME.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > older_than:
                    Path(entry.path).unlink()


@contextlib.contextmanager
def unfinished_beside(path: str) -> Iterator[str]:
    """Yield a temporary name in the folder of `path`. At the end of the block, delete the file of that name, if any."""
    unfinished = f"{path.rpartition('/')[0]}/.tmp{uuid.uuid4().hex}"
    try:
        yield unfinished
    finally:
        with contextlib.suppress(OSError):
            Path(unfinished).unlink()


@contextlib.contextmanager
def _unfinished(filesystem: pafs.FileSystem, path: str, content: bytes) -> Iterator[str]:
    with unfinished_beside(path) as unfinished:
        try:
            _write(filesystem, unfinished, content)
        except FileNotFoundError:
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            _write(filesystem, unfinished, content)
        yield unfinished


def _write(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    with filesystem.open_output_stream(path) as stream:
        stream.write(content)


#: Larger objects are read in pieces.
_MOST_BYTES = 32 << 20
#: The number of folders whose connections to the store stay open.
_KEPT = 32
#: A part of Lance's error text for a missing object.
_MISSING = "Not found:"


def small_file(folder: str, name: str, size: int) -> bytes | None:
    """Return the content of an object in one request; None for a large object, or a file on a local disk.

    Args:
        folder: The folder of the file.
        name: The name of the file.
        size: The expected size. If the object is longer, the result has one byte more than this.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError: What Lance raises.
    """
    if not in_object_store(folder) or folder.startswith("file:") or size > _MOST_BYTES:
        return None
    try:
        count_request(folder, "lance", writes=False)
        return bytes(_session(folder, options_of(folder), os.getpid()).read_range(name, 0, size + 1))
    except OSError as error:
        if _MISSING in str(error):
            raise FileNotFoundError(str(error)) from error
        raise


def whole_if_small(folder: str, name: str, most: int) -> bytes | None:
    """Return the content of an object whose size is unknown.

    Returns:
        None for a file on a local disk, for an object of more than `most` bytes, and for an object that Lance cannot
        read. Then read the file in another way, which raises the cause if there is one.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    try:
        with panics_as_errors():
            found = small_file(folder, name, most)
    except FileNotFoundError:
        raise
    except LANCE_ERRORS:
        return None
    return None if found is None or len(found) > most else found


def read_expected(folder: str, name: str, most: int) -> bytes:
    """Return the content of a file that most likely exists.

    This takes one request for an object of at most `most` bytes, and several for a larger or missing one.

    Raises:
        FileNotFoundError: The file does not exist.
        OSError: The storage cannot be used.
    """
    whole = whole_if_small(folder, name, most)
    if whole is not None:
        return whole
    filesystem, path = filesystem_of(f"{folder}/{name}")
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())


def put_small_file(folder: str, name: str, content: bytes) -> None:
    """Write an object, replacing an existing one.

    Raises:
        OSError: What Lance raises.
    """
    count_request(folder, "lance", writes=True)
    with as_file(content) as path:
        _session(folder, options_of(folder), os.getpid()).upload_file(path, name)


@functools.lru_cache(_KEPT)
def _session(folder: str, _options: StoreOptions | None, _process: int) -> LanceFileSession:
    return LanceFileSession(folder, storage_options=lance_options(folder))


_SCHEME = "s3://"
_LIBRARY = "obstore"
#: Seconds for which obstore retries a request while the store is busy or does not answer.
_RETRIED_SECONDS = 30
#: The same for a request that Lance can make instead.
_SPARING_SECONDS = 5
#: Seconds for which Lance makes all such requests, after a store did not answer one from obstore.
_LEFT_SECONDS = 600.0
_DIGEST_CHUNK = 1 << 22
#: The most characters of an error that are logged.
_SAID = 500

_log = structlog.get_logger(__name__)
#: Folder → the end of the time in which Lance makes its requests, by time.monotonic().
_left: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Tagged:
    """The size and ETag of an object; `etag` is empty if the store gives none."""

    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectEnd:
    """The last bytes of an object, with the size and ETag of the whole object."""

    tagged: Tagged
    content: bytes


def objects_are_supported(folder: str) -> bool:
    """Return whether this process can create objects below a folder with `create_object`.

    This needs an S3 store, an access key, and a region or endpoint. Lance also finds credentials in profiles and
    machine roles; this module does not.
    """
    if not folder.startswith(_SCHEME) or importlib.util.find_spec("obstore") is None:
        return False
    options = options_of(folder)
    if options is not None:
        return bool(options.access_key_id and (options.region or options.endpoint))
    said = os.environ
    goes = any(said.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"))
    return bool(said.get("AWS_ACCESS_KEY_ID") and goes)


def store_answers(folder: str) -> bool:
    """Return whether the store answers a listing by obstore.

    If not, Lance may still reach the store, because the two find certificates and regions by different rules.
    """
    obstore = _obstore()
    count_request(folder, _LIBRARY, writes=False)
    try:
        with panics_as_errors():  # obstore panics over unknown options
            next(iter(obstore.list(_opened(folder), chunk_size=1)), None)
    except Exception as error:  # noqa: BLE001 - any error means that obstore cannot be used
        _log.warning("obstore cannot reach this store: Lance is used", folder=folder, error=str(error)[:_SAID])
        return False
    return True


def create_object(folder: str, name: str, content: bytes) -> bool:
    """Put an object unless the name is taken. Return whether this call created it.

    The result may be False although this call created the object: the store's first answer may have been lost, and the
    repeated request then finds the name taken.

    Raises:
        OSError: The store cannot be used. The object may have been created nevertheless.
    """
    obstore = _obstore()
    count_request(folder, _LIBRARY, writes=True)
    try:
        obstore.put(_opened(folder), name, content, mode="create", use_multipart=False)
    except obstore.exceptions.AlreadyExistsError:
        return False
    except obstore.exceptions.BaseError as error:
        raise OSError(str(error)) from error
    return True


def delete_objects(folder: str, names: Sequence[str]) -> None:
    """Delete objects; missing ones are ignored.

    Raises:
        OSError: The store cannot be used.
    """
    obstore = _obstore()
    count_request(folder, _LIBRARY, writes=True)
    try:
        obstore.delete(_opened(folder), list(names))
    except FileNotFoundError:
        return
    except obstore.exceptions.BaseError as error:
        raise OSError(str(error)) from error


def put_object(folder: str, name: str, content: bytes) -> str | None:
    """Put an object in one request, replacing an existing one, and return its ETag.

    Returns:
        None if obstore cannot be used, or if the store did not answer. Then use Lance instead.
    """
    with _sparing(folder) as store:
        if store is not None:
            count_request(folder, _LIBRARY, writes=True)
            return str(_obstore().put(store, name, content, use_multipart=False).get("e_tag") or "")
    return None


def tagged_digest(folder: str, name: str) -> tuple[Tagged, str] | None:
    """Read an object in one request. Return its size and ETag, and the xxh3-128 of its bytes as hex.

    Returns:
        None if obstore cannot be used, the object is missing, or the store did not answer. Then use Lance instead.
    """
    with _sparing(folder) as store:
        if store is not None:
            count_request(folder, _LIBRARY, writes=False)
            found = _obstore().get(store, name)
            digest, size = xxhash.xxh3_128(), 0
            for chunk in found.stream(min_chunk_size=_DIGEST_CHUNK):
                digest.update(chunk)
                size += len(chunk)
            return Tagged(size, found.meta.get("e_tag") or ""), digest.hexdigest()
    return None


def read_object_end(folder: str, name: str, start: int, size_bytes: int) -> ObjectEnd | None:
    """Return the bytes of an object from `start` on, in one request, if its size is `size_bytes`.

    Returns:
        None if obstore cannot be used, the object is missing or has another size, or the store did not answer. Then use
        Lance instead.
    """
    with _sparing(folder) as store:
        if store is not None:
            count_request(folder, _LIBRARY, writes=False)
            found = _obstore().get(store, name, options={"range": (start, size_bytes)})
            content = bytes(found.bytes())
            tagged = Tagged(int(found.meta["size"]), found.meta.get("e_tag") or "")
            if tagged.size_bytes == size_bytes and len(content) == size_bytes - start:
                return ObjectEnd(tagged, content)
    return None


@contextlib.contextmanager
def _sparing(folder: str) -> Iterator[Any]:
    """Yield obstore's store for a request that Lance could make instead; None if obstore cannot be used.

    If the object is missing or the store does not answer, leave the block without an error.
    """
    if not objects_are_supported(folder) or _left.get(folder, 0.0) > time.monotonic():
        yield None
        return
    obstore = _obstore()
    try:
        with panics_as_errors():
            yield _opened(folder, _SPARING_SECONDS)
    except FileNotFoundError:
        return
    except (obstore.exceptions.BaseError, OSError, ValueError, RuntimeError) as error:
        _left[folder] = time.monotonic() + _LEFT_SECONDS
        _log.warning("obstore did not answer: Lance is used for this store", folder=folder, error=str(error)[:_SAID])


def _opened(folder: str, retried_seconds: int = _RETRIED_SECONDS) -> Any:
    return _store(folder, options_of(folder), os.getpid(), retried_seconds)


def _obstore() -> Any:
    # imported here because most processes never need it
    importlib.import_module("obstore.store")
    return importlib.import_module("obstore")


def _environment_allows_http() -> bool:
    """Return whether the environment allows plain HTTP, as Lance reads it. obstore ignores this variable."""
    return any(os.environ.get(name, "").lower() in ("true", "1") for name in ("AWS_ALLOW_HTTP", "ALLOW_HTTP"))


@functools.lru_cache(_KEPT)
def _store(folder: str, _options: StoreOptions | None, _process: int, retried_seconds: int) -> Any:
    named = dict(lance_options(folder) or {})
    said = named.pop("allow_http", "") if named else _environment_allows_http()
    client = {"allow_http": True} if said else {}
    retried = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=retried_seconds)}
    return _obstore().store.from_url(folder, config=named, client_options=client, retry_config=retried)
