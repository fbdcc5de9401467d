"""Small Lance tables that are only appended to: job history and the error store."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path

import lance
import pyarrow as pa

from core.lance_io.opening import open_latest, open_version
from core.storage import refusal

_COMPACT_AFTER = 128
_KEEP = datetime.timedelta(hours=1)


class Snapshot:
    """The rows of one version, each with a place of its own: 0 is the first."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset
        self.version = int(dataset.version)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self._dataset.schema.names)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, in the order of their places."""
        batches: Iterator[pa.RecordBatch] = self._dataset.scanner(
            columns=list(columns), scan_in_order=True
        ).to_batches()
        return batches

    def rows(self, places: Sequence[int]) -> list[dict[str, object]]:
        """The rows of these places, in this order."""
        if not places:
            return []
        rows: list[dict[str, object]] = self._dataset.take(list(places)).to_pylist()
        return rows


class AppendLog:
    """Rows of one schema under a uri. Not safe for threads; several
    processes may append at once."""

    def __init__(self, uri: str, schema: pa.Schema) -> None:
        self._uri = uri
        self._schema = schema
        self._appended = 0

    def create(self) -> None:
        """Makes the table if there is none. Call it before the first append: of two appends that both find no table,
        Lance would keep one."""
        if self._open() is not None:
            return
        try:
            if "://" not in self._uri:
                Path(self._uri).parent.mkdir(parents=True, exist_ok=True)
            lance.write_dataset(self._schema.empty_table(), self._uri, mode="create")
        except OSError as error:  # somebody else was faster, unless the storage refuses
            self._raise_refusal(error)

    def append(self, rows: Sequence[dict[str, object]]) -> int:
        """Adds rows in one version, and says which. Raises FailedPrecondition where the storage refuses (see
        `core.storage`), and OSError."""
        table = pa.Table.from_pylist(list(rows), schema=self._schema)
        try:
            version = int(lance.write_dataset(table, self._uri, mode="append").version)
        except OSError as error:
            self._raise_refusal(error)
            raise
        self._appended += 1
        if self._appended >= _COMPACT_AFTER:
            self._appended = 0
            self.compact()
        return version

    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> list[dict[str, object]]:
        """Rows in the order of their appends; nothing where nothing was appended yet."""
        dataset = self._open()
        if dataset is None:
            return []
        names = list(columns) if columns is not None else None
        rows: list[dict[str, object]] = dataset.to_table(columns=names, filter=where).to_pylist()
        return rows

    def snapshot(self, version: int = 0) -> Snapshot | None:
        """The rows of a version (0: the latest); None where nothing was appended yet, or the version was cleaned."""
        if not version:
            dataset = self._open()
            return None if dataset is None else Snapshot(dataset)
        try:
            return Snapshot(open_version(self._uri, version))
        except (ValueError, OSError):
            return None

    def compact(self) -> None:
        """Makes few files of many; a writer that comes in between goes first."""
        dataset = self._open()
        if dataset is None:
            return
        with contextlib.suppress(OSError):
            dataset.optimize.compact_files()
            dataset.cleanup_old_versions(older_than=_KEEP)

    def _raise_refusal(self, error: OSError) -> None:
        refused = refusal(error, self._uri)
        if refused is not None:
            raise refused from error

    def _open(self) -> lance.LanceDataset | None:
        try:
            return open_latest(self._uri)
        except (ValueError, OSError):
            if "://" not in self._uri and Path(self._uri, "_versions").exists():
                raise
            return None
