"""Files and objects that are read or written whole, or not at all.

Files that appear whole or not at all, whatever becomes of who writes them.

Objects do so by themselves. On a local disk a file is written under another name first, which garbage collection knows
(`leman_core.model.garbage.UNFINISHED_NAME`): a process that is killed leaves it, one whose disk is full takes it away.

Files of an object store that are read or written whole, in one request: each look at a size would be another one.

Single objects of an object store, where it matters what the store says of them: neither Lance nor pyarrow tells.

`create` puts one only where there is none: of many writers exactly one succeeds (`conditional_puts` shows whether a
store keeps to that). `put`, `tagged_digest` and `end_of` go by an object's ETag: as long as the store tells the same
one, it is the same object.
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
    """Write a file, in place of another one if there is one.

    Raises:
        OSError: it cannot be written.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        _write(filesystem, path, content)
        return
    with _unfinished(filesystem, path, content) as unfinished:
        filesystem.move(unfinished, path)


def create_whole_file(path: str, content: bytes) -> bool:
    """Write a file of a local disk that is not there yet; False: someone else was faster.

    Raises:
        OSError: it cannot be written.
    """
    with _unfinished(pafs.LocalFileSystem(), path, content) as unfinished:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
        return True


class UnfinishedFile:
    """A file that is written piece by piece; no one sees it before `finish`, and no one ever after `discard`.

    In an object store, too, it is written under another name first: a stream that is given up there may leave an
    object of what was written.

    Raises:
        OSError: it cannot be written; so do all methods but `discard`.
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
        """Add bytes."""
        self._stream.write(data)

    def finish(self) -> None:
        """Give the file its name, in place of another one if there is one."""
        self._stream.close()
        self._filesystem.move(self._unfinished, self._path)

    def discard(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._unfinished)


def sweep_unfinished(folder: str, older_than: float = DAY) -> None:
    """Delete what killed writers left in a folder of a local disk, once no one has written to it for so long."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # its writer may be there, and faster
                if UNFINISHED_NAME.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > older_than:
                    Path(entry.path).unlink()


@contextlib.contextmanager
def unfinished_beside(path: str) -> Iterator[str]:
    """Yield a name for a file that is to become that of `path`.

    Whatever is still there under it in the end is deleted.
    """
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


#: Larger ones are read piece by piece.
_MOST_BYTES = 32 << 20
#: Folders of which the connections are kept.
_KEPT = 32
#: How Lance says that an object is not there.
_MISSING = "Not found:"


def small_file(folder: str, name: str, size: int) -> bytes | None:
    """Return all bytes of a file; None where it is on a local disk, or large.

    Args:
        folder: Where it lies.
        name: Of the file.
        size: That it should have. Of one that is longer there is a byte more.

    Raises:
        FileNotFoundError: it is not there.
        OSError: what Lance raises.
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
    """Return all bytes of a file whose size is not known.

    Returns:
        None where it is on a local disk, has more than `most` bytes, or cannot be read so: anyone who reads it in
        another
            way hears why.

    Raises:
        FileNotFoundError: it is not there.
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
    """Return all bytes of a file that most likely is there.

    Of an object store that takes one request where it has at most `most` bytes; where it is not there, several.

    Raises:
        FileNotFoundError: it is not there.
        OSError: the storage cannot be used.
    """
    whole = whole_if_small(folder, name, most)
    if whole is not None:
        return whole
    filesystem, path = filesystem_of(f"{folder}/{name}")
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())


def put_small_file(folder: str, name: str, content: bytes) -> None:
    """Write a file of an object store, in place of another one if there is one.

    Raises:
        OSError: what Lance raises.
    """
    count_request(folder, "lance", writes=True)
    with as_file(content) as path:
        _session(folder, options_of(folder), os.getpid()).upload_file(path, name)


@functools.lru_cache(_KEPT)
def _session(folder: str, _options: StoreOptions | None, _process: int) -> LanceFileSession:
    return LanceFileSession(folder, storage_options=lance_options(folder))


