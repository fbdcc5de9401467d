"""The functions of a database: definitions, bundles, and which definition has a name.

The bundles of a database's functions: `<sha256>.bundle` beside the definitions. Nothing is unpickled here.

`<sha256>.failed` says that workers could not unpickle one: it names a module that they lack, for example.

A bundle may be as large as the settings allow, so none is held in memory but one that came in one message.

Which definition a function's name and version stand for in an object store.

Anyone who writes a definition there first makes a table of that name, of which Lance lets one maker succeed (see
`conditional_puts`), and which has the definition in it: of two that come at the same moment one is told that it is
late, and where the first one dies before it has written its definition, the next one writes it.

The functions of a database, as files under `<database>/_leman/udfs/`.

`<name>@<version>.json` is a definition, `<sha256>.bundle` the bytes of a pickled callable. Nothing is
unpickled here.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.fs as pafs

from leman._format import stored_functions
from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import FOLDER, Registered, RemoteFunction, UdfDefinition
from leman_core.functions import function_definitions
from leman_core.functions.function_definitions import (
    ALL_FUNCTIONS,
    PYTHON,
    FunctionPolicy,
    check_definition,
    check_identity,
    check_python,
)
from leman_core.model.service_errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument, NotFound
from leman_core.storage import whole_files
from leman_core.storage.error_translation import LANCE_ERRORS, table_error
from leman_core.storage.filesystems import check_bucket, filesystem_of
from leman_core.storage.locations import OWN_FOLDER
from leman_core.storage.opening import open_latest
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import translating_os_errors
from leman_core.storage.table_creation import check_conditional_puts, create_empty
from leman_core.storage.whole_files import read_expected

ENDING = ".bundle"
_FAILED = ".failed"
_PIECE_BYTES = 1 << 20


def note_failure(uri: str, why: str) -> None:
    """Note that the bundle at `uri` cannot be unpickled, so that another of the same function may take its place.

    Raises:
        OSError: that cannot be noted.
    """
    files, path = filesystem_of(uri)
    whole_files.put_whole_file(files, path.removesuffix(ENDING) + _FAILED, why.encode())


class Bundles:
    """The bundles in one folder.

    Where the storage cannot be used, all calls raise what `storage_errors.failed` gives.

    Args:
        what: the functions, as the beginning of a sentence.
        most_bytes: of a bundle that is taken; 0: any number.
    """

    def __init__(self, files: pafs.FileSystem, folder: str, what: str, most_bytes: int = 0) -> None:
        self._files = files
        self._folder = folder
        self._what = what
        self._most_bytes = most_bytes

    def path(self, sha256: str) -> str:
        """Return where the bundle with that digest is, or would be."""
        return f"{self._folder}/{sha256}{ENDING}"

    def has(self, sha256: str, size: int) -> bool:
        """Return whether a bundle is stored, with every byte as it was."""
        path = self.path(sha256)
        with self._in_use():
            info = self._files.get_file_info(path)
            return info.type == pafs.FileType.File and info.size == size and self._digest(path)[0] == sha256

    def has_failed(self, sha256: str) -> bool:
        """Return whether workers could not unpickle a bundle."""
        with self._in_use():
            return bool(self._files.get_file_info(self._note(sha256)).type == pafs.FileType.File)

    def check(self, name: str) -> tuple[bool, int]:
        """Return whether a file is whole, by the digest that it is named after, and its size.

        Raises:
            FileNotFoundError: it is gone.
        """
        with self._in_use():
            digest, size = self._digest(f"{self._folder}/{name}")
        return digest == name.removesuffix(ENDING), size

    def check_size(self, size: int, field: str = "bundle") -> None:
        """Refuse a bundle of so many bytes.

        Args:
            size: of the bundle.
            field: of the request, in which the bundle lies or its size is told.

        Raises:
            InvalidArgument: BUNDLE_TOO_LARGE.
        """
        if self._most_bytes and size > self._most_bytes:
            raise InvalidArgument(
                "BUNDLE_TOO_LARGE",
                f"The bundle has {size:,} bytes, at most {self._most_bytes:,} are taken (LEMAN_UDF__MAX_BUNDLE_MB): "
                "load large data when the function is built, instead of pickling it",
                field=field,
            )

    def put(self, sha256: str, size: int, content: bytes) -> None:
        """Store a bundle, in place of a damaged one.

        Raises:
            InvalidArgument: BUNDLE_TOO_LARGE.
            FailedPrecondition: UDF_DIGEST_MISMATCH.
        """
        self.check_size(len(content))
        _check(sha256, size, hashlib.sha256(content).hexdigest(), len(content))
        if not self.has(sha256, size):
            self._sweep()
            with self._in_use():
                whole_files.put_whole_file(self._files, self.path(sha256), content)

    def forgive(self, sha256: str) -> None:
        """Forget that workers could not unpickle a bundle, as it is sent again: they may have what they lacked."""
        if self.has_failed(sha256):
            with self._in_use(), contextlib.suppress(FileNotFoundError):
                self._files.delete_file(self._note(sha256))

    def begin(self, sha256: str, size: int) -> IncomingBundle:
        """Begin to store a bundle whose bytes are still to come.

        Raises:
            InvalidArgument: BUNDLE_TOO_LARGE.
        """
        self.check_size(size, field="header.size_bytes")
        self._sweep()
        with self._in_use():
            return IncomingBundle(whole_files.UnfinishedFile(self._files, self.path(sha256)), sha256, size, self._what)

    def _note(self, sha256: str) -> str:
        return f"{self._folder}/{sha256}{_FAILED}"

    def _digest(self, path: str) -> tuple[str, int]:
        found, size = hashlib.sha256(), 0
        with self._files.open_input_stream(path) as stream:
            while piece := stream.read(_PIECE_BYTES):
                found.update(piece)
                size += len(piece)
        return found.hexdigest(), size

    def _in_use(self) -> contextlib.AbstractContextManager[None]:
        return translating_os_errors(self._what, self._folder)

    def _sweep(self) -> None:
        if isinstance(self._files, pafs.LocalFileSystem):
            whole_files.sweep_unfinished(self._folder)


class IncomingBundle:
    """A bundle on its way into the store. Its calls are made one after the other, by whatever threads.

    All but `discard` raise what `storage_errors.failed` gives.
    """

    def __init__(self, file: whole_files.UnfinishedFile, sha256: str, size: int, what: str) -> None:
        self._file = file
        self._sha256 = sha256
        self._size = size
        self._what = what
        self._digest = hashlib.sha256()
        self._came = 0

    def write(self, piece: bytes) -> None:
        """Add the next bytes.

        Raises:
            FailedPrecondition: UDF_DIGEST_MISMATCH – they are more than were announced.
        """
        self._came += len(piece)
        if self._came > self._size:
            raise _mismatch(self._sha256, self._size, "", self._came)
        self._digest.update(piece)
        with translating_os_errors(self._what, self._sha256):
            self._file.write(piece)

    def finish(self) -> None:
        """Store the bundle under its digest.

        Raises:
            FailedPrecondition: UDF_DIGEST_MISMATCH.
        """
        _check(self._sha256, self._size, self._digest.hexdigest(), self._came)
        with translating_os_errors(self._what, self._sha256):
            self._file.finish()

    def discard(self) -> None:
        """Leave nothing of what came."""
        self._file.discard()


def _check(sha256: str, size: int, found: str, found_size: int) -> None:
    if (found, found_size) != (sha256, size):
        raise _mismatch(sha256, size, found, found_size)


def _mismatch(sha256: str, size: int, found: str, found_size: int) -> FailedPrecondition:
    came = f"{found_size:,} bytes with sha256 {found}" if found else f"{found_size:,} bytes or more"
    return FailedPrecondition(
        "UDF_DIGEST_MISMATCH", f"The bundle has {came}; {size:,} bytes with sha256 {sha256} were announced"
    )


_CLAIMED_DEFINITION = b"definition"


def claim_version(database: str, name: str, definition: bytes) -> bytes:
    """Return what a name stands for from now on: the given definition, or that of anyone who was faster.

    Args:
        database: in an object store.
        name: of the definition's file.
        definition: its content.

    Raises:
        LemanError: what `table_errors.table_error` and `check_store` give.
    """
    uri = f"{database}/{OWN_FOLDER}/udf_claims/{name}.lance"
    check_conditional_puts(database)
    try:
        with panics_as_errors():
            try:
                create_empty(uri, pa.schema([pa.field("x", pa.int8())], metadata={_CLAIMED_DEFINITION: definition}))
            except FileExistsError:
                metadata: dict[bytes, bytes] = open_latest(uri).schema.metadata
                return metadata[_CLAIMED_DEFINITION]
    except LANCE_ERRORS as error:
        raise table_error(uri, error) from error
    return definition


_DEFINITION, _BUNDLE = stored_functions.ENDING, ENDING
#: Of a definition that is read from an object store in one request.
_SMALL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class StoredFunction:
    """A file of the registry: a definition, or a bundle (`udf` is None)."""

    udf: UdfDefinition | None
    #: Whether a bundle's bytes are those that it is named after, or a definition's bundle is there, with its size.
    intact: bool
    size_bytes: int


class UdfRegistry:
    """The functions of one database.

    Definitions never change: name and version identify one for ever.

    Where the storage cannot be used, all calls raise what `storage_errors.failed` gives.

    Args:
        workers_python: `major.minor` of the Python that loads bundles; empty: that of this process.
        policy: says which functions may be registered and used.
    """

    def __init__(self, database: str, workers_python: str = "", policy: FunctionPolicy = ALL_FUNCTIONS) -> None:
        self.policy = policy
        self._python = workers_python or PYTHON
        self._database = database.rstrip("/")
        with translating_os_errors(f"Functions of {self._database}", self._database):
            self._files, root = filesystem_of(self._database)
        self._root = f"{root}/{FOLDER}"
        #: The code of functions in Python.
        self.bundles = Bundles(self._files, self._root, f"Functions of {self._database}", policy.max_bundle_bytes)

    def put(self, udf: UdfDefinition, bundle: bytes = b"") -> bool:
        """Store a function; False: the same one was there already.

        Its options (`batch_size`, timeout, checkpoint bounds, error policy, resources), and where a remote function is
        served, may be set again: they change how it is run, not what it computes. A bundle takes the place of one that
        workers cannot load, and a definition that of a damaged one. The first source that comes under a version stays.

        `bundle` may be empty where its digest is stored.

        Raises:
            InvalidArgument: BAD_UDF, BUNDLE_TOO_LARGE.
            FailedPrecondition: UDF_PYTHON_MISMATCH, UDF_DIGEST_MISMATCH, UDF_BUNDLE_MISSING.
            AlreadyExists: UDF_EXISTS.
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        self.check_new(udf)
        path = self._path(udf.name, udf.version)
        try:
            found = self.find(udf.name, udf.version)
        except DataLoss:
            self._put_bundle(udf, bundle)
            self._write(path, stored_functions.encode_definition(udf, time.time()))
            return True
        if found is not None and not self._may_replace(found, udf):
            raise _exists(udf)
        self._put_bundle(udf, bundle)
        if found is not None:
            if bundle:
                self.bundles.forgive(udf.bundle_sha256)
            self._renew(path, found, udf)
            return False
        if self._create(path, stored_functions.encode_definition(udf, time.time())):
            return True
        if self.find(udf.name, udf.version) != udf:
            raise _exists(udf)
        return False

    def check_new(self, udf: UdfDefinition) -> None:
        """Refuse a function that no one could register here, whatever is stored.

        Raises:
            InvalidArgument: BAD_UDF.
            FailedPrecondition: UDF_PYTHON_MISMATCH.
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        check_definition(udf)
        self.policy.check(udf)
        check_python(udf, self._python)

    def get(self, name: str, version: str = "") -> UdfDefinition:
        """Return a function; without a version the one registered last.

        Raises:
            NotFound: UDF_NOT_FOUND.
        """
        check_identity(name, version or "0")
        if version:
            found = self.find_expected(name, version)
            if found is not None:
                return found
        else:
            newest = min(self._entries(f"{name}@"), key=lambda e: e.order, default=None)
            if newest is not None:
                return newest.udf
        wanted = f"{name}@{version}" if version else name
        raise NotFound("UDF_NOT_FOUND", f"No function {wanted} is registered: register it first", udf=wanted)

    def usable(self, name: str, version: str = "") -> UdfDefinition:
        """Return a function that is to compute something; as `get`.

        Raises:
            NotFound: UDF_NOT_FOUND.
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        found = self.get(name, version)
        self.policy.check(found)
        return found

    def find(self, name: str, version: str) -> UdfDefinition | None:
        """Return a function of this version; None where there is none.

        Raises:
            DataLoss: UDF_DAMAGED.
        """
        try:
            return self._read(self._path(name, version)).udf
        except FileNotFoundError:
            return None

    def find_expected(self, name: str, version: str) -> UdfDefinition | None:
        """As `find`, for a function that most likely is there: then it takes one request to an object store.

        Raises:
            DataLoss: UDF_DAMAGED.
        """
        path = self._path(name, version)
        try:
            with self._in_use():
                content = read_expected(f"{self._database}/{FOLDER}", path.rpartition("/")[2], _SMALL_BYTES)
        except FileNotFoundError:
            return None
        return _decoded(path, content).udf

    def list(self) -> list[Registered]:
        """Return all functions, by name, then newest first.

        Raises:
            DataLoss: UDF_DAMAGED, for the first damaged one.
        """
        found = sorted(self._entries(), key=lambda entry: entry.order)
        if not found:
            check_bucket(self._database)
        return found

    def names(self) -> tuple[str, ...]:
        """Return the names of all files of definitions and bundles, sorted."""
        with self._in_use():
            infos = self._files.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
        return tuple(sorted(i.base_name for i in infos if i.base_name.endswith((_DEFINITION, _BUNDLE))))

    def versions(self) -> Iterator[FunctionVersion]:
        """Yield all functions by their names, without a look at their definitions."""
        for name in self.names():
            if name.endswith(_DEFINITION):
                yield FunctionVersion(*name.removesuffix(_DEFINITION).rsplit("@", 1))

    def check(self, name: str) -> StoredFunction:
        """Return what is in a file of `names`.

        Raises:
            DataLoss: UDF_DAMAGED.
            NotFound: FILE_MISSING.
        """
        path = f"{self._root}/{name}"
        try:
            if name.endswith(_BUNDLE):
                return StoredFunction(None, *self.bundles.check(name))
            content = self._load(path)
        except FileNotFoundError:
            raise NotFound("FILE_MISSING", f"{path} is gone", path=path) from None
        udf = _decoded(path, content).udf
        there = not udf.bundle_sha256 or self._size(self.bundles.path(udf.bundle_sha256)) == udf.bundle_size
        return StoredFunction(udf, there, len(content))

    def bundle_uri(self, udf: UdfDefinition) -> str:
        """Return where workers read the function's bundle; empty for an entrypoint."""
        return f"{self._database}/{FOLDER}/{udf.bundle_sha256}{_BUNDLE}" if udf.bundle_sha256 else ""

    def needs_bundle(self, udf: UdfDefinition) -> bool:
        """Return whether workers cannot load the bundle that is stored.

        It is missing, damaged, or of another Python, or they could not unpickle it.
        """
        if not udf.bundle_sha256:
            return False
        if udf.bundle_python != self._python or not self._has_bundle(udf):
            return True
        return self.bundles.has_failed(udf.bundle_sha256)

    def _may_replace(self, found: UdfDefinition, udf: UdfDefinition) -> bool:
        """Return whether a definition says the same as the stored one, but for what may change under a version."""
        known = _with_options_of(udf, found)
        if known != udf and udf.bundle_sha256 and self.needs_bundle(found):
            known = _with_bundle_of(udf, known)
        return known == udf

    def _renew(self, path: str, found: UdfDefinition, udf: UdfDefinition) -> None:
        """Write what may be set again; a source alone does not make the function the one registered last."""
        if found != udf:
            self._write(
                path,
                stored_functions.encode_definition(replace(udf, source=found.source or udf.source), time.time()),
            )
        elif udf.source and not found.source:
            self._write(path, stored_functions.encode_definition(udf, self._read(path).registered_at))

    def _has_bundle(self, udf: UdfDefinition) -> bool:
        return self.bundles.has(udf.bundle_sha256, udf.bundle_size)

    def _put_bundle(self, udf: UdfDefinition, bundle: bytes) -> None:
        if not udf.bundle_sha256:
            return
        if not bundle:
            if not self._has_bundle(udf):
                raise FailedPrecondition(
                    "UDF_BUNDLE_MISSING",
                    f"The bundle of function {udf.name}@{udf.version} is not stored, or is damaged: send it along",
                )
            return
        self.bundles.put(udf.bundle_sha256, udf.bundle_size, bundle)

    def _entries(self, prefix: str = "") -> Iterator[Registered]:
        with self._in_use():
            infos = self._files.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
        for info in infos:
            name = info.base_name
            if name.endswith(_DEFINITION) and name.startswith(prefix) and not name.startswith("."):
                yield self._read(info.path)

    def _read(self, path: str) -> Registered:
        return _decoded(path, self._load(path))

    def _path(self, name: str, version: str) -> str:
        return f"{self._root}/{name}@{version}{_DEFINITION}"

    def _size(self, path: str) -> int | None:
        with self._in_use():
            info = self._files.get_file_info(path)
        return info.size if info.type == pafs.FileType.File else None

    def _load(self, path: str) -> bytes:
        with self._in_use(), self._files.open_input_stream(path) as stream:
            return bytes(stream.read())

    def _write(self, path: str, data: bytes) -> None:
        self._sweep()
        with self._in_use():
            whole_files.put_whole_file(self._files, path, data)

    def _create(self, path: str, data: bytes) -> bool:
        """Write a definition that is not there yet; False: someone else was faster, and theirs is there now."""
        self._sweep()
        if isinstance(self._files, pafs.LocalFileSystem):
            with self._in_use():
                return whole_files.create_whole_file(path, data)
        first = claim_version(self._database, path.rpartition("/")[2], data)
        if first == data or self._size(path) is None:
            self._write(path, first)
        return first == data

    def _in_use(self) -> contextlib.AbstractContextManager[None]:
        return translating_os_errors(f"Functions of {self._database}", f"{self._database}/{FOLDER}")

    def _sweep(self) -> None:
        """Delete what killed writers left. Garbage collection does not come here, and registering is rare."""
        if isinstance(self._files, pafs.LocalFileSystem):
            whole_files.sweep_unfinished(self._root)


