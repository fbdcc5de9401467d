"""The requests of callers that concern views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from leman_core.model.plan import StagedFile


@dataclass(frozen=True, slots=True)
class ViewFile:
    """A staged file for a fragment of a view."""

    fragment_id: int
    staged: StagedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePlaceholdersRequest:
    """Make placeholders, for a view that this request creates or for one that gets them anew."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    schema: pa.Schema
    #: 0: the coordinator chooses.
    max_rows_per_fragment: int
    #: The request creates the view, and has no incarnation and no read version.
    create: bool
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FillPlaceholdersRequest:
    """Install values of placeholders."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    fragments: tuple[ViewFile, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyDeltaRequest:
    """Bring a view from one version of its source to another."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    appended: tuple[ViewFile, ...]
    swapped: tuple[ViewFile, ...]
    #: Empty: no row is evicted.
    evictions_file: str
    evictions_digest: str
    replace_all: bool
    metadata: Mapping[str, str]
    attempt: int = 0


ViewRequest = CreatePlaceholdersRequest | FillPlaceholdersRequest | ApplyDeltaRequest
