"""What stored definitions point at counts as what a caller names: it lies below the roots, or is refused."""

from __future__ import annotations

import lance
import pytest

from leman_core.model.service_errors import PermissionDenied
from leman_core.model.view import RefreshSpec
from leman_core.storage.database_roots import DatabaseRoots
from leman_core.storage.lance_tables import LanceTables
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import ViewCatalog, list_views
from tests.integration.planner.planner_lake import rows
from tests.integration.views.view_lake import ROWS, ViewLake, column


@pytest.fixture
def lake(tmp_path):
    """A view `v` in `home` over a table in `elsewhere`."""
    for name in ("home", "elsewhere"):
        (tmp_path / name).mkdir()
    lance.write_dataset(rows(ROWS), f"{tmp_path}/elsewhere/s.lance", enable_stable_row_ids=True)
    made = ViewLake(tmp_path / "home")
    made.create(made.query(column("id"), table="s", database=f"{tmp_path}/elsewhere"))
    return made


def refused(call, *arguments):
    with pytest.raises(PermissionDenied) as caught:
        call(*arguments)
    return caught.value.reason


def test_a_view_over_a_table_outside_of_the_roots_is_described_and_not_refreshed(lake, tmp_path):
    spec = RefreshSpec(lake.database, "v")
    within = LanceTables(roots=DatabaseRoots([lake.database]))
    assert ViewReader(within).view(lake.database, "v").name == "v"
    assert refused(ViewReader(within).plan, spec) == "DATABASE_NOT_ALLOWED"
    both = LanceTables(roots=DatabaseRoots([lake.database, f"{tmp_path}/elsewhere"]))
    assert ViewReader(both).plan(spec).rows == ROWS


def test_no_view_is_made_over_one_nor_over_a_link_to_one(lake, tmp_path):
    within = ViewCatalog(LanceTables(roots=DatabaseRoots([lake.database])))
    query = lake.query(column("id"), table="s", database=f"{tmp_path}/elsewhere")
    assert refused(within.creation, lake.database, "w", query) == "DATABASE_NOT_ALLOWED"
    (tmp_path / "home" / "link.lance").symlink_to(tmp_path / "elsewhere" / "s.lance")
    linked = lake.query(column("id"), table="link")
    assert refused(within.creation, lake.database, "w", linked) == "DATABASE_NOT_ALLOWED"
    assert within.creation(lake.database, "w", lake.query(column("id"))).uri == f"{lake.database}/w.lance"


def test_a_link_out_of_the_roots_is_warned_of_and_the_other_views_are_listed(lake, tmp_path):
    (tmp_path / "home" / "link.lance").symlink_to(tmp_path / "elsewhere" / "s.lance")
    found = list_views(LanceTables(roots=DatabaseRoots([lake.database])), lake.database, "", 9)
    assert [view.name for view in found.views] == ["v"]
    (warning,) = found.warnings
    assert warning.startswith("link: it is a link")
    assert str(tmp_path) not in warning
