"""Which rows of a fragment are deleted.

Deletions only grow, but for a restore: it brings rows back, under the same fragment and the same data files. A column
file that was written while they were deleted has no values for them, so it says which rows it lacks.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt

from leman_core.model.ranges import RowRange


@dataclass(frozen=True, slots=True, eq=False)
class Deletions:
    """The deleted rows of one fragment."""

    #: The name of Lance's deletion file: an equal name means equal rows.
    file: str
    mask: npt.NDArray[np.bool_]

    def encode(self) -> bytes:
        """Return the deletions as bytes.

        They are the length of the name (2 bytes, little endian), the name, and zlib of the rows as bits after their
        number.
        """
        name = self.file.encode()
        bits = len(self.mask).to_bytes(8, "little") + np.packbits(self.mask).tobytes()
        return len(name).to_bytes(2, "little") + name + zlib.compress(bits, 1)

    @classmethod
    def decode(cls, buffer: bytes) -> Deletions:
        """Return what `encode` encoded."""
        end = 2 + int.from_bytes(buffer[:2], "little")
        bits = zlib.decompress(buffer[end:])
        rows = int.from_bytes(bits[:8], "little")
        mask = np.unpackbits(np.frombuffer(bits[8:], np.uint8), count=rows).astype(np.bool_)
        return cls(buffer[2:end].decode(), mask)


def live(fragment: lance.LanceFragment, covered: RowRange) -> npt.NDArray[np.bool_]:
    """Tell for each physical row of `covered` whether it is live."""
    scanner = fragment.scanner(
        columns=[], offset=covered.start, limit=covered.rows, with_row_id=True, include_deleted_rows=True
    )
    ids = scanner.to_table().column("_rowid")
    return np.asarray(ids.is_valid().to_numpy(), dtype=np.bool_)


def deletions(fragment: lance.LanceFragment) -> Deletions | None:
    """Return all of a fragment's deletions; None where it has none."""
    file = fragment.metadata.deletion_file
    if file is None:
        return None
    return Deletions(_name(file), ~live(fragment, RowRange(0, fragment.metadata.physical_rows)))


def are_still_deleted(fragment: lance.LanceFragment, before: Deletions) -> bool:
    """Tell whether every row that was deleted then is deleted now."""
    file = fragment.metadata.deletion_file
    if file is None:
        return not before.mask.any()
    if _name(file) == before.file:
        return True
    now = ~live(fragment, RowRange(0, fragment.metadata.physical_rows))
    return len(now) == len(before.mask) and bool(now[before.mask].all())


def _name(file: lance.fragment.DeletionFile) -> str:
    return f"{file.read_version}-{file.id}"
