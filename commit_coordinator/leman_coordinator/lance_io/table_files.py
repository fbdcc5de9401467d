"""The files of a table: check staged files, note committed ones, list the table's folders, and remove files.

Lance keeps no checksums, and deletes the properties of its transactions together with old versions. So before the
coordinator installs files, it writes their sizes and digests to a note, a small file for each request under
`<table>/_committed/`. If a noted file is not installed after all, its note does no harm, because no other file ever
gets the same name.

If the storage cannot be used, all functions raise the errors of `storage_failed`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import lance
import numpy as np
import pyarrow.fs as pafs
from lance.fragment import DataFile as LanceDataFile
from lance.fragment import FragmentMetadata

from leman._format.stored_documents import content_digest
from leman_core.model import keys, row_states
from leman_core.model.garbage import UNFINISHED_NAME, StoredFile
from leman_core.model.plan import OutputField, StagedFile
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import FailedPrecondition, LemanError
from leman_core.model.table import TableSnapshot
from leman_core.storage import column_files
from leman_core.storage.checkpoint_store import CHECKPOINT_FOLDER, checkpoint_root
from leman_core.storage.column_files import Verified, digest_of
from leman_core.storage.documents import DocumentFolder, Listed
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.lance_files import Deletions
from leman_core.storage.lance_tables import LanceTables, open_table, snapshot_of
from leman_core.storage.manifest import read_fragments
from leman_core.storage.opening import open_latest, open_version
from leman_core.storage.storage_errors import storage_failed
from leman_core.storage.view_side_files import REFRESH_FOLDER

#: Lance's field id for a column of a file that another file has replaced.
_REPLACED = -2


@dataclass(frozen=True, slots=True)
class InstallableFile:
    """A staged file whose content passed all checks."""

    name: str
    #: The file's entry for a manifest.
    data_file: LanceDataFile = field(repr=False)
    #: Rows that the file lacks, because they were deleted when it was written.
    deletions: Deletions | None = field(default=None, repr=False)


class StagedFiles:
    """Checks the staged files of one table, in many threads."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._layouts: dict[tuple[Hashable, ...], LanceDataFile] = {}
        self._finding = threading.Lock()

    def prepare(self, staged: StagedFile, output: OutputField) -> InstallableFile:
        """Check the content of a staged file and return it as an installable one.

        Raises:
            NotFound: TABLE_NOT_FOUND – the table does not exist.
            FailedPrecondition: TYPE_MISMATCH – the column is not the table's.
            LemanError: raised by `column_files.read_verified`.
        """
        verified = column_files.verify_column_file(self._uri, staged, output.field.arrow)
        key = (output.name, output.field.field_ids, str(output.field.arrow.type), verified.column, verified.format)
        with self._finding:  # one thread opens the table for all
            layout = self._layouts.get(key)
            if layout is None:
                layout = self._layouts[key] = self._layout_of(staged, verified, output)
        return InstallableFile(
            staged.file,
            with_layout_of(layout, staged),
            verified.deletions,
        )

    def _layout_of(self, staged: StagedFile, verified: Verified, output: OutputField) -> LanceDataFile:
        with contextlib.ExitStack() as stack:
            name = staged.file
            if verified.column != output.name:  # Lance looks for its column by the name in the file
                like = column_files.empty_copy(self._uri, staged, output.field.arrow, verified.format)
                name = stack.enter_context(like)
            return self._layout(name, output)

    def _layout(self, name: str, output: OutputField) -> LanceDataFile:
        """Return the layout of a file: which field each of its columns stores.

        All files of one column and format version have the same layout.
        """
        try:
            layout = LanceDataFile.create(open_table(self._uri), name)
        except (OSError, ValueError):
            layout = None
        if layout is None or not layout.fields or not set(layout.fields) <= set(output.field.field_ids):
            raise FailedPrecondition(
                "TYPE_MISMATCH",
                f"Type mismatch for column {output.name}: the fields of {name} are not those of this column",
            )
        return layout


def with_files(fragment: FragmentMetadata, new: Iterable[LanceDataFile]) -> FragmentMetadata:
    """Return a fragment in which new files replace earlier files of the same fields.

    A file whose fields are all replaced is dropped.
    """
    added = list(new)
    replaced = {field_id for file in added for field_id in file.fields}
    files = []
    for file in fragment.files:
        fields = [_REPLACED if field_id in replaced else field_id for field_id in file.fields]
        if fields == list(file.fields):
            files.append(file)
        elif any(field_id != _REPLACED for field_id in fields):
            sizes = file.file_major_version, file.file_minor_version, file.file_size_bytes
            files.append(LanceDataFile(str(file.path), fields, file.column_indices, *sizes, file.base_id))
    return dataclasses.replace(fragment, files=[*files, *added])


