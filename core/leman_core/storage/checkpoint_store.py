"""The store of checkpoints, one Lance file for each key, and their removal.

A file holds a batch, its key, a digest of the batch's values, and a digest of the file's bytes. The files are in the
folder `_checkpoints` of a table, or below the `checkpoint_uri` in the options of its object store.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import structlog
from lance.file import LanceFileReader, LanceFileSession, LanceFileWriter

from leman._format import stored_documents
from leman_core.functions.arrow_values import batch_digest, single_batch
from leman_core.model import keys
from leman_core.model.garbage import StoredFile
from leman_core.model.service_errors import DataLoss, check_format
from leman_core.storage import lance_files, whole_files
from leman_core.storage.error_translation import LANCE_ERRORS, using_storage
from leman_core.storage.filesystems import count_request, delete_folder, filesystem_of
from leman_core.storage.lance_files import as_file, made_in_memory
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores import lance_options, options_of
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import error_number, storage_failed

KEY, _DIGEST, FORMAT = "leman.key", "leman.digest", "leman.format"


def write_batch_file(writer: LanceFileWriter, key: str, batch: pa.RecordBatch) -> None:
    """Write a batch under a key, and close the file. Raises Lance's error for values that it refuses."""
    writer.write_batch(batch.replace_schema_metadata(None))
    writer.add_schema_metadata(KEY, key)
    writer.add_schema_metadata(_DIGEST, batch_digest(batch))
    writer.add_schema_metadata(FORMAT, str(stored_documents.CHECKPOINT.current))
    lance_files.make_room(writer)
    writer.close()


def read_batch_file(path: str, key: str) -> pa.RecordBatch | None:
    """Return the batch in a file; None if it is not the one that was written under the key.

    Check the digest of the file's bytes first: Lance raises errors, or panics, for damaged bytes.
    """
    reader = LanceFileReader(path)
    schema, rows = reader.metadata().schema, reader.num_rows()
    metadata = schema.metadata or {}
    stated = metadata.get(FORMAT.encode())
    check_format(stored_documents.CHECKPOINT, None if stated is None else stated.decode(), f"Checkpoint {path}")
    if rows:
        table = reader.read_all(batch_size=rows).to_table()
        batch = single_batch(table.replace_schema_metadata(None))
    else:
        batch = pa.RecordBatch.from_pylist([], schema=schema.remove_metadata())
    said = metadata.get(KEY.encode()), metadata.get(_DIGEST.encode())
    return batch if said == (key.encode(), batch_digest(batch).encode()) else None


_log = structlog.get_logger(__name__)

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_MAX_NAME = 200  # bytes; common file systems allow 255 with the ending
_HASHED = "key-"
_ENDING = ".lance"
#: A batch up to this size is encoded in memory even for a local disk. That halves the work for a fragment's record,
#: because its file is opened once and need not be read again for its digest.
_SMALL_BYTES = 1 << 20

#: Name of the folder of a table's checkpoints.
CHECKPOINT_FOLDER = "_checkpoints"


def checkpoint_root(uri: str) -> str:
    """Return the folder of a table's checkpoints, which is below `checkpoint_place`."""
    return f"{checkpoint_place(uri)}/{CHECKPOINT_FOLDER}"


def checkpoint_place(uri: str) -> str:
    """Return the folder that holds the checkpoints of a table or database: its own, or one in another store.

    If the options of the store with the root `s3://lake/teams` have the checkpoint_uri `s3://scratch`, the checkpoints
    of `s3://lake/teams/db/t.lance` are in `s3://scratch/db/t.lance`.
    """
    place = uri.rstrip("/")
    options = options_of(place)
    if options is None or not options.checkpoint_uri:
        return place
    return f"{options.checkpoint_uri}{place.removeprefix(options.root)}"


def in_own_folder(uri: str) -> bool:
    """Return whether a table's checkpoints are in its own folder, and not below another store's `checkpoint_uri`."""
    return checkpoint_place(uri) == uri.rstrip("/")


