"""What is next to a table's data, what it is for, and whether it may be removed."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from leman_core.model.row_positions import RowRange

DAY = 86400.0
#: Garbage younger than this stays, unless another age is asked for.
DEFAULT_AGE = 7 * DAY

#: What Lance writes into before a file has its name; it stays when the writer dies.
UNFINISHED_NAME = re.compile(r"\.tmp\w+|.+#\d+")


class StoredKind(enum.Enum):
    """What a stored file is. Meanings: `protos/leman/v1/commit.proto`."""

    CHECKPOINT = "checkpoint"
    RECORD = "fragment record"
    COLUMN_FILE = "column file"
    DAMAGED = "damaged"
    UNFINISHED = "unfinished"
    OTHER = "other"


class Use(enum.Enum):
    """What is known about the use of a stored file. Meanings: `protos/leman/v1/commit.proto`."""

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


#: Uses that keep a file for ever.
IN_USE = frozenset({Use.OPEN, Use.UNKNOWN})


class Fate(enum.Enum):
    """What is to become of a stored file. Meanings: `protos/leman/v1/commit.proto`."""

    KEPT = "kept"
    YOUNG = "young"
    JOB = "job"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of Leman's that no version of the table refers to.

    `folder` and `name` are its place under the table; checkpoints may lie elsewhere, see `checkpoint_root`.
    """

    folder: str
    name: str
    size_bytes: int
    #: Seconds since the epoch.
    modified: float
    #: Empty where it has none or it cannot be read.
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What a checkpoint or record is for, as its key says; empty where there is none."""

    udf_name: str = ""
    udf_version: str = ""
    column: str = ""
    fragment_id: int = -1
    range: RowRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDecision:
    """A stored file and what is to become of it."""

    file: StoredFile
    kind: StoredKind
    use: Use
    fate: Fate
    purpose: Purpose = Purpose()


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job of the table that has not ended: it runs, or waits to be taken over. Seconds since the epoch."""

    job_id: str
    column: str | None
    """The column that it fills; None: it refreshes the view that the table is."""
    created_at: float
    incarnation: str = ""
    """Which of all tables that had its name it is about; empty: that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What a collection found at a table version."""

    version: int
    decisions: tuple[RetentionDecision, ...]
    #: What it deleted, or would delete (dry run).
    removed: tuple[StoredFile, ...]
    dry_run: bool
