"""Notes of committed files: size and digest of each, beside the table's data for as long as the file is there.

Lance keeps no checksums, and the properties of its transactions go with old versions. So the coordinator notes what it
is about to install, a small file for each request, under `<table>/_committed/`. A note of a file that is not installed
after all does no harm: no other file is ever given the same name.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs

from leman_core.model import keys
from leman_core.model.plan import StagedFile
from leman_core.storage import whole_files
from leman_core.storage.column_files import digest_of
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.storage_errors import failed, in_use

FOLDER = "_committed"
_ENDING = ".files"
#: First line of a note. One for each file follows: name, size, digest. The note's own name is a digest of all of it.
_HEADER = "leman committed files 1"
#: So many notes are left as they are: making one of them would gain nothing.
_FEW = 16
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Committed:
    """What a committed file must hold."""

    size_bytes: int
    #: xxh3-128 of the bytes, as hex.
    digest: str


@dataclass(frozen=True, slots=True)
class Notes:
    """All notes of a table."""

    #: What is noted, by name of the data file.
    files: Mapping[str, Committed]
    #: What is wrong, by file name of a note that cannot be believed.
    damaged: Mapping[str, str]
    bytes_read: int


def can_be_noted(file: StagedFile) -> bool:
    """Tell whether a file that nobody has looked at yet may stand in a note: its name and digest are such as ours."""
    return keys.parse_column_file_name(file.file) is not None and file.digest.isalnum()


def note(uri: str, files: Iterable[StagedFile]) -> None:
    """Write a note of files of a table; the same files again make the same note.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    try:
        _write(uri, {file.file: Committed(file.size_bytes, file.digest) for file in files})
    except OSError as error:
        raise failed(error, f"What is about to be committed to {uri} cannot be noted now: {error}", uri) from error


def read(uri: str) -> Notes:
    """Return all notes of a table.

    Raises:
        LemanError: what `storage_errors.failed` gives, where the folder cannot be read.
    """
    for tries_left in reversed(range(_TRIES)):
        with in_use(f"Notes of committed files of {uri}", uri):
            found = _read(uri, _names(uri))
        if found.vanished and tries_left:  # folded meanwhile: another note has what they said
            continue
        break
    return Notes(found.files, found.damaged, found.bytes_read)


def problem_of(uri: str, name: str, expected: Committed) -> str:
    """Return what is wrong with a data file of a table; empty: it is as it was written.

    Raises:
        NotFound: FILE_MISSING – there is no such file.
        LemanError: what `storage_errors.failed` gives.
    """
    size, digest = digest_of(uri, name)
    if (size, digest) == (expected.size_bytes, expected.digest):
        return ""
    if size != expected.size_bytes:
        return f"has {size} bytes, {expected.size_bytes} were announced for its commit"
    return f"has digest {digest}, {expected.digest} was announced for its commit"


def fold(uri: str, present: Callable[[], Collection[str]]) -> None:
    """Merge many notes into one, without files that are no longer there.

    Damaged notes stay. Stopped anywhere it can be called again.

    Args:
        present: Lists the data folder; it is called after the notes were listed, so that no file is missed.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    with in_use(f"Notes of committed files of {uri}", uri):
        names = _names(uri)
        if len(names) <= _FEW:
            return
        found, there = _read(uri, names), present()
        made = _write(uri, {name: committed for name, committed in found.files.items() if name in there})
        filesystem, root = filesystem_of(uri)
        for name in names:
            if name != made and name not in found.damaged:
                with contextlib.suppress(FileNotFoundError):
                    filesystem.delete_file(f"{root}/{FOLDER}/{name}")


@dataclass(frozen=True, slots=True)
class _Found:
    files: dict[str, Committed]
    damaged: dict[str, str]
    vanished: bool
    bytes_read: int


def _read(uri: str, names: Sequence[str]) -> _Found:
    filesystem, root = filesystem_of(uri)
    files: dict[str, Committed] = {}
    damaged: dict[str, str] = {}
    vanished, size = False, 0
    for name in names:
        try:
            with filesystem.open_input_stream(f"{root}/{FOLDER}/{name}") as stream:
                content = bytes(stream.read())
            size += len(content)
            files.update(_decode(name, content))
        except FileNotFoundError:
            vanished = True
        except (OSError, ValueError) as error:
            damaged[name] = str(error)
    return _Found(files, damaged, vanished, size)


def _names(uri: str) -> list[str]:
    filesystem, root = filesystem_of(uri)
    infos = filesystem.get_file_info(pafs.FileSelector(f"{root}/{FOLDER}", allow_not_found=True))
    return sorted(i.base_name for i in infos if i.is_file and i.base_name.endswith(_ENDING))


def _write(uri: str, files: Mapping[str, Committed]) -> str:
    """Write a note and return its name, which follows from its content."""
    lines = [f"{name} {committed.size_bytes} {committed.digest}" for name, committed in files.items()]
    content = "\n".join([_HEADER, *lines, ""]).encode()
    name = _name_of(content)
    filesystem, root = filesystem_of(uri)
    whole_files.put(filesystem, f"{root}/{FOLDER}/{name}", content)
    return name


def _name_of(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()[:32]}{_ENDING}"


def _decode(name: str, content: bytes) -> dict[str, Committed]:
    if _name_of(content) != name:
        raise ValueError("it does not have the content that it was written with")
    _, *lines = content.decode().splitlines()
    parts = (line.split(" ") for line in lines)
    return {file: Committed(int(size), digest) for file, size, digest in parts}
