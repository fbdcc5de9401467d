"""Small documents that are read and written whole: create if absent, replace, compare and set, list, delete.

`DocumentFolder` stores them as files of a local disk or objects of a store, `DocumentTable` as keys of one Lance
table's config. `leman._format.stored_documents` has their digests and format numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.fs as pafs
from lance.commit import CommitConflictError

from leman_core.model.databases import StoreOptions
from leman_core.model.service_errors import NotFound
from leman_core.storage import whole_files
from leman_core.storage.error_translation import LANCE_ERRORS, table_error, using_storage
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import OWN_FOLDER, in_object_store
from leman_core.storage.object_stores import options_of
from leman_core.storage.opening import has_versions, open_checked, open_latest
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import on_one_line, refusal_error, storage_failed
from leman_core.storage.table_creation import check_conditional_puts, create_empty

_TABLE_SCHEMA = pa.schema([pa.field("name", pa.string())])
_CLAIM_SCHEMA = pa.schema([pa.field("x", pa.int8())])
_CLAIMED = b"definition"
#: Documents that `create` compares with its own are read from an object store in one request up to this size.
_SMALL_BYTES = 1 << 20
#: How Lance reports that another writer set the same key.
_CONFLICT = "Incompatible transaction"


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry of a folder. `modified`: seconds since the epoch, by the clock of the store; 0: unknown."""

    name: str
    size_bytes: int
    modified: float
    is_file: bool


