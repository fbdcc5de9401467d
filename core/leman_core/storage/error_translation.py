"""Translate errors of Lance, pyarrow and the system to Leman's. `leman_core.storage.storage_errors` has the rules."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.fs as pafs

from leman_core.model.service_errors import DataLoss, FailedPrecondition, LemanError, NotFound
from leman_core.storage import lance_files, manifest
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.opening import NO_VERSION, OTHER_VERSION, open_latest
from leman_core.storage.panics import is_panic, panics_as_errors
from leman_core.storage.storage_errors import (
    error_number,
    on_one_line,
    refusal_error,
    storage_failed,
    storage_unusable,
    store_failed,
)

_MISSING = ("was not found", "not found:", "Not found:", "No such file", "Not a directory")
#: Lance's errors for a manifest that it could read but not decode.
_DAMAGED = re.compile(
    r"failed to decode Protobuf|sufficient data|file size is too small|Invalid range|LanceError\(Schema\)|CorruptFile|"
    rf"Unknown Lance storage version|{NO_VERSION}|{OTHER_VERSION}"
)
_TOO_NEW = re.compile(r"cannot be read by this version of Lance|[Uu]nsupported.*feature|[Ff]eature flags")
#: Lance's errors for data and deletion files that it cannot decode, so that a retry fails, too.
_NONSENSE = re.compile(r"Encountered corrupt file|invalid magic|LanceError\(Arrow\).*/io/deletion\.rs:")
#: Lance's errors that may mean that a file is too short or is a folder, or something else. Only a check of the files
#: shows which.
_MAYBE_NONSENSE = re.compile(r"Generic [\w/]+ error: .*(?:\brange\b|Is a directory)|/io/deletion\.rs:")
_OF_DELETIONS = "/io/deletion.rs:"
#: The path of a data or deletion file in a table's folder, in Lance's errors.
_FILE = re.compile(r"(?:data|_deletions)/[\w.-]+\.(?:lance|arrow|bin)\b")
_FLAGS = re.compile(r"Flags: (\d+)")
#: Lance's feature flag of tables with data overlay files, which no release reads by default.
_OVERLAYS = 64
_SUFFIX = ".lance"
#: Most entries of a folder, or files of a table, to look at, so that an error is quick.
_LOOKED_AT = 10_000
_NEAR = 6
#: How many files' sizes to read in one call.
_AT_ONCE = 1_000
#: Most files to read in search of the damaged one.
_READ = 256
#: The last bytes of each data file.
_MAGIC = b"LANC"


def table_error(uri: str, error: Exception, version: int = 0) -> LemanError:
    """Translate Lance's error for a version of a table that it cannot open.

    Args:
        uri: The table.
        error: Lance's error.
        version: The version; 0 is the latest.

    Returns:
        NotFound: VERSION_NOT_FOUND if the table has other versions, or TABLE_NOT_FOUND if it has none.
        DataLoss: TABLE_DAMAGED.
        FailedPrecondition: STORAGE_DENIED, STORAGE_MISSING, TABLE_NOT_SUPPORTED.
        Unavailable: STORE_UNAVAILABLE – the table may be readable later.
    """
    text = on_one_line(str(error))
    refused = refusal_error(error, uri)
    if refused is not None:
        return refused
    if is_missing(error):
        latest = _latest(uri) if version else 0
        if latest:
            return NotFound(
                "VERSION_NOT_FOUND",
                f"Table {uri} has no version {version}: the latest is {latest}, and old ones may have been cleaned up",
                uri=uri,
                version=version,
                latest_version=latest,
            )
        return NotFound(
            "TABLE_NOT_FOUND",
            f"There is no table at {uri}: {_advice(uri)}",
            uri=uri,
        )
    flags = _FLAGS.search(text)
    if _TOO_NEW.search(text) and flags is not None and int(flags[1]) & _OVERLAYS:
        return FailedPrecondition(
            "TABLE_NOT_SUPPORTED",
            f"Table {uri} has data overlay files, an unstable feature of Lance that Leman does not read. Compact it "
            "with the program that wrote them, or restore a version without overlays",
            uri=uri,
        )
    if _TOO_NEW.search(text):
        return FailedPrecondition(
            "TABLE_NOT_SUPPORTED",
            f"Table {uri} needs a later release of Lance than this service has ({text}): upgrade Leman",
            uri=uri,
        )
    path, is_damaged = _look_for_table(uri, version)
    if path and (is_damaged or is_panic(error) or _DAMAGED.search(text)):
        return DataLoss(
            "TABLE_DAMAGED",
            f"Table {uri} is damaged: its manifest {path} cannot be decoded ({text}). Put it back from a backup, or "
            "move it away to make the version before it the latest one",
            uri=uri,
            path=path,
        )
    return storage_failed(error, f"Table {uri} cannot be read: {text}", uri)


def is_missing(error: BaseException) -> bool:
    """Return whether an error of Lance says that a file does not exist."""
    return any(sign in str(error) for sign in _MISSING)


def file_damage(uri: str, error: BaseException) -> DataLoss | None:
    """Return the error (TABLE_DAMAGED) for a table whose latest version refers to a missing or undecodable file.

    Returns:
        None if `error` means something else, or is about a file of an older version that has been cleaned up.
    """
    text = str(error)
    is_nonsense = _NONSENSE.search(text) is not None
    may_be = is_nonsense or is_panic(error) or _MAYBE_NONSENSE.search(text) is not None
    named = _FILE.findall(text)
    if not may_be and not (named and is_missing(error)):
        return None
    try:
        found = _damaged_file(uri, text, "" if may_be else named[-1])
    except (OSError, ValueError):
        return None  # the table does not exist, or cannot be reached
    if found is not None:
        path, problem = found
        return DataLoss(
            "TABLE_DAMAGED",
            f"Table {uri} is damaged: {path} {problem}, and the latest version refers to it. Put the file back from a "
            "backup, or restore an earlier version that does not need it",
            uri=uri,
            path=path,
        )
    if not is_nonsense:
        return None
    return DataLoss(
        "TABLE_DAMAGED",
        f"Table {uri} is damaged: one of its files cannot be decoded ({first_line(error)}). Find it with "
        "CommitService.VerifyDatabase, and put it back from a backup, or restore an earlier version that does not "
        "need it",
        uri=uri,
    )


def _damaged_file(uri: str, text: str, name: str) -> tuple[str, str] | None:
    """Return the path of a missing or undecodable file of the latest version, and what is wrong with it; None if none.

    Args:
        uri: The table.
        text: Lance's error. If all sizes are right, files of the kind that it is about are read.
        name: The only file to check. If empty, the first `_LOOKED_AT` files are checked.

    Raises:
        OSError, ValueError: The table does not exist, or cannot be read.
    """
    filesystem, root = filesystem_of(uri)
    every = _files_of(open_latest(uri))
    files = [file for file in itertools.islice(every, None if name else _LOOKED_AT) if not name or file.name == name]
    own = [file for file in files if file.base_id is None]
    if name and len(own) < len(files):
        return name, "of the table that it was cloned from is missing"
    for at in range(0, len(own), _AT_ONCE):
        some = own[at : at + _AT_ONCE]
        infos = filesystem.get_file_info([f"{root}/{file.name}" for file in some])
        for file, info in zip(some, infos, strict=True):
            if problem := _wrong_size(file, info):
                return f"{root}/{file.name}", problem
    of_deletions = _OF_DELETIONS in text
    for file in [file for file in own if (file.deletions is not None) == of_deletions][:_READ]:
        with filesystem.open_input_file(f"{root}/{file.name}") as stored:
            if file.deletions is None:
                stored.seek(max(0, stored.size() - len(_MAGIC)))
                problem = "" if stored.read() == _MAGIC else "does not end as a file of Lance does"
            else:
                problem = (
                    ""
                    if lance_files.is_sound_deletion_file(stored.read(), file.deletions, file.rows)
                    else "cannot be decoded"
                )
        if problem:
            return f"{root}/{file.name}", problem
    return None


def _wrong_size(file: _File, info: pafs.FileInfo) -> str:
    """Return what the listing shows to be wrong with a file, or empty."""
    if info.type == pafs.FileType.NotFound:
        return "is missing"
    if info.type != pafs.FileType.File:
        return "is a folder"
    if file.size and info.size != file.size:
        return f"has {info.size} bytes instead of {file.size}"
    return ""


@dataclass(frozen=True, slots=True)
class _File:
    """A file that a version refers to."""

    name: str
    #: If given, the file is not in the table's own folder, but in one of the table that it was cloned from.
    base_id: int | None
    #: How many physical rows its fragment has.
    rows: int
    #: The size of a data file; None if the manifest does not state it.
    size: int | None = None
    #: The deletion file; None for a data file.
    deletions: lance.fragment.DeletionFile | None = None


def _files_of(dataset: lance.LanceDataset) -> Iterator[_File]:
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        file, rows = metadata.deletion_file, metadata.physical_rows
        if file is not None:
            yield _File(
                lance_files.deletion_file_path(int(fragment.fragment_id), file), file.base_id, rows, deletions=file
            )
        for data in metadata.files:
            yield _File(f"data/{data.path}", data.base_id, rows, data.file_size_bytes)


def _advice(uri: str) -> str:
    """Return what to do about a missing table. In a local folder, suggest tables with similar names."""
    folder, _, name = uri.rpartition("/")
    names: list[str] = []
    if not in_object_store(uri):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            looked_at = itertools.islice(entries, _LOOKED_AT)
            names = [entry.name.removesuffix(_SUFFIX) for entry in looked_at if entry.name.endswith(_SUFFIX)]
    near = difflib.get_close_matches(name.removesuffix(_SUFFIX), names, n=_NEAR)
    # a folder without versions is the rest of a dropped table, or a view that is being created
    close = [found for found in near if os.path.isdir(f"{folder}/{found}{_SUFFIX}/_versions")][:2]  # noqa: PTH112
    meant = f"did you mean {' or '.join(map(repr, close))}? Else " if close else ""
    return f"{meant}check the database path and the table name, or create the table first"


def _look_for_table(uri: str, version: int) -> tuple[str, bool]:
    """Return the path of a version's manifest, or empty if it cannot be read, and whether its bytes are invalid."""
    try:
        paths = _manifests(uri)
        path = paths.get(version) if version else paths.get(max(paths, default=0))
        if path is None:
            return "", False
        filesystem, _ = filesystem_of(uri)
        with filesystem.open_input_stream(path) as stream:
            content = bytes(stream.readall())
    except (OSError, ValueError):
        return "", False
    try:
        manifest.message_in(content)
    except ValueError:
        return path, True
    return path, False


