"""The functions of a database, as documents under `<database>/_leman/udfs/`. Nothing is unpickled here.

<name>@<version>.json   a definition, created once
<sha256>.bundle         a pickled callable of any size; only one that came in one message is held in memory
<sha256>.failed         why workers could not unpickle a bundle, such as a module that they lack
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
from leman_core.storage.documents import DocumentFolder
from leman_core.storage.filesystems import check_bucket
from leman_core.storage.locations import OWN_FOLDER

ENDING = ".bundle"
_FAILED = ".failed"
_CLAIMS = "udf_claims"
_PIECE_BYTES = 1 << 20


def note_failure(uri: str, why: str) -> None:
    """Record that the bundle at `uri` cannot be unpickled, so that another bundle of the function may replace it.

    Raises:
        LemanError: What `storage_errors.storage_failed` gives.
    """
    folder, _, name = uri.rpartition("/")
    DocumentFolder(folder, f"The bundle {uri}").put(name.removesuffix(ENDING) + _FAILED, why.encode())


class Bundles:
    """The bundles in one folder. If the storage cannot be used, calls raise what `DocumentFolder` raises.

    Args:
        folder: The folder of the functions.
        most_bytes: The size of the largest bundle that is accepted; 0 for no limit.
    """

    def __init__(self, folder: DocumentFolder, most_bytes: int = 0) -> None:
        self._folder = folder
        self._most_bytes = most_bytes

    def has(self, sha256: str, size: int) -> bool:
        """Return whether a bundle is stored and every byte matches its digest."""
        name = sha256 + ENDING
        return self._folder.size(name) == size and self._digest(name) == (sha256, size)

    def has_failed(self, sha256: str) -> bool:
        """Return whether workers could not unpickle a bundle."""
        return self._folder.size(sha256 + _FAILED) is not None

    def check(self, name: str) -> tuple[bool, int] | None:
        """Return whether a file matches the digest in its name, and the file's size; None if it does not exist."""
        found = self._digest(name)
        return None if found is None else (found[0] == name.removesuffix(ENDING), found[1])

    def check_size(self, size: int, field: str = "bundle") -> None:
        """Refuse a bundle that is too large.

        Args:
            size: Its size.
            field: The request's field that has the bundle or states its size.

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
        """Store a bundle, replacing a damaged one.

        Raises:
            InvalidArgument: BUNDLE_TOO_LARGE.
            FailedPrecondition: UDF_DIGEST_MISMATCH.
        """
        self.check_size(len(content))
        _check(sha256, size, hashlib.sha256(content).hexdigest(), len(content))
        if not self.has(sha256, size):
            self._folder.delete_unfinished()
            self._folder.put(sha256 + ENDING, content)

    def forgive(self, sha256: str) -> None:
        """Delete the record that workers could not unpickle a bundle.

        Call it when the bundle is sent again: workers may have the missing module by then.
        """
        if self.has_failed(sha256):
            self._folder.delete(sha256 + _FAILED)

    def begin(self, sha256: str, size: int) -> IncomingBundle:
        """Begin to receive a bundle in pieces.

        Raises:
            InvalidArgument: BUNDLE_TOO_LARGE.
        """
        self.check_size(size, field="header.size_bytes")
        self._folder.delete_unfinished()
        return IncomingBundle(self._folder, sha256, size)

    def _digest(self, name: str) -> tuple[str, int] | None:
        """Return the SHA-256 and the size of a file; None if the file does not exist."""
        found, size = hashlib.sha256(), 0
        files, folder = self._folder.place()
        with self._folder.in_use(name):
            try:
                with files.open_input_stream(f"{folder}/{name}") as stream:
                    while piece := stream.read(_PIECE_BYTES):
                        found.update(piece)
                        size += len(piece)
            except FileNotFoundError:
                return None
        return found.hexdigest(), size


class IncomingBundle:
    """A bundle that is being received. Any thread may call it, one call at a time.

    All calls but `discard` raise what `DocumentFolder` raises.
    """

    def __init__(self, folder: DocumentFolder, sha256: str, size: int) -> None:
        self._folder = folder
        self._sha256 = sha256
        self._size = size
        self._digest = hashlib.sha256()
        files, path = folder.place()
        with folder.in_use():
            self._file = whole_files.UnfinishedFile(files, f"{path}/{sha256}{ENDING}")
        self._came = 0

    def write(self, piece: bytes) -> None:
        """Add the next bytes.

        Raises:
            FailedPrecondition: UDF_DIGEST_MISMATCH: more bytes came than were announced.
        """
        self._came += len(piece)
        if self._came > self._size:
            raise _mismatch(self._sha256, self._size, "", self._came)
        self._digest.update(piece)
        with self._folder.in_use():
            self._file.write(piece)

    def finish(self) -> None:
        """Store the bundle under its digest.

        Raises:
            FailedPrecondition: UDF_DIGEST_MISMATCH.
        """
        _check(self._sha256, self._size, self._digest.hexdigest(), self._came)
        with self._folder.in_use():
            self._file.finish()

    def discard(self) -> None:
        """Delete what was received."""
        self._file.discard()


def _check(sha256: str, size: int, found: str, found_size: int) -> None:
    if (found, found_size) != (sha256, size):
        raise _mismatch(sha256, size, found, found_size)


def _mismatch(sha256: str, size: int, found: str, found_size: int) -> FailedPrecondition:
    came = f"{found_size:,} bytes with sha256 {found}" if found else f"{found_size:,} bytes or more"
    return FailedPrecondition(
        "UDF_DIGEST_MISMATCH", f"The bundle has {came}; {size:,} bytes with sha256 {sha256} were announced"
    )


_DEFINITION, _BUNDLE = stored_functions.ENDING, ENDING
#: Definitions up to this size are read from an object store in one request.
_SMALL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class StoredFunction:
    """The result of checking a file of the registry: a definition or, if `udf` is None, a bundle."""

    udf: UdfDefinition | None
    #: For a bundle, whether its bytes match its name; for a definition, whether its bundle exists with the right size.
    intact: bool
    size_bytes: int


class UdfRegistry:
    """The functions of one database. Name and version identify a definition for ever.

    If the storage cannot be used, calls raise what `DocumentFolder` raises.

    Args:
        database: The database.
        workers_python: `major.minor` of the Python that loads bundles; empty: that of this process.
        policy: Which functions may be registered and used.
    """

    def __init__(self, database: str, workers_python: str = "", policy: FunctionPolicy = ALL_FUNCTIONS) -> None:
        self.policy = policy
        self._python = workers_python or PYTHON
        self._database = database.rstrip("/")
        claims = f"{self._database}/{OWN_FOLDER}/{_CLAIMS}"
        self._folder = DocumentFolder(f"{self._database}/{FOLDER}", f"Functions of {self._database}", claims)
        #: The code of functions in Python.
        self.bundles = Bundles(self._folder, policy.max_bundle_bytes)

    def put(self, udf: UdfDefinition, bundle: bytes = b"") -> bool:
        """Store a function. Return False if it was stored already.

        Options (`batch_size`, timeout, checkpoint bounds, error policy, resources) and addresses of a remote function
        may change under a version, because they change how a function runs, not what it computes. A bundle may replace
        one that workers cannot load, and a definition may replace a damaged one. The source text that was stored first
        under a version stays. `bundle` may be empty if a bundle with its digest is stored.

        Raises:
            InvalidArgument: BAD_UDF, BUNDLE_TOO_LARGE.
            FailedPrecondition: UDF_PYTHON_MISMATCH, UDF_DIGEST_MISMATCH, UDF_BUNDLE_MISSING.
            AlreadyExists: UDF_EXISTS.
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        self.check_new(udf)
        name = _file_name(udf.name, udf.version)
        try:
            found = self.find(udf.name, udf.version)
        except DataLoss:
            self._put_bundle(udf, bundle)
            self._write(name, udf)
            return True
        if found is not None and not self._may_replace(found, udf):
            raise _exists(udf)
        self._put_bundle(udf, bundle)
        if found is not None:
            if bundle:
                self.bundles.forgive(udf.bundle_sha256)
            self._renew(name, found, udf)
            return False
        self._folder.delete_unfinished()
        content = stored_functions.encode_definition(udf, time.time())
        if self._folder.create(name, content) == content:
            return True
        if self.find(udf.name, udf.version) != udf:
            raise _exists(udf)
        return False

    def check_new(self, udf: UdfDefinition) -> None:
        """Refuse a function that can never be registered here.

        Raises:
            InvalidArgument: BAD_UDF.
            FailedPrecondition: UDF_PYTHON_MISMATCH.
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        check_definition(udf)
        self.policy.check(udf)
        check_python(udf, self._python)

    def get(self, name: str, version: str = "") -> UdfDefinition:
        """Return a function. Without a version, return the one that was registered last.

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
        """Return what `get` does. Refuse a function that the policy does not allow to run.

        Raises:
            NotFound: UDF_NOT_FOUND.
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        found = self.get(name, version)
        self.policy.check(found)
        return found

    def find(self, name: str, version: str) -> UdfDefinition | None:
        """Return a function; None if none has this name and version.

        Raises:
            DataLoss: UDF_DAMAGED.
        """
        found = self._read(_file_name(name, version))
        return None if found is None else found.udf

    def find_expected(self, name: str, version: str) -> UdfDefinition | None:
        """Return what `find` does, in one request to an object store if the function exists.

        Raises:
            DataLoss: UDF_DAMAGED.
        """
        found = self._read(_file_name(name, version), _SMALL_BYTES)
        return None if found is None else found.udf

    def list(self) -> list[Registered]:
        """Return all functions, sorted by name. Functions of one name are sorted newest first.

        Raises:
            DataLoss: UDF_DAMAGED, for the first damaged one.
        """
        found = sorted(self._entries(), key=lambda entry: entry.order)
        if not found:
            check_bucket(self._database)
        return found

    def names(self) -> tuple[str, ...]:
        """Return the names of all files of definitions and bundles, sorted."""
        return tuple(entry.name for entry in self._folder.entries() if entry.name.endswith((_DEFINITION, _BUNDLE)))

    def versions(self) -> Iterator[FunctionVersion]:
        """Yield the identities of all functions by name, without reading their definitions."""
        for name in self.names():
            if name.endswith(_DEFINITION):
                yield FunctionVersion(*name.removesuffix(_DEFINITION).rsplit("@", 1))

    def check(self, name: str) -> StoredFunction:
        """Return the content of a file that `names` returned.

        Raises:
            DataLoss: UDF_DAMAGED.
            NotFound: FILE_MISSING.
        """
        path = self._path(name)
        if name.endswith(_BUNDLE):
            bundle = self.bundles.check(name)
            if bundle is not None:
                return StoredFunction(None, *bundle)
        elif (content := self._folder.read(name)) is not None:
            udf = _decoded(path, content).udf
            there = not udf.bundle_sha256 or self._folder.size(udf.bundle_sha256 + _BUNDLE) == udf.bundle_size
            return StoredFunction(udf, there, len(content))
        raise NotFound("FILE_MISSING", f"{path} is gone", path=path)

    def bundle_uri(self, udf: UdfDefinition) -> str:
        """Return where workers read the function's bundle; empty for an entrypoint."""
        return f"{self._database}/{FOLDER}/{udf.bundle_sha256}{_BUNDLE}" if udf.bundle_sha256 else ""

    def needs_bundle(self, udf: UdfDefinition) -> bool:
        """Return whether the caller has to send the function's bundle, because workers cannot load the stored one.

        This is so if the stored bundle is missing, damaged or of another Python, or if workers failed to unpickle it.
        """
        if not udf.bundle_sha256:
            return False
        if udf.bundle_python != self._python or not self._has_bundle(udf):
            return True
        return self.bundles.has_failed(udf.bundle_sha256)

    def _may_replace(self, found: UdfDefinition, udf: UdfDefinition) -> bool:
        """Return whether two definitions differ only in what may change under a version (see `put`)."""
        known = _with_options_of(udf, found)
        if known != udf and udf.bundle_sha256 and self.needs_bundle(found):
            known = _with_bundle_of(udf, known)
        return known == udf

    def _renew(self, name: str, found: UdfDefinition, udf: UdfDefinition) -> None:
        """Write the definition if it changed. A change of only the source text keeps the time of registration."""
        if found != udf:
            self._write(name, replace(udf, source=found.source or udf.source))
        elif udf.source and not found.source and (known := self._read(name)) is not None:
            self._write(name, udf, known.registered_at)

    def _has_bundle(self, udf: UdfDefinition) -> bool:
        return self.bundles.has(udf.bundle_sha256, udf.bundle_size)

    def _put_bundle(self, udf: UdfDefinition, bundle: bytes) -> None:
        if not udf.bundle_sha256:
            return
        if not bundle:
            if not self._has_bundle(udf):
                raise FailedPrecondition(
                    "UDF_BUNDLE_MISSING",
                    f"The bundle of function {udf.name}@{udf.version} is missing or damaged: send it, too",
                )
            return
        self.bundles.put(udf.bundle_sha256, udf.bundle_size, bundle)

    def _entries(self, prefix: str = "") -> Iterator[Registered]:
        for entry in self._folder.entries(_DEFINITION):
            if entry.name.startswith(prefix) and (found := self._read(entry.name)) is not None:
                yield found

    def _read(self, name: str, likely_bytes: int = 0) -> Registered | None:
        content = self._folder.read(name, likely_bytes)
        return None if content is None else _decoded(self._path(name), content)

    def _write(self, name: str, udf: UdfDefinition, registered_at: float | None = None) -> None:
        self._folder.delete_unfinished()  # garbage collection does not visit this folder, and registering is rare
        at = time.time() if registered_at is None else registered_at
        self._folder.put(name, stored_functions.encode_definition(udf, at))

    def _path(self, name: str) -> str:
        return f"{self._folder.place()[1]}/{name}"


def _file_name(name: str, version: str) -> str:
    return f"{name}@{version}{_DEFINITION}"


def _decoded(path: str, content: bytes) -> Registered:
    """Decode the definition in a file, and check that its name and version are those in the file's name."""
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
    """Return the stored remote function with the addresses of `given`. Its name on the servers stays the stored one."""
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
