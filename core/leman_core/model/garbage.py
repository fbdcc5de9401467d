"""The files next to a table's data, their use, and whether they may be removed."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from leman_core.model.row_positions import RowRange

DAY = 86400.0
#: The age from which garbage is removed, unless the request states another one.
DEFAULT_AGE = 7 * DAY

#: Temporary files of Lance, which stay if the writer dies.
UNFINISHED_NAME = re.compile(r"\.tmp\w+|.+#\d+")


class StoredKind(enum.Enum):
    """The kind of a stored file, see `protos/leman/v1/commit.proto`."""

    CHECKPOINT = "checkpoint"
    RECORD = "fragment record"
    COLUMN_FILE = "column file"
    DAMAGED = "damaged"
    UNFINISHED = "unfinished"
    OTHER = "other"


class Use(enum.Enum):
    """The known use of a stored file, see `protos/leman/v1/commit.proto`."""

    OPEN = "open"
    UNKNOWN = "unknown"
    SETTLED = "settled"
    NO_COLUMN = "no_column"
    OTHER_FUNCTION = "other_function"
    NO_SOURCES = "no_sources"
    NOT_INSTALLABLE = "not_installable"
    FILE_MISSING = "file_missing"
    UNREFERENCED = "unreferenced"
    DAMAGED = "damaged"
    UNFINISHED = "unfinished"
    LEGACY = "legacy"


#: Uses that keep a file forever.
IN_USE = frozenset({Use.OPEN, Use.UNKNOWN})


class Fate(enum.Enum):
    """What happens to a stored file, see `protos/leman/v1/commit.proto`."""

    KEPT = "kept"
    YOUNG = "young"
    JOB = "job"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of Leman's that no version of the table refers to.

    `folder` and `name` are its path below the table. Checkpoints may be elsewhere, see `checkpoint_root`.
    """

    folder: str
    name: str
    size_bytes: int
    #: Seconds since the epoch.
    modified: float
    #: Empty if it has none or it cannot be read.
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """The purpose of a checkpoint or record by its key; empty if unknown."""

    udf_name: str = ""
    udf_version: str = ""
    column: str = ""
    fragment_id: int = -1
    range: RowRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDecision:
    """A stored file and the decision about it."""

    file: StoredFile
    kind: StoredKind
    use: Use
    fate: Fate
    purpose: Purpose = Purpose()


@dataclass(frozen=True, slots=True)
class OpenJob:
    """An open job of the table: it runs, waits or was abandoned. Seconds since the epoch."""

    job_id: str
    column: str | None
    """The column that the job computes; None if the job refreshes the table, which is then a view."""
    created_at: float
    incarnation: str = ""
    """The incarnation of its table; empty: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The result of a garbage collection at a table version."""

    version: int
    decisions: tuple[RetentionDecision, ...]
    #: The files that the collection deleted or, in a dry run, would delete.
    removed: tuple[StoredFile, ...]
    dry_run: bool