class DocumentFolder:
    """The documents in one folder. Any number of threads and processes may use it.

    If the storage cannot be used, every call raises what `storage_errors.storage_failed` gives. A missing document or
    folder is not an error.

    Args:
        uri: The folder.
        what: The documents, as the subject of an error message.
        claims: A folder below a database's own one for claims, which let `create` work in every object store; empty:
            `create` makes conditional puts, and needs a store for which `whole_files.objects_are_supported`.
    """

    def __init__(self, uri: str, what: str, claims: str = "") -> None:
        self.uri = uri
        self._what = what
        self._claims = claims
        self._place: tuple[pafs.FileSystem, str] | None = None
        self._options: StoreOptions | None = None

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a disk of this machine."""
        return not in_object_store(self.uri) or self.uri.startswith("file:")

    def place(self) -> tuple[pafs.FileSystem, str]:
        """Return the file system of the folder and the path in it, for documents too large to hold in memory."""
        options = options_of(self.uri)
        if self._place is None or options != self._options:  # credentials are renewed while a folder is in use
            with self.in_use():
                self._place, self._options = filesystem_of(self.uri), options
        return self._place

    def put(self, name: str, content: bytes) -> None:
        """Store a document, replacing the one of that name."""
        files, folder = self.place()
        with self.in_use(name):
            whole_files.put_whole_file(files, f"{folder}/{name}", content)

    def create(self, name: str, content: bytes) -> bytes:
        """Store a document unless the name is taken, and return the content that the name stands for now.

        If several callers create one name, all of them get the content of the first. If that one died after its claim,
        the next caller stores it. Empty: the document of another caller was deleted in between.

        Raises:
            LemanError: The document may be there all the same.
        """
        if self._claims and not self.is_local:
            check_conditional_puts(self._claims.rpartition(f"/{OWN_FOLDER}/")[0])
            first = _claim(f"{self._claims}/{name}.lance", content)
            if first == content or self.size(name) is None:
                self.put(name, first)
            return first
        with self.in_use(name):
            if self.is_local:
                created = whole_files.create_whole_file(f"{self.place()[1]}/{name}", content)
            else:
                created = whole_files.create_object(self.uri, name, content)
        # the name is taken by this content, too, if the answer was lost and the request repeated
        return content if created else self.read(name, _SMALL_BYTES) or b""

    def read(self, name: str, likely_bytes: int = 0) -> bytes | None:
        """Return the content of a document; None if there is none.

        Args:
            name: Of the document.
            likely_bytes: Greater than 0 if the document most likely exists: one of at most this size takes one request
                to an object store, and a missing one several.
        """
        with self.in_use(name):
            try:
                if likely_bytes:
                    return whole_files.read_expected(self.uri, name, likely_bytes)
                files, folder = self.place()
                with files.open_input_stream(f"{folder}/{name}") as stream:
                    return bytes(stream.read())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def size(self, name: str) -> int | None:
        """Return the size of a document in bytes; None if there is none."""
        files, folder = self.place()
        with self.in_use(name):
            found = files.get_file_info(f"{folder}/{name}")
        return int(found.size) if found.type == pafs.FileType.File else None

    def entries(self, ending: str = "") -> list[Listed]:
        """Return the entries whose names have the ending, by name, without what writers have not finished."""
        files, folder = self.place()
        with self.in_use():
            try:
                found = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
            except FileNotFoundError:  # pyarrow, if the folder is created at this moment
                return []
        listed = (
            Listed(info.base_name, int(info.size or 0), (info.mtime_ns or 0) / 1e9, bool(info.is_file))
            for info in found
            if info.base_name.endswith(ending) and not info.base_name.startswith(".")
        )
        return sorted(listed, key=lambda entry: entry.name)

    def delete(self, *names: str) -> None:
        """Delete documents."""
        files, folder = self.place()
        for name in names:
            with self.in_use(name), contextlib.suppress(FileNotFoundError):
                files.delete_file(f"{folder}/{name}")

    def delete_objects(self, names: Iterable[str]) -> None:
        """Delete documents in one request; needs what `create` needs without claims."""
        with self.in_use():
            whole_files.delete_objects(self.uri, list(names))

    def delete_unfinished(self) -> None:
        """Delete what killed writers left in a folder of a local disk a day ago. Stores keep nothing unfinished."""
        if self.is_local:
            whole_files.sweep_unfinished(self.place()[1])

    @contextlib.contextmanager
    def in_use(self, name: str = "") -> Iterator[None]:
        """Raise what `storage_errors.storage_failed` gives in place of an OSError, about a document or the folder."""
        try:
            yield
        except OSError as error:
            message = f"{self._what} cannot be used now: {on_one_line(str(error))}"
            raise storage_failed(error, message, f"{self.uri}/{name}".rstrip("/")) from error


def _claim(uri: str, content: bytes) -> bytes:
    """Return the content that a claim stands for from now on: this one, or that of the first to make it.

    A claim is a Lance table without rows, which has the content in its schema: Lance lets exactly one creator of a
    table succeed in every store, and pyarrow has no conditional put.

    Raises:
        LemanError: What `table_error` gives.
    """
    try:
        with panics_as_errors():
            try:
                create_empty(uri, _CLAIM_SCHEMA.with_metadata({_CLAIMED: content}))
            except FileExistsError:
                metadata: dict[bytes, bytes] = open_latest(uri).schema.metadata
                return metadata[_CLAIMED]
    except LANCE_ERRORS as error:
        raise table_error(uri, error) from error
    return content


@dataclass(frozen=True, slots=True)
class TableState:
    """All documents of a table in one version, by key, for one write. `dataset` is None if there is no table yet."""

    dataset: lance.LanceDataset | None = None
    values: Mapping[str, str] = field(default_factory=dict)


class DocumentTable:
    """Documents as keys in the config of a Lance table without rows, with compare-and-set over several keys.

    Lance writes conditionally in every store that tables lie in: of two writers of one key that did not see each
    other's write, one fails. One manifest holds all documents, so one read returns them in one state, and the table's
    history keeps former ones. If the storage cannot be used, calls raise what `table_error` gives.

    Args:
        uri: The table.
        what: The table, as the subject of an error message.
    """

    def __init__(self, uri: str, what: str) -> None:
        self._uri = uri
        self._what = what

    def read(self) -> TableState:
        """Return all documents; none if there is no table yet."""
        try:
            return self._open()
        except NotFound as error:
            with using_storage(self._uri):
                if not has_versions(self._uri):
                    return TableState()
            before = error
        try:  # created in between
            return self._open()
        except NotFound as error:  # versions exist and Lance misses a file of them: the table is not empty
            raise storage_failed(before, f"{self._what} cannot be read: {before}", self._uri) from error

    def write(self, state: TableState, values: Mapping[str, str | None]) -> bool:
        """Set keys, or with None remove them, if no other writer changed one of them since the state was read.

        Returns:
            False if one did, or the table was only created now: read again.
        """
        if state.dataset is None:
            self._create()
            return False
        try:
            with panics_as_errors():
                state.dataset.update_config(dict(values))
        except LANCE_ERRORS as error:
            refused = refusal_error(error, self._uri)
            if refused is not None:
                raise refused from error
            if isinstance(error, CommitConflictError) or _CONFLICT in str(error):
                return False
            now = self.read().values
            if any(now.get(key) != value for key, value in values.items()):
                raise storage_failed(error, f"{self._what} cannot be written: {error}", self._uri) from error
        return True

    def _open(self) -> TableState:
        try:
            with panics_as_errors():
                dataset = open_checked(self._uri)
                return TableState(dataset, {str(key): str(value) for key, value in dataset.config().items()})
        except LANCE_ERRORS as error:
            raise table_error(self._uri, error) from error

    def _create(self) -> None:
        """Create the table, unless another writer does so first."""
        try:
            if not in_object_store(self._uri):
                Path(self._uri).parent.mkdir(parents=True, exist_ok=True)
            check_conditional_puts(self._uri.rpartition("/")[0])
            with panics_as_errors():
                create_empty(self._uri, _TABLE_SCHEMA)
        except FileExistsError:
            return
        except LANCE_ERRORS as error:
            refused = refusal_error(error, self._uri)
            if refused is not None:
                raise refused from error
            if self.read().dataset is None:
                raise storage_failed(error, f"{self._what} cannot be created: {error}", self._uri) from error
