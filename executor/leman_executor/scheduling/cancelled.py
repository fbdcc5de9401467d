"""The exception by which a job learns in the middle of its work that it is to stop."""

from __future__ import annotations


class Cancelled(Exception):
    """The job was asked to stop while its workers ran."""
