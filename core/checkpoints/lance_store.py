"""The store of record: one Lance file a key, under `<table>/_checkpoints/`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time

import pyarrow as pa
import pyarrow.fs as pafs
import structlog
from lance.file import LanceFileReader, LanceFileSession, LanceFileWriter

from core.checkpoints.digest import batch_digest
from core.domain.garbage import StoredFile
from core.errors import DataLoss
from core.lance_io.panics import panics_as_errors

_log = structlog.get_logger(__name__)

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_MAX_NAME = 200  # bytes; common file systems allow 255 with the ending
_HASHED = "key-"
_ENDING = ".lance"
_KEY, _DIGEST = b"leman.key", b"leman.digest"


def checkpoint_root(uri: str) -> str:
    """Folder of a table's checkpoints."""
    return f"{uri.rstrip('/')}/_checkpoints"


class LanceCheckpointStore:
    """See `core.ports.CheckpointStore`.

    A key that is no safe file name is stored under its sha256, with the key in the file's metadata (settlement S4).
    Every file carries a digest of its values; one that does not match is renamed to `*.damaged` and reads as absent.
    """

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._session: LanceFileSession | None = None

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None:
        writer = LanceFileWriter(self._path(key), value.schema.remove_metadata())
        writer.write_batch(value.replace_schema_metadata(None))
        writer.add_schema_metadata(_KEY.decode(), key)
        writer.add_schema_metadata(_DIGEST.decode(), batch_digest(value))
        writer.close()

    def __getitem__(self, key: str) -> pa.RecordBatch:
        try:
            return self._read(key)
        except DataLoss as error:
            if key in self:
                self._set_aside(key, error.message)
            raise KeyError(key) from None

    def _read(self, key: str) -> pa.RecordBatch:
        """Raises DataLoss (CHECKPOINT_DAMAGED) where it is not what was set; nothing is changed."""
        try:
            with panics_as_errors():
                reader = LanceFileReader(self._path(key))
                metadata = reader.metadata().schema.metadata or {}
                rows = reader.num_rows()
                table = reader.read_all(batch_size=max(rows, 1)).to_table() if rows else None
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            raise _damaged(key, str(error)) from None
        if table is None:
            batch = pa.RecordBatch.from_pylist([], schema=reader.metadata().schema.remove_metadata())
        else:
            batch = _one_batch(table.replace_schema_metadata(None))
        if metadata.get(_KEY) != key.encode() or metadata.get(_DIGEST) != batch_digest(batch).encode():
            raise _damaged(key, "its digest does not match")
        return batch

    def __contains__(self, key: str) -> bool:
        return self._files().contains(_file_name(key))

    def __delitem__(self, key: str) -> None:
        filesystem, root = self._filesystem()
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(f"{root}/{_file_name(key)}")

    def list_keys(self, prefix: str | None = None) -> list[str]:
        wanted = prefix or ""
        names = self._names()
        keys = [n[: -len(_ENDING)] for n in names if n.startswith(wanted) and not n.startswith(_HASHED)]
        hashed = (self._key_in(name) for name in names if name.startswith(_HASHED))
        keys += [key for key in hashed if key is not None and key.startswith(wanted)]
        return sorted(keys)

    def files(self) -> list[StoredFile]:
        """Everything in the folder, damaged and foreign files too, by name. A file of an older writer has its name as
        key, whatever this store would call it: name files, not keys, to remove what was found."""
        filesystem, root = self._filesystem()
        folder = root.rpartition("/")[2]
        found = [i for i in filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True)) if i.is_file]
        return [
            StoredFile(folder, i.base_name, i.size, i.mtime_ns / 1e9, self._key_of(i.base_name))
            for i in sorted(found, key=lambda i: i.base_name)
        ]

    def read_file(self, name: str) -> pa.RecordBatch:
        """What a file of `files` holds. Raises KeyError where it is gone or damaged."""
        key = self._key_of(name)
        if _file_name(key) != name:
            raise KeyError(name)
        return self[key]

    def check_file(self, name: str) -> pa.RecordBatch:
        """As `read_file`, and changes nothing. Raises DataLoss (CHECKPOINT_DAMAGED)."""
        key = self._key_of(name)
        if _file_name(key) != name:
            raise _damaged(name, "its name is not that of its key")
        return self._read(key)

    def _key_of(self, name: str) -> str:
        if not name.endswith(_ENDING):
            return ""
        return self._key_in(name) or "" if name.startswith(_HASHED) else name[: -len(_ENDING)]

    def _names(self) -> list[str]:
        filesystem, root = self._filesystem()
        if isinstance(filesystem, pafs.LocalFileSystem):  # names alone: the selector looks at every file
            with contextlib.suppress(FileNotFoundError):
                return [name for name in os.listdir(root) if name.endswith(_ENDING)]  # noqa: PTH208 -- no Path each
            return []
        selector = pafs.FileSelector(root, allow_not_found=True)
        return [f.base_name for f in filesystem.get_file_info(selector) if f.base_name.endswith(_ENDING)]

    def _key_in(self, name: str) -> str | None:
        try:
            with panics_as_errors():
                metadata = LanceFileReader(f"{self._root}/{name}").metadata().schema.metadata or {}
        except (OSError, ValueError, RuntimeError):
            return None
        key = metadata.get(_KEY)
        return None if key is None else key.decode()

    def _path(self, key: str) -> str:
        return f"{self._root}/{_file_name(key)}"

    def _files(self) -> LanceFileSession:
        if self._session is None:
            self._session = LanceFileSession(self._root)
        return self._session

    def _filesystem(self) -> tuple[pafs.FileSystem, str]:
        if "://" in self._root:
            filesystem, root = pafs.FileSystem.from_uri(self._root)
            return filesystem, root
        return pafs.LocalFileSystem(), self._root

    def _set_aside(self, key: str, why: str) -> None:
        filesystem, root = self._filesystem()
        name = _file_name(key)
        aside = f"{name[: -len(_ENDING)]}.{time.time_ns():x}.damaged"
        _log.warning("damaged checkpoint set aside", key=key, why=why, file=aside)
        with contextlib.suppress(FileNotFoundError):
            filesystem.move(f"{root}/{name}", f"{root}/{aside}")


def _damaged(key: str, what: str) -> DataLoss:
    return DataLoss("CHECKPOINT_DAMAGED", what, key=key)


def _file_name(key: str) -> str:
    if _SAFE.fullmatch(key) and len(key) <= _MAX_NAME and not key.startswith(_HASHED):
        return key + _ENDING
    return _HASHED + hashlib.sha256(key.encode()).hexdigest() + _ENDING


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.concat_arrays(c.chunks) for c in table.columns], schema=table.schema)