_SCHEME = "s3://"
_LIBRARY = "obstore"
#: How long a request is made again that the store refuses as it is busy, or that it does not answer.
_RETRIED_SECONDS = 30
#: How long requests are made again that only spare others: without an answer the same is done by Lance.
_SPARING_SECONDS = 5
#: How long a store is left alone after it did not answer such a request.
_LEFT_SECONDS = 600.0
_DIGEST_CHUNK = 1 << 22
#: Of an error, in the log.
_SAID = 500

_log = structlog.get_logger(__name__)
#: Until when folders are left alone, by time.monotonic().
_left: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Tagged:
    """What a store says of an object; `etag` is empty where it says none."""

    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectEnd:
    """The last bytes of an object, and what the store says of all of it."""

    tagged: Tagged
    content: bytes


def objects_are_supported(folder: str) -> bool:
    """Return whether objects can be created below a folder, with what this process knows by itself.

    It needs a store that speaks S3, a key, and where to go with it: what else Lance looks for, such as a profile or the
    role of a machine, is not looked for here.
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
    """Return whether the store answers who would create objects, by a listing: Lance may reach it in another way.

    Certificates and regions, for example, are found by both, but not in every place by the same rules.
    """
    obstore = _obstore()
    count_request(folder, _LIBRARY, writes=False)
    try:
        with panics_as_errors():  # over options that it does not know
            next(iter(obstore.list(_opened(folder), chunk_size=1)), None)
    except Exception as error:  # noqa: BLE001 - whatever it is, things are done without it
        _log.warning("objects are not put by themselves in this store", folder=folder, error=str(error)[:_SAID])
        return False
    return True


def create_object(folder: str, name: str, content: bytes) -> bool:
    """Put an object; False: there is one of that name, which may be this one, where the first answer was lost.

    Raises:
        OSError: the store cannot be used, and the object may be there.
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
    """Delete objects, as far as they are there.

    Raises:
        OSError: the store cannot be used.
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
    """Put an object in one request, in place of another one if there is one, and return the ETag that it got.

    Returns:
        None where that has to be done in another way: this process cannot, or the store did not answer.
    """
    with _sparing(folder) as store:
        if store is not None:
            count_request(folder, _LIBRARY, writes=True)
            return str(_obstore().put(store, name, content, use_multipart=False).get("e_tag") or "")
    return None


def tagged_digest(folder: str, name: str) -> tuple[Tagged, str] | None:
    """Read all of an object in one request; return what the store says of it, and the xxh3-128 of its bytes as hex.

    Returns:
        None where that has to be done in another way: this process cannot, the object is not there, or the store did
        not answer.
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
    """Return the bytes of an object from `start` on, in one request, if it has `size_bytes`.

    Returns:
        None where that has to be found out in another way: this process cannot, the object is not there or has another
        size, or the store did not answer.
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
    """Yield a store for a request that can be spared, or None; where it does not answer, the block ends silently."""
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
        _log.warning("objects are read and put by Lance in this store", folder=folder, error=str(error)[:_SAID])


def _opened(folder: str, retried_seconds: int = _RETRIED_SECONDS) -> Any:
    return _store(folder, options_of(folder), os.getpid(), retried_seconds)


def _obstore() -> Any:
    # most processes need it never
    importlib.import_module("obstore.store")
    return importlib.import_module("obstore")


def _environment_allows_http() -> bool:
    """Return whether the environment says so as Lance reads it; obstore does not look for it there."""
    return any(os.environ.get(name, "").lower() in ("true", "1") for name in ("AWS_ALLOW_HTTP", "ALLOW_HTTP"))


@functools.lru_cache(_KEPT)
def _store(folder: str, _options: StoreOptions | None, _process: int, retried_seconds: int) -> Any:
    named = dict(lance_options(folder) or {})
    said = named.pop("allow_http", "") if named else _environment_allows_http()
    client = {"allow_http": True} if said else {}
    retried = {"max_retries": 10, "retry_timeout": datetime.timedelta(seconds=retried_seconds)}
    return _obstore().store.from_url(folder, config=named, client_options=client, retry_config=retried)