def _latest(uri: str) -> int:
    """Return the latest version in the table's folder; 0 if there is none, or the folder cannot be listed."""
    try:
        return max(_manifests(uri), default=0)
    except (OSError, ValueError):
        return 0


def _manifests(uri: str) -> dict[int, str]:
    """Return the path of each version's manifest. Raises OSError, ValueError."""
    filesystem, root = filesystem_of(uri)
    found = filesystem.get_file_info(pafs.FileSelector(f"{root}/_versions"))
    return {_version_of(entry.base_name): entry.path for entry in found if entry.base_name.endswith(".manifest")}


def _version_of(name: str) -> int:
    """Return the version in a manifest's name, which may follow either of Lance's naming schemes."""
    stem = Path(name).stem
    if not stem.isdecimal():
        return -1
    return manifest.LAST_VERSION - int(stem) if len(stem) == manifest.NAME_DIGITS else int(stem)


#: The errors of Lance and pyarrow when they cannot read or write. For panics see `leman_core.storage.panics`.
LANCE_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)
#: Types of errors for requests that Lance would refuse again, and parts of the texts of further ones.
_DEFINITE = (ValueError, TypeError, NotImplementedError)
_DEFINITE_SIGNS = (
    *("Invalid user input", "Not supported", "LanceError(Schema)", "LanceError(Arrow)", "LanceError(Unprocessable)"),
    *("LanceError(InvalidInput)", "LanceError(NotSupported)", "LanceError(InvalidRef)", "LanceError(FieldNotFound)"),
)


