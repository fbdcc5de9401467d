"""Read and write files and objects as a whole: a reader never sees part of one, even if the writer is killed.

On a local disk, a file is first written under a temporary name that garbage collection knows (`UNFINISHED_NAME`). An
object in a store always appears as a whole. Where a conditional put or an ETag is needed, single objects are read and
written with obstore, because neither Lance nor pyarrow offers them. An object with the same ETag is unchanged.
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
    """Write a file on a local disk unless it exists. Return whether this call created it.

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
    """A file that is written in pieces. It is invisible before `finish`, and gone after `discard`.

    In an object store, too, it has another name before `finish`: an abandoned stream may leave an object with the bytes
    written so far.

    Raises:
        OSError: It cannot be written; so do all methods but `discard`.
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
            with contextlib.suppress(OSError):  # its writer may finish it at this moment
                if UNFINISHED_NAME.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > older_than:
                    Path(entry.path).unlink()


@contextlib.contextmanager
def unfinished_beside(path: str) -> Iterator[str]:
    """Yield a temporary name in the folder of `path`. Delete the file of that name at the end, if it is still there."""
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
#: Folders whose connections are kept.
_KEPT = 32
#: Lance's text for a missing object.
_MISSING = "Not found:"


def small_file(folder: str, name: str, size: int) -> bytes | None:
    """Return the content of an object in one request; None for a file of a local disk, or a large one.

    Args:
        folder: The folder of the file.
        name: The name of the file.
        size: Its expected size. One more byte is returned if the file is longer.

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
        None for a file on a local disk, for one of more than `most` bytes, and if Lance cannot read it. Read it in
        another way then, which also raises the reason.

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

    An object of at most `most` bytes takes one request; a missing one takes several.

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
#: How long a request is retried if the store is busy or does not answer.
_RETRIED_SECONDS = 30
#: How long a request is retried that Lance can make instead.
_SPARING_SECONDS = 5
#: How long Lance is used after a store did not answer such a request.
_LEFT_SECONDS = 600.0
_DIGEST_CHUNK = 1 << 22
#: Characters of an error in the log.
_SAID = 500

_log = structlog.get_logger(__name__)
#: Folder → until when Lance is used, by time.monotonic().
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
    """Return whether this process can create objects below a folder.

    It needs an S3 store, a key, and a region or endpoint. Other sources that Lance knows, such as profiles and machine
    roles, are not used here.
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
    """Return whether the store answers obstore, by a listing. Lance may still reach a store that does not.

    Both find certificates and regions, but not by the same rules.
    """
    obstore = _obstore()
    count_request(folder, _LIBRARY, writes=False)
    try:
        with panics_as_errors():  # obstore panics over unknown options
            next(iter(obstore.list(_opened(folder), chunk_size=1)), None)
    except Exception as error:  # noqa: BLE001 - any error means doing without it
        _log.warning("obstore cannot reach this store: Lance is used", folder=folder, error=str(error)[:_SAID])
        return False
    return True


def create_object(folder: str, name: str, content: bytes) -> bool:
    """Put an object unless the name is taken. Return whether this call created it.

    The result may be False although this call created it, if the first answer was lost and the request was repeated.

    Raises:
        OSError: The store cannot be used. The object may be there.
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
        None if this process cannot, or the store did not answer: use Lance instead.
    """
    with _sparing(folder) as store:
        if store is not None:
            count_request(folder, _LIBRARY, writes=True)
            return str(_obstore().put(store, name, content, use_multipart=False).get("e_tag") or "")
    return None


def tagged_digest(folder: str, name: str) -> tuple[Tagged, str] | None:
    """Read an object in one request. Return its size and ETag, and the xxh3-128 of its bytes as hex.

    Returns:
        None if this process cannot, the object is missing, or the store did not answer: use Lance instead.
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
        None if this process cannot, the object is missing or has another size, or the store did not answer: use Lance
        instead.
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
    """Yield a store, or None, for a request that Lance could make instead.

    If the store does not answer, the block ends without an error.
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
    # most processes need it never
    importlib.import_module("obstore.store")
    return importlib.import_module("obstore")


def _environment_allows_http() -> bool:
    """Read the variable as Lance does; obstore ignores it."""
    return any(os.environ.get(name, "").lower() in ("true", "1") for name in ("AWS_ALLOW_HTTP", "ALLOW_HTTP"))


@functools.lru_cache(_KEPT)
def _store(folder: str, _options: StoreOptions | None, _process: int, retried_seconds: int) -> Any:
    named = dict(lance_options(folder) or {})
    said = named.pop("allow_http", "") if named else _environment_allows_http()
    client = {"allow_http": True} if said else {}
    retried = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=retried_seconds)}
    return _obstore().store.from_url(folder, config=named, client_options=client, retry_config=retried)