class LanceCheckpointStore:
    """Checkpoints in Lance files; see `leman_core.model.work.CheckpointStore`.

    A key that is not a safe file name is stored under its sha256, with the key in the file's metadata. The digest of a
    file's bytes is checked before Lance reads them. The digest of the values then shows whether Lance returns the
    values that it was given. A file that does not match is renamed to `*.damaged` and counts as absent. If the storage
    cannot be used, all calls raise the error that `storage_failed` returns.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._session: LanceFileSession | None = None
        self._place: tuple[pafs.FileSystem, str] | None = None
        #: The options of the session and the place. Credentials may be renewed while a store is in use.
        self._options = options_of(self._root)

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None:
        with using_storage(f"{self._root}/{key}"):
            self._store(key, value)

    def _store(self, key: str, value: pa.RecordBatch) -> None:
        if in_object_store(self._root):
            self._upload(_file_name(key), key, value)
            return
        if value.nbytes <= _SMALL_BYTES:
            whole_files.put_whole_file(pafs.LocalFileSystem(), self._path(key), _sealed(key, value))
            return
        with whole_files.unfinished_beside(self._path(key)) as unfinished:
            write_batch_file(LanceFileWriter(unfinished, value.schema.remove_metadata()), key, value)
            with Path(unfinished).open("r+b") as file:
                at, digest = lance_files.seal_file(file.read())
                file.seek(at)
                file.write(digest)
            Path(unfinished).replace(self._path(key))

    def _upload(self, name: str, key: str, value: pa.RecordBatch) -> None:
        """Store a checkpoint as an object. Its digest is written in memory first: an object cannot be changed later."""
        with as_file(_sealed(key, value)) as path:
            count_request(self._root, "lance", writes=True)
            self._files().upload_file(path, name)

    def __getitem__(self, key: str) -> pa.RecordBatch:
        """Return the batch under a key.

        Raises:
            KeyError: It is absent or damaged.
            LemanError: The storage cannot be used.
        """
        try:
            return self._read(key)
        except DataLoss as error:
            self._set_aside(key, error.message)
            raise KeyError(key) from None

    def _read(self, key: str) -> pa.RecordBatch:
        """Return the batch under a key. Leave a damaged file where it is.

        Raises:
            KeyError: It is absent.
            DataLoss: CHECKPOINT_DAMAGED.
            LemanError: The storage cannot be used.
        """
        with self._available(key):
            try:
                content = self._bytes_of(_file_name(key))
            except FileNotFoundError:
                raise KeyError(key) from None
            problem = lance_files.sealed_file_problem(content)
            if problem:
                raise _damaged(key, problem)
            batch = self._decoded(key, content)
        if batch is None:
            raise _damaged(key, "its content is not the one that was stored under its key")
        return batch

    def _bytes_of(self, name: str) -> bytes:
        """Return the content of a file. Raises OSError."""
        filesystem, root = self._filesystem()
        with filesystem.open_input_file(f"{root}/{name}") as file:
            return bytes(file.read_at(file.size(), 0))

    def _decoded(self, key: str, content: bytes) -> pa.RecordBatch | None:
        """Return what `read_batch_file` returns for a file whose bytes match their digest.

        Lance reads an object from `content`, so that it is fetched once. It reads a file on a local disk again, which
        costs less than a copy.

        Raises:
            OSError: A temporary file cannot be written.
            DataLoss: CHECKPOINT_DAMAGED – Lance cannot read the file although its bytes are those that it wrote.
        """
        try:
            with panics_as_errors():
                if not in_object_store(self._root):
                    return read_batch_file(self._path(key), key)
                with as_file(content) as path:
                    return read_batch_file(path, key)
        except LANCE_ERRORS as error:
            if error_number(error) is not None:
                raise
            raise _damaged(key, str(error)) from None

    def __contains__(self, key: str) -> bool:
        with self._available(key):
            count_request(self._root, "lance", writes=False)
            return self._files().contains(_file_name(key))

    def __delitem__(self, key: str) -> None:
        filesystem, root = self._filesystem()
        with self._available(key), contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(f"{root}/{_file_name(key)}")

    def list_keys(self, prefix: str | None = None) -> list[str]:
        wanted = prefix or ""
        with self._available():
            names = self._names()
        keys = [n[: -len(_ENDING)] for n in names if n.startswith(wanted) and not n.startswith(_HASHED)]
        hashed = (self._key_in(name) for name in names if name.startswith(_HASHED))
        keys += [key for key in hashed if key is not None and key.startswith(wanted)]
        return sorted(keys)

    def modified(self, keys: Sequence[str]) -> list[float]:
        """Return when each key was set, as seconds since 1970; 0 if it is absent."""
        filesystem, root = self._filesystem()
        with self._available():
            found = filesystem.get_file_info([f"{root}/{_file_name(key)}" for key in keys])
        return [info.mtime_ns / 1e9 if info.is_file else 0.0 for info in found]

    def files(self) -> list[StoredFile]:
        """Return all files in the folder in the order of their names, including damaged and foreign ones.

        Remove files by name, not by key: an older release may have stored a key under another name than `_file_name`.
        """
        filesystem, root = self._filesystem()
        folder = root.rpartition("/")[2]
        with self._available():
            found = [i for i in filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True)) if i.is_file]
        return [
            StoredFile(
                folder=folder,
                name=i.base_name,
                size_bytes=i.size,
                modified=i.mtime_ns / 1e9,
                key=self._key_of(i.base_name),
            )
            for i in sorted(found, key=lambda i: i.base_name)
        ]

    def read_file(self, name: str) -> pa.RecordBatch:
        """Return the batch in a file that `files` returned.

        Raises:
            KeyError: It is absent or damaged.
        """
        key = self._key_of(name)
        if _file_name(key) != name:
            raise KeyError(name)
        return self[key]

    def check_file(self, name: str) -> pa.RecordBatch:
        """Return the batch in a file that `files` returned. Leave a damaged file where it is.

        Raises:
            DataLoss: CHECKPOINT_DAMAGED.
        """
        key = self._key_of(name)
        if _file_name(key) != name:
            raise _damaged(name, "its name is not the one that its key has")
        return self._read(key)

    def _key_of(self, name: str) -> str:
        if not name.endswith(_ENDING):
            return ""
        return self._key_in(name) or "" if name.startswith(_HASHED) else name[: -len(_ENDING)]

    def _names(self) -> list[str]:
        filesystem, root = self._filesystem()
        if isinstance(filesystem, pafs.LocalFileSystem):  # the selector would also read the size of every file
            with contextlib.suppress(FileNotFoundError):
                return [name for name in os.listdir(root) if name.endswith(_ENDING)]  # noqa: PTH208 -- no Path each
            return []
        selector = pafs.FileSelector(root, allow_not_found=True)
        return [f.base_name for f in filesystem.get_file_info(selector) if f.base_name.endswith(_ENDING)]

    def _key_in(self, name: str) -> str | None:
        """Return the key in a file whose name is its key's hash; None if its key is missing or has another hash."""
        filesystem, root = self._filesystem()
        with self._available(name):
            try:
                key = lance_files.read_metadata(filesystem, f"{root}/{name}").get(KEY, b"").decode()
            except (FileNotFoundError, ValueError):
                return None
        return key if _file_name(key) == name else None

    def _path(self, key: str) -> str:
        return f"{self._root}/{_file_name(key)}"

    def _files(self) -> LanceFileSession:
        self._take_renewed()
        if self._session is None:
            self._session = LanceFileSession(self._root, storage_options=lance_options(self._root))
        return self._session

    def _filesystem(self) -> tuple[pafs.FileSystem, str]:
        self._take_renewed()
        if self._place is None:
            self._place = filesystem_of(self._root)
        return self._place

    def _take_renewed(self) -> None:
        options = options_of(self._root)
        if options != self._options:
            self._options, self._session, self._place = options, None, None

    @contextlib.contextmanager
    def _available(self, what: str = "") -> Iterator[None]:
        """Raise the error that `storage_failed` returns if the storage cannot be used."""
        try:
            yield
        except LANCE_ERRORS as error:
            place = f"{self._root}/{what}".rstrip("/")
            raise storage_failed(error, f"{place} cannot be used now: {error}", place) from error

    def _set_aside(self, key: str, why: str) -> None:
        filesystem, root = self._filesystem()
        name = _file_name(key)
        aside = f"{name[: -len(_ENDING)]}.{time.time_ns():x}.damaged"
        _log.warning("damaged checkpoint set aside", key=key, why=why, file=aside)
        try:
            filesystem.move(f"{root}/{name}", f"{root}/{aside}")
        except FileNotFoundError:  # another process did
            return
        except OSError as error:
            _log.warning("damaged checkpoint could not be set aside", key=key, error=str(error))