def with_layout_of(layout: LanceDataFile, staged: StagedFile) -> LanceDataFile:
    """Return the manifest entry for a staged file with the same columns as another file."""
    return LanceDataFile(
        staged.file,
        layout.fields,
        layout.column_indices,
        layout.file_major_version,
        layout.file_minor_version,
        staged.size_bytes,
    )


FOLDER = "_committed"
_ENDING = ".files"
#: The first line of a note. A line for each file follows: name, size, digest. The note's name is a digest of its
#: content.
_HEADER = "leman committed files 1"
#: At most this many notes stay unmerged.
_FEW = 16
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Committed:
    """The expected content of a committed file."""

    size_bytes: int
    #: xxh3-128 of the content, in hex.
    digest: str


@dataclass(frozen=True, slots=True)
class Notes:
    """All notes of a table."""

    #: Noted content by name of the data file.
    files: Mapping[str, Committed]
    #: The problem of each damaged note, by the note's file name.
    damaged: Mapping[str, str]
    bytes_read: int


def can_be_noted(file: StagedFile) -> bool:
    """Return whether the name and digest of an unchecked file have the form that a note needs."""
    return keys.parse_column_file_name(file.file) is not None and file.digest.isalnum()


def write_note(uri: str, files: Iterable[StagedFile]) -> None:
    """Write a note of files of a table. The same files always make the same note.

    Raises the errors of `storage_failed`.
    """
    _write(_folder(uri), {file.file: Committed(file.size_bytes, file.digest) for file in files})


def read_notes(uri: str) -> Notes:
    """Return all notes of a table.

    Raises the errors of `storage_failed`.
    """
    folder = _folder(uri)
    for tries_left in reversed(range(_TRIES)):
        found = _read(folder, folder.entries(_ENDING))
        if found.vanished and tries_left:  # merged meanwhile, so another note has their content
            continue
        break
    return Notes(found.files, found.damaged, found.bytes_read)


def problem_of(uri: str, name: str, expected: Committed) -> str:
    """Compare a data file with its note. Return the problem in words, or "" if the file is intact.

    Raises:
        NotFound: FILE_MISSING – the file does not exist.
        LemanError: see `storage_failed`.
    """
    size, digest = digest_of(uri, name)
    if (size, digest) == (expected.size_bytes, expected.digest):
        return ""
    if size != expected.size_bytes:
        return f"has {size} bytes, {expected.size_bytes} were announced for its commit"
    return f"has digest {digest}, {expected.digest} was announced for its commit"


def fold_notes(uri: str, present: Callable[[], Collection[str]]) -> None:
    """Merge many notes into one, without files that no longer exist.

    Damaged notes are kept. If a call is interrupted, call it again.

    Args:
        present: Lists the data folder. It is called after the notes were listed, so that no file is missed.

    Raises the errors of `storage_failed`.
    """
    folder = _folder(uri)
    notes = folder.entries(_ENDING)
    if len(notes) <= _FEW:
        return
    found, there = _read(folder, notes), present()
    made = _write(folder, {name: committed for name, committed in found.files.items() if name in there})
    folder.delete(*(note.name for note in notes if note.name != made and note.name not in found.damaged))


@dataclass(frozen=True, slots=True)
class _Found:
    files: dict[str, Committed]
    damaged: dict[str, str]
    vanished: bool
    bytes_read: int


def _folder(uri: str) -> DocumentFolder:
    return DocumentFolder(f"{uri}/{FOLDER}", f"Notes of committed files of {uri}")


def _read(folder: DocumentFolder, notes: Iterable[Listed]) -> _Found:
    files: dict[str, Committed] = {}
    damaged: dict[str, str] = {}
    vanished, size = False, 0
    for note in notes:
        if not note.is_file:
            damaged[note.name] = "a folder lies in its place"
            continue
        content = folder.read(note.name)
        if content is None:
            vanished = True
            continue
        size += len(content)
        try:
            files.update(_decode(note.name, content))
        except ValueError as error:
            damaged[note.name] = str(error)
    return _Found(files, damaged, vanished, size)


def _write(folder: DocumentFolder, files: Mapping[str, Committed]) -> str:
    """Write a note, and return its name, which is a digest of its content."""
    lines = [f"{name} {committed.size_bytes} {committed.digest}" for name, committed in files.items()]
    content = "\n".join([_HEADER, *lines, ""]).encode()
    name = _name_of(content)
    folder.put(name, content)
    return name


def _name_of(content: bytes) -> str:
    return content_digest(content) + _ENDING


def _decode(name: str, content: bytes) -> dict[str, Committed]:
    if _name_of(content) != name:
        raise ValueError("it does not have the content that it was written with")
    _, *lines = content.decode().splitlines()
    parts = (line.split(" ") for line in lines)
    return {file: Committed(int(size), digest) for file, size, digest in parts}


