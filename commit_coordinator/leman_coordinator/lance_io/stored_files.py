"""The files in a table's folder and of its checkpoints, what the table's versions refer to, and the removal of files.

Where the storage cannot be used, everything here raises what `storage_errors.failed` gives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import pairwise

import lance
import numpy as np
import pyarrow.fs as pafs

from leman_coordinator.lance_io import committed_files
from leman_core.model import keys, row_states
from leman_core.model.errors import LemanError
from leman_core.model.garbage import UNFINISHED_NAME, StoredFile
from leman_core.model.ranges import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.table import TableSnapshot
from leman_core.storage import column_files
from leman_core.storage.checkpoints.lance_store import CHECKPOINT_FOLDER, checkpoint_root
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.manifest import read_fragments
from leman_core.storage.opening import open_latest, open_version
from leman_core.storage.storage_errors import failed
from leman_core.storage.tables import LanceTables, snapshot_of
from leman_core.storage.views.refresh_folder import REFRESH_FOLDER

#: Folders of Lance's own beside the data, and that of its indices, which has a folder for each.
_OF_LANCE = ("_versions", "_transactions", "_deletions")
_INDICES = "_indices"
#: Files that are deleted after one look at their folder.
_AT_ONCE = 1000


class TableVersions:
    """The versions of a table, and with them everything that refers to its data files.

    Raises:
        NotFound: TABLE_NOT_FOUND – there is no such table.
        Unavailable: the storage cannot be read now.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.latest = LanceTables().snapshot(uri)

    def older(self) -> Iterator[TableSnapshot]:
        """Yield the versions before `latest` that are kept, newest first; tagged ones are among them."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            numbers = sorted((int(v["version"]) for v in dataset.versions()), reverse=True)
            for number in numbers:
                if number < self.latest.version:
                    yield _snapshot(self._uri, dataset.checkout_version(number))

    def branches(self) -> Iterator[TableSnapshot]:
        """Yield the versions of other branches: their manifests lie elsewhere and refer to the same data folder."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            for name in dataset.branches.list():
                branch = dataset.checkout_version((name, None))
                for version in branch.versions():
                    yield _snapshot(self._uri, dataset.checkout_version((name, int(version["version"]))))

    def files_since(self) -> set[str]:
        """Return the data files of the versions that came after `latest`."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            later = range(self.latest.version + 1, dataset.version + 1)
            snapshots = [_snapshot(self._uri, dataset.checkout_version(number)) for number in later]
        return {f.path for snapshot in snapshots for fragment in snapshot.fragments for f in fragment.files}


def data_folder(uri: str) -> list[StoredFile]:
    """Return the files of the data folder that Leman wrote, and unfinished ones, by name."""
    return [f for f in _listed(uri, "data") if is_lemans_data_file(f.name) or UNFINISHED_NAME.fullmatch(f.name)]


def unfinished_elsewhere(uri: str) -> list[StoredFile]:
    """Return the unfinished files that killed writers left outside the data folder, by folder and name.

    They are of manifests, transactions, deletions, indices and notes of committed files.
    """
    folders = [*_OF_LANCE, committed_files.FOLDER, *(f"{_INDICES}/{name}" for name in _folders(uri, _INDICES))]
    return [f for folder in folders for f in _listed(uri, folder) if UNFINISHED_NAME.fullmatch(f.name)]


def _listed(uri: str, folder: str) -> list[StoredFile]:
    found = _entries(uri, folder)
    files = [
        StoredFile(folder=folder, name=i.base_name, size_bytes=i.size, modified=i.mtime_ns / 1e9)
        for i in found
        if i.is_file
    ]
    return sorted(files, key=lambda f: f.name)


def _folders(uri: str, folder: str) -> list[str]:
    return sorted(i.base_name for i in _entries(uri, folder) if i.type is pafs.FileType.Directory)


def _entries(uri: str, folder: str) -> list[pafs.FileInfo]:
    with _readable(uri):
        filesystem, path = _place(uri, folder)
        found: list[pafs.FileInfo] = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return found


def _place(uri: str, folder: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a table's folder, and its path there: checkpoints may lie elsewhere."""
    return filesystem_of(checkpoint_root(uri) if folder == CHECKPOINT_FOLDER else f"{uri}/{folder}")


def is_lemans_data_file(name: str) -> bool:
    """Tell whether Leman writes data files of that name: a column file, a file of a view, or one of added rows."""
    return keys.parse_column_file_name(name) is not None or keys.is_view_file_name(name) or keys.is_rows_file_name(name)


def is_elsewhere(table: TableSnapshot, fragment_id: int, name: str) -> bool:
    """Tell whether a version refers to a data file in another folder than the table's own, as a shallow clone does."""
    with _readable(table.uri):
        fragment = open_version(table.uri, table.version).get_fragment(fragment_id)
    files = [] if fragment is None else fragment.metadata.files
    return any(str(f.path) == name and getattr(f, "base_id", None) is not None for f in files)


def refresh_folder(uri: str) -> list[StoredFile]:
    """Return the files of a view's refresh folder, by name.

    Among them are lists of rows to be evicted; such a file is removed once its delta is committed.
    """
    return _listed(uri, REFRESH_FOLDER)


def untouched_ranges(uri: str, file: str) -> tuple[tuple[RowRange, ...], frozenset[str]] | None:
    """Return the rows of a partial column file that nobody asked for yet, and md5 of the filters settled in it.

    None where that cannot be read.
    """
    try:
        buffer = column_files.read_states_buffer(uri, file)
        if buffer is None:
            return None
        summary, states = row_states.decode_summary(buffer), row_states.decode(buffer)
    except LemanError:
        return None
    open_rows = np.concatenate(([False], states == RowState.UNTOUCHED, [False]))
    edges = np.flatnonzero(open_rows[1:] != open_rows[:-1]).tolist()
    return tuple(RowRange(start, end) for start, end in list(pairwise(edges))[::2]), summary.filters


def remove(uri: str, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Delete those of the files that are still as they were listed, and yield each that is gone.

    Their folders are listed again to tell: for one and the same object a store gives milliseconds in a list, and
    seconds when it is asked for that object alone.

    Raises:
        Unavailable: STORE_UNAVAILABLE – the same call again goes on.
    """
    wanted = list(files)
    for at in range(0, len(wanted), _AT_ONCE):
        part = wanted[at : at + _AT_ONCE]
        folders = {file.folder for file in part}
        with _readable(uri):
            now = {(f.folder, f.name): f for folder in folders for f in _listed(uri, folder)}
            places = {folder: _place(uri, folder) for folder in folders}
        for file in part:
            found = now.get((file.folder, file.name))
            if found is not None and (found.modified, found.size_bytes) != (file.modified, file.size_bytes):
                continue  # written anew since
            filesystem, path = places[file.folder]
            with _readable(uri), contextlib.suppress(FileNotFoundError):
                filesystem.delete_file(f"{path}/{file.name}")
            yield file


def _snapshot(uri: str, dataset: lance.LanceDataset) -> TableSnapshot:
    return snapshot_of(uri, dataset, read_fragments(dataset))


@contextlib.contextmanager
def _readable(uri: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise failed(error, f"Files of table {uri} cannot be used now: {error}", uri) from None
