"""The functions of a database, as files under `<database>/_leman/udfs/`.

`<name>@<version>.json` is a definition, `<sha256>.bundle` the bytes of a pickled callable. Nothing is
unpickled here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow.fs as pafs

from leman_core.functions import codec
from leman_core.functions.definition_checks import check_definition, check_identity
from leman_core.functions.function_policy import ALL_FUNCTIONS, FunctionPolicy
from leman_core.functions.python_versions import PYTHON, check_python
from leman_core.model.errors import AlreadyExists, DataLoss, FailedPrecondition, NotFound
from leman_core.model.udf import FunctionVersion, RemoteFunction, UdfDefinition
from leman_core.storage import udf_bundles, udf_claims, whole_files
from leman_core.storage.buckets import check_bucket
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.small_files import read_expected
from leman_core.storage.storage_errors import in_use
from leman_core.storage.udf_bundles import Bundles

FOLDER = "_leman/udfs"
_DEFINITION, _BUNDLE = ".json", udf_bundles.ENDING
#: Of a definition that is read from an object store in one request.
_SMALL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Registered:
    """A function, and when it was registered in seconds since the epoch."""

    udf: UdfDefinition
    registered_at: float

    @property
    def order(self) -> tuple[str, int, str]:
        """Return what functions are sorted by: the name, then newest first; unique."""
        return self.udf.name, -int(self.registered_at * 1e6), self.udf.version


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
        with in_use(f"Functions of {self._database}", self._database):
            self._files, root = filesystem_of(self._database)
        self._root = f"{root}/{FOLDER}"
        #: The code of functions in Python.
        self.bundles = Bundles(self._files, self._root, f"Functions of {self._database}", policy.max_bundle_bytes)

    def put(self, udf: UdfDefinition, bundle: bytes = b"") -> bool:
        """Store a function; False: the same one was there already.

        Its options (`batch_size`, timeout, checkpoint bounds, error policy, resources), and where a remote function is
        served, may be set anew: they change how it is run, not what it computes. A bundle takes the place of one that
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
            self._write(path, codec.encode(udf, time.time()))
            return True
        if found is not None and not self._may_replace(found, udf):
            raise _exists(udf)
        self._put_bundle(udf, bundle)
        if found is not None:
            if bundle:
                self.bundles.forgive(udf.bundle_sha256)
            self._renew(path, found, udf)
            return False
        if self._create(path, codec.encode(udf, time.time())):
            return True
        if self.find(udf.name, udf.version) != udf:
            raise _exists(udf)
        return False

    def check_new(self, udf: UdfDefinition) -> None:
        """Refuse a function that nobody could register here, whatever is stored.

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
        """Tell whether workers cannot load the bundle that is stored.

        It is missing, damaged, or of another Python, or they could not unpickle it.
        """
        if not udf.bundle_sha256:
            return False
        if udf.bundle_python != self._python or not self._has_bundle(udf):
            return True
        return self.bundles.has_failed(udf.bundle_sha256)

    def _may_replace(self, found: UdfDefinition, udf: UdfDefinition) -> bool:
        """Tell whether a definition says the same as the stored one, but for what may change under a version."""
        known = _with_options_of(udf, found)
        if known != udf and udf.bundle_sha256 and self.needs_bundle(found):
            known = _with_bundle_of(udf, known)
        return known == udf

    def _renew(self, path: str, found: UdfDefinition, udf: UdfDefinition) -> None:
        """Write what may be set anew; a source alone does not make the function the one registered last."""
        if found != udf:
            self._write(path, codec.encode(replace(udf, source=found.source or udf.source), time.time()))
        elif udf.source and not found.source:
            self._write(path, codec.encode(udf, self._read(path).registered_at))

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
            whole_files.put(self._files, path, data)

    def _create(self, path: str, data: bytes) -> bool:
        """Write a definition that is not there yet; False: someone else was faster, and theirs is there now."""
        self._sweep()
        if isinstance(self._files, pafs.LocalFileSystem):
            with self._in_use():
                return whole_files.create(path, data)
        first = udf_claims.claim(self._database, path.rpartition("/")[2], data)
        if first == data or self._size(path) is None:
            self._write(path, first)
        return first == data

    def _in_use(self) -> contextlib.AbstractContextManager[None]:
        return in_use(f"Functions of {self._database}", f"{self._database}/{FOLDER}")

    def _sweep(self) -> None:
        """Delete what killed writers left. Garbage collection does not come here, and registering is rare."""
        if isinstance(self._files, pafs.LocalFileSystem):
            whole_files.sweep(self._root)


def _decoded(path: str, content: bytes) -> Registered:
    """Return what a definition's file holds; it is that of the function which the file is named after."""
    found = Registered(*codec.decode(content, path))
    if not path.endswith(f"/{found.udf.name}@{found.udf.version}{_DEFINITION}"):
        raise codec.damaged(path, f"it is that of {found.udf.name}@{found.udf.version}")
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
