"""The bundles of a database's functions: `<sha256>.bundle` beside the definitions. Nothing is unpickled here.

`<sha256>.failed` says that workers could not unpickle one: it names a module that they lack, for example.

A bundle may be as large as the settings allow, so none is held in memory but one that came in one message.
"""

from __future__ import annotations

import contextlib
import hashlib

import pyarrow.fs as pafs

from leman_core.model.errors import FailedPrecondition, InvalidArgument
from leman_core.storage import whole_files
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.storage_errors import in_use

ENDING = ".bundle"
_FAILED = ".failed"
_PIECE_BYTES = 1 << 20


def note_failure(uri: str, why: str) -> None:
    """Note that the bundle at `uri` cannot be unpickled, so that another of the same function may take its place.

    Raises:
        OSError: that cannot be noted.
    """
    files, path = filesystem_of(uri)
    whole_files.put(files, path.removesuffix(ENDING) + _FAILED, why.encode())


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
        """Tell whether a bundle is stored, with every byte as it was."""
        path = self.path(sha256)
        with self._in_use():
            info = self._files.get_file_info(path)
            return info.type == pafs.FileType.File and info.size == size and self._digest(path)[0] == sha256

    def has_failed(self, sha256: str) -> bool:
        """Tell whether workers could not unpickle a bundle."""
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
                whole_files.put(self._files, self.path(sha256), content)

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
        return in_use(self._what, self._folder)

    def _sweep(self) -> None:
        if isinstance(self._files, pafs.LocalFileSystem):
            whole_files.sweep(self._folder)


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
        with in_use(self._what, self._sha256):
            self._file.write(piece)

    def finish(self) -> None:
        """Store the bundle under its digest.

        Raises:
            FailedPrecondition: UDF_DIGEST_MISMATCH.
        """
        _check(self._sha256, self._size, self._digest.hexdigest(), self._came)
        with in_use(self._what, self._sha256):
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
