"""The source version that a view is right for: as the source has it, or as the view recorded it."""

from __future__ import annotations

from functools import cached_property

from leman_core.model.errors import NotFound
from leman_core.model.refresh import RefreshPlan
from leman_core.storage.views import source_records
from leman_core.storage.views.source import SourceRows
from leman_core.storage.views.source_record_file import SourceRecord
from leman_executor.refresh.diff.unchanged_rows import Side


class Base:
    """The base of one plan, opened when something is to be read of it.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND, where the source does not have the version any more; for `rows` and `side`
            only if the view has no record of it either.
    """

    def __init__(self, plan: RefreshPlan) -> None:
        self._plan = plan

    @cached_property
    def source(self) -> SourceRows:
        """Return the version as the source has it."""
        definition = self._plan.definition
        return SourceRows(definition.source_uri, definition.base_version)

    @cached_property
    def rows(self) -> SourceRows | SourceRecord:
        """Return what tells the rows of fragments: the version itself, or the view's record of it."""
        try:
            return self.source
        except NotFound:
            found = self._plan.definition
            return source_records.read_for(self._plan.uri, found.base_record, found.source_uri, found.base_version)

    def side(self) -> Side:
        """Return the columns and fragments."""
        rows = self.rows
        if isinstance(rows, SourceRows):
            return Side.of(rows.dataset)
        return Side(rows.snapshot.version, rows.snapshot.fields, lambda: rows.snapshot.fragments)
