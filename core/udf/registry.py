"""The functions of a database, as files under `<database>/_leman/udfs/`.

`<name>@<version>.json` is a definition, `<sha256>.bundle` the bytes of a pickled callable. Nothing is
unpickled here.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from core.domain.udf import ErrorAction, Resources, UdfDefinition, UdfKind
from core.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from core.lance_io import expressions
from core.udf import codec

FOLDER = "_leman/udfs"
MAX_NAME = 128

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DEFINITION, _BUNDLE = ".json", ".bundle"
#: Spark lets tasks share a GPU in equal parts.
_SHARED_GPU = 0.5
#: With these a checkpoint key could be read in two ways.
_SEPARATORS = ("_ver-", "_col-")


@dataclass(frozen=True, slots=True)
class Registered:
    """A function, and when it was registered in seconds since the epoch."""

    udf: UdfDefinition
    registered_at: float

    @property
    def order(self) -> tuple[str, int, str]:
        """By name, then newest first; unique."""
        return self.udf.name, -int(self.registered_at * 1e6), self.udf.version


class UdfRegistry:
    """Definitions never change: name and version identify one for ever."""

    def __init__(self, database: str) -> None:
        self._database = database.rstrip("/")
        if "://" in self._database:
            self._files, root = pafs.FileSystem.from_uri(self._database)
        else:
            self._files, root = pafs.LocalFileSystem(), self._database
        self._root = f"{root}/{FOLDER}"

    def put(self, udf: UdfDefinition, bundle: bytes = b"") -> bool:
        """Stores a function; False: the same one was there already. Its options (`batch_size`, timeout, checkpoint
        bounds, error policy, resources) may be set anew: they change how it is run, not what it computes.

        `bundle` may be empty where its digest is stored. Raises InvalidArgument (BAD_UDF), FailedPrecondition
        (UDF_DIGEST_MISMATCH, UDF_BUNDLE_MISSING), AlreadyExists (UDF_EXISTS).
        """
        check_definition(udf)
        found = self.find(udf.name, udf.version)
        if found is not None and _with_options_of(udf, found) != udf:
            raise _exists(udf)
        self._put_bundle(udf, bundle)
        path = self._path(udf.name, udf.version)
        if found is not None:
            if found != udf:
                self._write(path, codec.encode(udf, time.time()))
            return False
        if self._create(path, codec.encode(udf, time.time())):
            return True
        if self.find(udf.name, udf.version) != udf:
            raise _exists(udf)
        return False

    def get(self, name: str, version: str = "") -> UdfDefinition:
        """Without a version: the one registered last. Raises NotFound (UDF_NOT_FOUND)."""
        check_identity(name, version or "0")
        if version:
            found = self.find(name, version)
            if found is not None:
                return found
        else:
            newest = min((e for e in self._entries() if e.udf.name == name), key=lambda e: e.order, default=None)
            if newest is not None:
                return newest.udf
        wanted = f"{name}@{version}" if version else name
        raise NotFound("UDF_NOT_FOUND", f"No function {wanted} is registered: register it first", udf=wanted)

    def find(self, name: str, version: str) -> UdfDefinition | None:
        """As `get` with a version; None where there is none."""
        path = self._path(name, version)
        return codec.decode(self._load(path), path)[0] if self._size(path) is not None else None

    def list(self) -> list[Registered]:
        """All functions, by name, then newest first."""
        return sorted(self._entries(), key=lambda entry: entry.order)

    def bundle_uri(self, udf: UdfDefinition) -> str:
        """Where workers read the function's bundle; empty for an entrypoint."""
        return f"{self._database}/{FOLDER}/{udf.bundle_sha256}{_BUNDLE}" if udf.bundle_sha256 else ""

    def _put_bundle(self, udf: UdfDefinition, bundle: bytes) -> None:
        if not udf.bundle_sha256:
            return
        path = f"{self._root}/{udf.bundle_sha256}{_BUNDLE}"
        if not bundle:
            if self._size(path) != udf.bundle_size:
                raise FailedPrecondition(
                    "UDF_BUNDLE_MISSING",
                    f"The bundle of function {udf.name}@{udf.version} is not stored yet: send it along",
                )
            return
        digest = hashlib.sha256(bundle).hexdigest()
        if digest != udf.bundle_sha256 or len(bundle) != udf.bundle_size:
            raise FailedPrecondition(
                "UDF_DIGEST_MISMATCH",
                f"The bundle of function {udf.name}@{udf.version} has {len(bundle)} bytes with sha256 "
                f"{digest}; {udf.bundle_size} bytes with sha256 {udf.bundle_sha256} were announced",
            )
        if self._size(path) is None or self._load(path) != bundle:  # a damaged one is healed
            self._write(path, bundle)

    def _entries(self) -> Iterator[Registered]:
        selector = pafs.FileSelector(self._root, allow_not_found=True)
        for info in self._files.get_file_info(selector):
            if info.base_name.endswith(_DEFINITION) and not info.base_name.startswith("."):
                yield Registered(*codec.decode(self._load(info.path), info.path))

    def _path(self, name: str, version: str) -> str:
        return f"{self._root}/{name}@{version}{_DEFINITION}"

    def _size(self, path: str) -> int | None:
        info = self._files.get_file_info(path)
        return info.size if info.type == pafs.FileType.File else None

    def _load(self, path: str) -> bytes:
        with self._files.open_input_stream(path) as stream:
            return bytes(stream.read())

    def _create(self, path: str, data: bytes) -> bool:
        """Writes a file that is not there yet; False: someone else was faster.

        Exact on local disks. Object stores have no such call here: there two writers at the same instant are
        told apart by what is stored afterwards.
        """
        if not isinstance(self._files, pafs.LocalFileSystem):
            self._write(path, data)
            return self._load(path) == data
        temporary = self._write_temporary(data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            Path(temporary).unlink()
        return True

    def _write(self, path: str, data: bytes) -> None:
        if isinstance(self._files, pafs.LocalFileSystem):
            self._files.move(self._write_temporary(data), path)
            return
        with self._files.open_output_stream(path) as stream:  # an object appears whole or not at all
            stream.write(data)

    def _write_temporary(self, data: bytes) -> str:
        self._files.create_dir(self._root, recursive=True)
        temporary = f"{self._root}/.{uuid.uuid4().hex}.tmp"
        with self._files.open_output_stream(temporary) as stream:
            stream.write(data)
        return temporary


def check_identity(name: str, version: str) -> None:
    """Raises InvalidArgument (BAD_UDF) for what cannot be part of a file name and of a checkpoint key."""
    for field, text in (("name", name), ("version", version)):
        if not _NAME.fullmatch(text) or len(text) > MAX_NAME or any(s in text for s in _SEPARATORS):
            raise InvalidArgument(
                "BAD_UDF",
                f"'{text[:200]}' is no {field} for a function: at most {MAX_NAME} letters, digits, '_', '.' "
                "and '-', not beginning with '.' or '-' and without '_ver-' and '_col-'",
                field=field,
            )


def check_definition(udf: UdfDefinition) -> None:
    """Raises InvalidArgument (BAD_UDF) for a definition that contradicts itself."""
    check_identity(udf.name, udf.version)
    _check_sizes(udf)
    _check_policy(udf)
    if udf.kind is UdfKind.SQL or udf.sql_expression:
        _check_sql(udf)
        return
    if bool(udf.bundle_sha256) == bool(udf.entrypoint):
        raise _bad(udf, "needs either a bundle or an entrypoint", "code")
    if udf.bundle_sha256 and (not _SHA256.fullmatch(udf.bundle_sha256) or not udf.bundle_python):
        raise _bad(udf, "needs its bundle's sha256 in lower-case hex and its Python version", "python_bundle")
    if udf.entrypoint and udf.entrypoint.count(":") != 1:
        raise _bad(udf, "needs an entrypoint like package.module:name", "entrypoint")
    if udf.input_types and len(udf.input_types) != len(udf.input_columns):
        raise _bad(udf, "declares types for another number of inputs than it names", "input_schema")
    if not udf.input_columns or not all(udf.input_columns):
        raise _bad(udf, "has to name the columns it reads", "input_columns")
    if not 0 <= udf.timeout_seconds < math.inf:
        raise _bad(udf, "needs a timeout of 0 (no bound) or more seconds", "timeout_seconds")
    if udf.blob and udf.output_type != pa.large_binary():
        raise _bad(udf, "gives blobs: its output type is large_binary", "output_schema")
    _check_resources(udf)


def _check_sizes(udf: UdfDefinition) -> None:
    bounds = udf.checkpoint
    sizes = (udf.batch_size, bounds.checkpoint_size, bounds.min_checkpoint_size, bounds.max_checkpoint_size)
    if min(sizes) < 0:
        raise _bad(udf, "needs sizes of 0 (not asked) or more rows", "checkpoint")
    if 0 < bounds.max_checkpoint_size < bounds.min_checkpoint_size:
        raise _bad(udf, "has a min_checkpoint_size above its max_checkpoint_size", "checkpoint")


def _check_policy(udf: UdfDefinition) -> None:
    """What the SDK refuses, for whoever comes without it: on a worker it would be too late."""
    policy = udf.error_policy
    if policy.max_errors < 0 or not 0 <= policy.max_error_fraction <= 1:
        raise _bad(udf, "needs max_errors of 0 (no bound) or more, and a fraction from 0 to 1", "error_policy")
    for rule in policy.rules:
        try:
            re.compile(rule.message_pattern)
        except re.error as error:
            what = f"has a rule whose pattern {rule.message_pattern!r} is no regular expression: {error}"
            raise _bad(udf, what, "error_policy.rules.message_pattern") from None
        if rule.action is not ErrorAction.RETRY:
            continue
        if rule.max_attempts < 2 or not 0 <= rule.initial_backoff_seconds <= rule.max_backoff_seconds < math.inf:
            what = "needs max_attempts of 2 or more, and 0 <= initial_backoff_seconds <= max_backoff_seconds, to retry"
            raise _bad(udf, what, "error_policy.rules")


def _check_resources(udf: UdfDefinition) -> None:
    wanted = udf.resources
    if wanted.num_cpus < 0 or wanted.memory_bytes < 0:
        raise _bad(udf, "cannot ask for less than nothing", "resources")
    gpus = wanted.num_gpus
    if not (math.isfinite(gpus) and (0 <= gpus <= _SHARED_GPU or (gpus > 0 and gpus == int(gpus)))):
        raise _bad(
            udf, "needs a whole number of GPUs, or a fraction of at most 0.5 of one to share", "resources.num_gpus"
        )


def _check_sql(udf: UdfDefinition) -> None:
    if udf.kind is not UdfKind.SQL or not udf.sql_expression or udf.bundle_sha256 or udf.entrypoint:
        raise _bad(udf, "needs an expression where its kind is SQL, and only there", "sql_expression")
    policy = udf.error_policy
    options = udf.stateful or udf.batch_size or udf.input_types or udf.blob or udf.resources != Resources()
    if options or policy.rules or policy.max_errors:
        raise _bad(udf, "is SQL: it has no state, batch size, input types, resources or error policy", "kind")
    expressions.check(udf.sql_expression, udf.input_columns)
    read = expressions.inputs(udf.sql_expression, udf.input_columns)
    if not read or set(read) != set(udf.input_columns):
        raise _bad(
            udf, f"has to name the columns it reads and no others; those it reads: {list(read)}", "input_columns"
        )


def _bad(udf: UdfDefinition, what: str, field: str) -> InvalidArgument:
    return InvalidArgument("BAD_UDF", f"Function {udf.name}@{udf.version} {what}", field=f"definition.{field}")


def _with_options_of(udf: UdfDefinition, found: UdfDefinition) -> UdfDefinition:
    return replace(
        found,
        batch_size=udf.batch_size,
        timeout_seconds=udf.timeout_seconds,
        checkpoint=udf.checkpoint,
        error_policy=udf.error_policy,
        resources=udf.resources,
    )


def _exists(udf: UdfDefinition) -> AlreadyExists:
    return AlreadyExists(
        "UDF_EXISTS",
        f"Function {udf.name}@{udf.version} exists with another definition: give the new one another version",
        name=udf.name,
        version=udf.version,
    )