def _decoded(path: str, content: bytes) -> Registered:
    """Return what a definition's file holds; it is that of the function which the file is named after."""
    found = function_definitions.decode_definition(content, path)
    if not path.endswith(f"/{found.file_name}"):
        raise function_definitions.damaged_definition(path, f"it is that of {found.udf.name}@{found.udf.version}")
    return found


def _with_options_of(udf: UdfDefinition, found: UdfDefinition) -> UdfDefinition:
    return replace(
        found,
        batch_size=udf.batch_size,
        timeout_seconds=udf.timeout_seconds,
        checkpoint=udf.checkpoint,
        error_policy=udf.error_policy,
        resources=udf.resources,
        remote=_elsewhere(udf.remote, found.remote),
    )


def _elsewhere(given: RemoteFunction | None, found: RemoteFunction | None) -> RemoteFunction | None:
    """Return the stored function at the addresses that are given now; what its servers call it stays."""
    if given is None or found is None:
        return None
    return replace(found, addresses=given.addresses)


def _with_bundle_of(udf: UdfDefinition, found: UdfDefinition) -> UdfDefinition:
    return replace(found, bundle_sha256=udf.bundle_sha256, bundle_python=udf.bundle_python, bundle_size=udf.bundle_size)


def _exists(udf: UdfDefinition) -> AlreadyExists:
    return AlreadyExists(
        "UDF_EXISTS",
        f"Function {udf.name}@{udf.version} exists with another definition: give the new one another version",
        name=udf.name,
        version=udf.version,
    )