def _sealed(key: str, value: pa.RecordBatch) -> bytes:
    """Return the content of a checkpoint's file, with its digest."""
    schema = value.schema.remove_metadata()
    content = made_in_memory(_file_name(key), schema, lambda writer: write_batch_file(writer, key, value))
    at, digest = lance_files.seal_file(content)
    return b"".join((content[:at], digest, content[at + len(digest) :]))


def _damaged(key: str, what: str) -> DataLoss:
    return DataLoss("CHECKPOINT_DAMAGED", what, key=key)


def _file_name(key: str) -> str:
    if _SAFE.fullmatch(key) and len(key) <= _MAX_NAME and not key.startswith(_HASHED):
        return key + _ENDING
    return _HASHED + hashlib.sha256(key.encode()).hexdigest() + _ENDING


def remove_leftovers(uri: str) -> None:
    """Remove the checkpoints and column files in a table's folder if there is no table.

    Other files stay. If another process is creating a table of that name meanwhile, its files stay, too.

    Raises:
        OSError: The folder cannot be read, or a file cannot be removed.
    """
    system, path = filesystem_of(uri)
    (versions,) = system.get_file_info([f"{path}/_versions"])
    if versions.type is not pafs.FileType.NotFound:
        return
    remove_checkpoints(uri)
    for info in system.get_file_info(pafs.FileSelector(f"{path}/data", allow_not_found=True)):
        if keys.parse_column_file_name(info.base_name) is not None:
            system.delete_file(info.path)
    if isinstance(system, pafs.LocalFileSystem):
        with contextlib.suppress(OSError):  # a folder is not empty
            for folder in (Path(path, "data"), Path(path)):
                if folder.exists():
                    folder.rmdir()


def remove_checkpoints_elsewhere(uri: str) -> None:
    """Remove the checkpoints of a dropped table if they are not in its own folder.

    Raises:
        OSError: A file cannot be removed.
    """
    if checkpoint_place(uri) != uri.rstrip("/"):
        remove_checkpoints(uri)


def remove_checkpoints(uri: str) -> None:
    """Remove all checkpoints of a table.

    Raises:
        OSError: A file cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        delete_folder(*filesystem_of(checkpoint_root(uri)))
    place = checkpoint_place(uri)
    if place != uri.rstrip("/"):
        system, path = filesystem_of(place)
        # delete an empty folder: in an object store it may be a marker object
        if not system.get_file_info(pafs.FileSelector(path, allow_not_found=True)):
            with contextlib.suppress(FileNotFoundError):
                delete_folder(system, path)