def is_definite(error: BaseException) -> bool:
    """Return whether a write or commit with this error would fail again. A panic would."""
    text = str(error)
    if is_panic(error):
        return True
    if "LanceError(IO)" in text or error_number(error) is not None or store_failed(error):
        return False
    return isinstance(error, _DEFINITE) or any(sign in text for sign in _DEFINITE_SIGNS)


def first_line(error: BaseException) -> str:
    """Return the first line of Lance's message, without the place in its source code."""
    return str(error).partition(", /")[0].partition("\n")[0]


@contextlib.contextmanager
def writing_values(path: str, field: pa.Field) -> Iterator[None]:
    """Translate the errors of a block that writes values of one column.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE – Lance refuses these values, and would refuse them again.
        LemanError: What `storage_unusable` returns for any other error.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        if refusal_error(error, path) is None and is_definite(error):
            raise not_storable(field, error) from error
        raise storage_unusable(error, path) from error


def not_storable(field: pa.Field, error: BaseException) -> FailedPrecondition:
    """Return the error for values of a column that Lance refuses."""
    wider = " or a dictionary with wider indices" if pa.types.is_dictionary(field.type) else ""
    return FailedPrecondition(
        "TYPE_NOT_STORABLE",
        f"Lance cannot store these values in column '{field.name}' of type {field.type}: {first_line(error)}. Give the "
        f"column another type{wider}, or correct the values",
        column=field.name,
    )


@contextlib.contextmanager
def using_storage(path: str) -> Iterator[None]:
    """Translate the errors of a block that uses the storage of a table or file at `path`.

    Raises:
        DataLoss: TABLE_DAMAGED; see `file_damage`.
        LemanError: What `storage_unusable` returns for any other error.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise file_damage(path, error) or storage_unusable(error, path) from error


@contextlib.contextmanager
def reading_file(path: str, what: str) -> Iterator[None]:
    """Translate the errors of a block that reads one of Leman's own files.

    Args:
        path: The file or its table, which becomes a detail of the error.
        what: The subject of the message, such as "Row states of a.lance".

    Raises:
        NotFound: FILE_MISSING.
        DataLoss: FILE_DAMAGED – the bytes can be read but not decoded.
        LemanError: The bytes cannot be read now; see `storage_failed`.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise _file_error(error, path, what) from error


def _file_error(error: Exception, path: str, what: str) -> LemanError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound("FILE_MISSING", f"{what} cannot be read, the file is missing: {error}", path=path)
    if isinstance(error, OSError) or error_number(error) is not None or store_failed(error):
        return storage_failed(error, f"{what} cannot be read now: {error}", path)
    return DataLoss("FILE_DAMAGED", f"{what} cannot be read, the file is damaged: {error}", path=path)