#: Lance's own folders, apart from the data. Its folder of indices, with a folder for each index, follows.
_OF_LANCE = ("_versions", "_transactions", "_deletions")
_INDICES = "_indices"
#: The number of files that are deleted after one listing of their folder.
_AT_ONCE = 1000


class TableVersions:
    """The versions of a table. Only versions can refer to its data files.

    Raises:
        NotFound: TABLE_NOT_FOUND – the table does not exist.
        Unavailable: the storage cannot be read now.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.latest = LanceTables().snapshot(uri)

    def older(self) -> Iterator[TableSnapshot]:
        """Yield the existing versions before `latest`, newest first, including tagged ones."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            numbers = sorted((int(v["version"]) for v in dataset.versions()), reverse=True)
            for number in numbers:
                if number < self.latest.version:
                    yield _snapshot(self._uri, dataset.checkout_version(number))

    def branches(self) -> Iterator[TableSnapshot]:
        """Yield the versions of other branches, which have their own manifests but share the data folder."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            for name in dataset.branches.list():
                branch = dataset.checkout_version((name, None))
                for version in branch.versions():
                    yield _snapshot(self._uri, dataset.checkout_version((name, int(version["version"]))))

    def files_since(self) -> set[str]:
        """Return the data files of the versions after `latest`."""
        with _readable(self._uri):
            dataset = open_latest(self._uri)
            later = range(self.latest.version + 1, dataset.version + 1)
            snapshots = [_snapshot(self._uri, dataset.checkout_version(number)) for number in later]
        return {f.path for snapshot in snapshots for fragment in snapshot.fragments for f in fragment.files}


def data_folder(uri: str) -> list[StoredFile]:
    """Return the files in the data folder that Leman wrote or that are unfinished, ordered by name."""
    return [f for f in _listed(uri, "data") if is_lemans_data_file(f.name) or UNFINISHED_NAME.fullmatch(f.name)]


def unfinished_elsewhere(uri: str) -> list[StoredFile]:
    """Return the unfinished files that killed writers left outside the data folder, ordered by folder and name.

    These are unfinished manifests, transactions, deletion files, indices and notes of committed files.
    """
    folders = [*_OF_LANCE, FOLDER, *(f"{_INDICES}/{name}" for name in _folders(uri, _INDICES))]
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
    """Return the file system of a folder of a table, and the folder's path in it. Checkpoints may lie elsewhere."""
    return filesystem_of(checkpoint_root(uri) if folder == CHECKPOINT_FOLDER else f"{uri}/{folder}")


def is_lemans_data_file(name: str) -> bool:
    """Return whether Leman writes data files with such names: column files, a view's files, and added rows."""
    return keys.parse_column_file_name(name) is not None or keys.is_view_file_name(name) or keys.is_rows_file_name(name)


def is_elsewhere(table: TableSnapshot, fragment_id: int, name: str) -> bool:
    """Return whether a version refers to a data file outside the table's folder, as a shallow clone does."""
    with _readable(table.uri):
        fragment = open_version(table.uri, table.version).get_fragment(fragment_id)
    files = [] if fragment is None else fragment.metadata.files
    return any(str(f.path) == name and getattr(f, "base_id", None) is not None for f in files)


def refresh_folder(uri: str) -> list[StoredFile]:
    """Return the files of a view's refresh folder, ordered by name.

    These include lists of rows to evict, each of which is removed once its delta is committed.
    """
    return _listed(uri, REFRESH_FOLDER)


def untouched_ranges(uri: str, file: str) -> tuple[tuple[RowRange, ...], frozenset[str]] | None:
    """Return the rows of a partial column file that no job requested, and md5 of the filters that it fully covers.

    Return None if the file cannot be read.
    """
    try:
        buffer = column_files.read_states_buffer(uri, file)
        if buffer is None:
            return None
        summary, states = row_states.decode_state_summary(buffer), row_states.decode_states(buffer)
    except LemanError:
        return None
    open_rows = np.concatenate(([False], states == RowState.UNTOUCHED, [False]))
    edges = np.flatnonzero(open_rows[1:] != open_rows[:-1]).tolist()
    return tuple(RowRange(start, end) for start, end in list(pairwise(edges))[::2]), summary.filters


def remove_files(uri: str, files: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Delete the files that have not changed since they were listed, and yield each that is gone.

    This lists the folders again to detect changes. Requests for single objects cannot detect them: a store returns
    times of modification in milliseconds in a listing, but in seconds for a single object.

    Raises:
        Unavailable: STORE_UNAVAILABLE – repeat the call to continue.
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
                continue  # it was rewritten since
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
        raise storage_failed(error, f"Files of table {uri} cannot be used now: {error}", uri) from None
