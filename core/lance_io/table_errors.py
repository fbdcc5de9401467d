"""What it means that Lance cannot open a table: it is not there, damaged, of a later release, or out of reach."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
from pathlib import Path

import pyarrow.fs as pafs

from core.errors import DataLoss, FailedPrecondition, LemanError, NotFound
from core.filesystems import filesystem_of
from core.lance_io import manifest
from core.lance_io.opening import NO_VERSION, OTHER_VERSION
from core.lance_io.panics import is_panic
from core.locations import in_object_store
from core.storage_errors import failed, refusal
from core.stores.answers import on_one_line

_MISSING = ("was not found", "not found:", "Not found:", "No such file", "Not a directory")
#: Lance on a manifest of which it has all bytes.
_DAMAGED = re.compile(
    r"failed to decode Protobuf|sufficient data|file size is too small|Invalid range|LanceError\(Schema\)|CorruptFile|"
    rf"Unknown Lance storage version|{NO_VERSION}|{OTHER_VERSION}"
)
_TOO_NEW = re.compile(r"cannot be read by this version of Lance|[Uu]nsupported.*feature|[Ff]eature flags")
_FLAGS = re.compile(r"Flags: (\d+)")
#: Lance's flag of tables with data overlay files, which no release reads by default.
_OVERLAYS = 64
_SUFFIX = ".lance"
#: Of so many entries of a folder a name may be meant: an error is not to take long.
_LOOKED_AT = 10_000
_NEAR = 6


def table_error(uri: str, error: Exception, version: int = 0) -> LemanError:
    """Return the error of a table of which Lance cannot open a version (0: the latest).

    Returns:
        NotFound: TABLE_NOT_FOUND, where the version is not there.
        DataLoss: TABLE_DAMAGED.
        FailedPrecondition: STORAGE_DENIED, STORAGE_MISSING, TABLE_NOT_SUPPORTED.
        Unavailable: STORE_UNAVAILABLE, where it may be readable another time.
    """
    text = on_one_line(str(error))
    refused = refusal(error, uri)
    if refused is not None:
        return refused
    if any(sign in text for sign in _MISSING):
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
            "TABLE_NOT_SUPPORTED", f"Table {uri} needs a later release of Lance than this service has: {text}", uri=uri
        )
    path, is_damaged = _look(uri, version)
    if path and (is_damaged or is_panic(error) or _DAMAGED.search(text)):
        return DataLoss(
            "TABLE_DAMAGED",
            f"Table {uri} is damaged: its manifest {path} cannot be decoded ({text}). Put it back from a backup; "
            "where there is none, move it away, and the version before it is the latest one",
            uri=uri,
            path=path,
        )
    return failed(error, f"Table {uri} cannot be read: {text}", uri)


def _advice(uri: str) -> str:
    """Return what to do about a table that is not there; in a local folder it names the tables that may be meant."""
    folder, _, name = uri.rpartition("/")
    names: list[str] = []
    if not in_object_store(uri):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            looked_at = itertools.islice(entries, _LOOKED_AT)
            names = [entry.name.removesuffix(_SUFFIX) for entry in looked_at if entry.name.endswith(_SUFFIX)]
    near = difflib.get_close_matches(name.removesuffix(_SUFFIX), names, n=_NEAR)
    # a folder without versions is what a job has left of a table that was dropped, or a view that is being made
    close = [found for found in near if os.path.isdir(f"{folder}/{found}{_SUFFIX}/_versions")][:2]  # noqa: PTH112
    meant = f"did you mean {' or '.join(map(repr, close))}? Else " if close else ""
    return f"{meant}check the database path and the table name, or create it first"


def _look(uri: str, version: int) -> tuple[str, bool]:
    """Return the path of a version's manifest, and whether it makes no sense; empty where it cannot be read."""
    try:
        filesystem, root = filesystem_of(uri)
        found = filesystem.get_file_info(pafs.FileSelector(f"{root}/_versions"))
        paths = {_version_of(entry.base_name): entry.path for entry in found if entry.base_name.endswith(".manifest")}
        path = paths.get(version) if version else paths[max(paths)]
        if path is None:
            return "", False
        with filesystem.open_input_stream(path) as stream:
            content = bytes(stream.readall())
    except (OSError, ValueError):
        return "", False
    try:
        manifest.message_in(content)
    except ValueError:
        return path, True
    return path, False


def _version_of(name: str) -> int:
    """Return the version by the name of its manifest; the older kind of name has the number as it is."""
    stem = Path(name).stem
    if not stem.isdecimal():
        return -1
    return manifest.LAST_VERSION - int(stem) if len(stem) == manifest.NAME_DIGITS else int(stem)
