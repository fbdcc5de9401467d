"""What a caller says of a job beside what it is to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttributes:
    """Labels, priority, initiator and environment of a job; meanings in `protos/leman/v1/jobs.proto`."""

    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    initiator: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


USUAL = JobAttributes()
"""No label, and the usual priority."""
