"""Files in a table's folder, and what the versions of the table refer to. Removes files that nothing refers to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

import lance
import numpy as np
import pyarrow.fs as pafs

from core import keys, row_states
from core.domain.garbage import UNFINISHED_NAME, StoredFile
from core.domain.ranges import RowRange
from core.domain.table import TableSnapshot
from core.errors import Unavailable
from core.lance_io import column_files
from core.lance_io.manifest import read_fragments
from core.lance_io.opening import filesystem_of, open_latest, open_version
from core.lance_io.tables import LanceTables, snapshot_of
from core.lance_io.views.files import REFRESH_FOLDER
from core.row_states import RowState


class TableVersions:
    """Everything that refers to a table's data files. Raises NotFound (TABLE_NOT_FOUND), Unavailable."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.latest = LanceTables().snapshot(uri)

    def older(self) -> Iterator[TableSnapshot]:
        """The versions before `latest` that are kept, newest first; tagged ones are among them."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            numbers = sorted((int(v["version"]) for v in dataset.versions()), reverse=True)
            for number in numbers:
                if number < self.latest.version:
                    yield _snapshot(self._uri, dataset.checkout_version(number))

    def branches(self) -> Iterator[TableSnapshot]:
        """The versions of other branches: their manifests lie elsewhere and refer to the same data folder."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            for name in dataset.branches.list():
                branch = dataset.checkout_version((name, None))
                for version in branch.versions():
                    yield _snapshot(self._uri, dataset.checkout_version((name, int(version["version"]))))

    def files_since(self) -> set[str]:
        """Data files of the versions that came after `latest`."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            later = range(self.latest.version + 1, dataset.version + 1)
            snapshots = [_snapshot(self._uri, dataset.checkout_version(number)) for number in later]
        return {f.path for snapshot in snapshots for fragment in snapshot.fragments for f in fragment.files}


def data_folder(uri: str) -> list[StoredFile]:
    """The files of the data folder that Leman wrote, and unfinished ones; by name."""
    filesystem, root = filesystem_of(uri)
    infos = filesystem.get_file_info(pafs.FileSelector(f"{root}/data", allow_not_found=True))
    ours = [i for i in infos if i.is_file and (is_installable(i.base_name) or UNFINISHED_NAME.fullmatch(i.base_name))]
    return [StoredFile("data", i.base_name, i.size, i.mtime_ns / 1e9) for i in sorted(ours, key=lambda i: i.base_name)]


def is_installable(name: str) -> bool:
    """Whether a file of the data folder is one that Leman stages: a column file, or a file of a view."""
    return keys.parse_column_file_name(name) is not None or keys.is_view_file_name(name)


def is_elsewhere(table: TableSnapshot, fragment_id: int, name: str) -> bool:
    """Whether a version refers to a data file in another folder than the table's own, as a shallow clone does."""
    with _readable(table.uri):
        fragment = open_version(table.uri, table.version).get_fragment(fragment_id)
    files = [] if fragment is None else fragment.metadata.files
    return any(str(f.path) == name and getattr(f, "base_id", None) is not None for f in files)


def refresh_folder(uri: str) -> list[StoredFile]:
    """Lists of rows to be evicted from a view, by name; such a file goes once it is committed."""
    filesystem, root = filesystem_of(uri)
    infos = filesystem.get_file_info(pafs.FileSelector(f"{root}/{REFRESH_FOLDER}", allow_not_found=True))
    found = sorted((i for i in infos if i.is_file), key=lambda i: i.base_name)
    return [StoredFile(REFRESH_FOLDER, i.base_name, i.size, i.mtime_ns / 1e9) for i in found]


def untouched_ranges(uri: str, file: str) -> tuple[tuple[RowRange, ...], frozenset[str]] | None:
    """Rows of a partial column file that nobody asked for yet, and md5 of the filters that are settled in it; None
    where that cannot be read."""
    try:
        buffer = column_files.read_states_buffer(uri, file)
        if buffer is None:
            return None
        summary, states = row_states.decode_summary(buffer), row_states.decode(buffer)
    except (OSError, ValueError, RuntimeError, KeyError):
        return None
    open_rows = np.concatenate(([False], states == RowState.UNTOUCHED, [False]))
    edges = np.flatnonzero(open_rows[1:] != open_rows[:-1]).tolist()
    return tuple(RowRange(start, end) for start, end in list(pairwise(edges))[::2]), summary.filters


def remove(uri: str, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Deletes those of the files that are still what they were when they were listed; yields each that is gone.

    Raises Unavailable (STORE_UNAVAILABLE); the same call again goes on.
    """
    filesystem, root = filesystem_of(uri)
    for file in files:
        path = f"{root}/{file.folder}/{file.name}"
        with _readable(uri):
            info = filesystem.get_file_info(path)
            if info.is_file and info.mtime_ns / 1e9 != file.modified:
                continue  # written anew since
            with contextlib.suppress(FileNotFoundError):
                filesystem.delete_file(path)
        yield file


def _snapshot(uri: str, dataset: lance.LanceDataset) -> TableSnapshot:
    return snapshot_of(uri, dataset, read_fragments(dataset))


@contextlib.contextmanager
def _readable(uri: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise Unavailable("STORE_UNAVAILABLE", f"Table {uri} cannot be read now: {error}", uri=uri) from None
