"""The views of a database: which of its tables are views, and what can be told of them without reading rows."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from leman_core.model.errors import DataLoss, FailedPrecondition, InvalidArgument, NotFound, PermissionDenied
from leman_core.model.table import TableSnapshot
from leman_core.model.view import SCRATCH_PREFIX, ViewSummary
from leman_core.storage.locations import canonical_database, table_uri
from leman_core.storage.tables import LanceTables
from leman_core.storage.views.definitions import definition_in
from leman_planner.views.fill_state import classify, renamed

#: Tables that are looked at for one page: each takes a manifest to be read.
MOST_TABLES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPage:
    """What one call tells."""

    views: tuple[ViewSummary, ...]
    #: Of tables that could not be looked at, for people.
    warnings: tuple[str, ...]
    #: The table that was looked at last, where there are more; empty: there are none.
    last: str


def list_views(tables: LanceTables, database: str, after: str, size: int) -> ViewPage:
    """Return views by name, those after `after`: `size` at the most, and those of `MOST_TABLES` tables.

    Raises:
        LemanError: what `CatalogService.ListMaterializedViews` (protos/leman/v1/catalog.proto) names.
    """
    home = canonical_database(database)
    names = [name for name in tables.list_tables(home) if not name.startswith(SCRATCH_PREFIX)]
    first = bisect_right(names, after)
    found: list[ViewSummary] = []
    warnings: list[str] = []
    looked = first
    for name in names[first : first + MOST_TABLES]:
        if len(found) == size:
            break
        looked += 1
        try:
            summary = _summary(name, tables.snapshot(table_uri(home, name)))
        except NotFound:  # dropped meanwhile
            continue
        except (DataLoss, FailedPrecondition) as error:
            warnings.append(f"{name}: {error.message}")
            continue
        except (InvalidArgument, PermissionDenied):  # which may say where it leads
            warnings.append(f"{name}: it is a link to where this service may not work: remove the link")
            continue
        if summary is not None:
            found.append(summary)
    last = names[looked - 1] if looked < len(names) else ""
    return ViewPage(views=tuple(found), warnings=tuple(warnings), last=last)


def _summary(name: str, table: TableSnapshot) -> ViewSummary | None:
    definition = definition_in(table)
    if definition is None:
        return None
    return ViewSummary(
        uri=table.uri,
        name=name,
        version=table.version,
        definition=definition,
        row_count=table.live_rows,
        rows_set=None if renamed(table) else classify(table, {}).rows_set,
    )
