"""What callers ask for that concerns views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from core.domain.plan import StagedFile


@dataclass(frozen=True, slots=True)
class ViewFile:
    """A staged file for a fragment of a view."""

    fragment_id: int
    staged: StagedFile


@dataclass(frozen=True, slots=True)
class CreatePlaceholdersRequest:
    """Lay placeholders: for a view that is made by it (`create`; then without incarnation and read version), or anew.
    `max_rows_per_fragment` 0: chosen."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    schema: pa.Schema
    max_rows_per_fragment: int
    create: bool
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class FillPlaceholdersRequest:
    """Install values of placeholders."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    fragments: tuple[ViewFile, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class ApplyDeltaRequest:
    """Bring a view from one version of its source to another. `evictions_file` empty: none."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    appended: tuple[ViewFile, ...]
    swapped: tuple[ViewFile, ...]
    evictions_file: str
    evictions_digest: str
    replace_all: bool
    metadata: Mapping[str, str]
    attempt: int = 0


ViewRequest = CreatePlaceholdersRequest | FillPlaceholdersRequest | ApplyDeltaRequest
