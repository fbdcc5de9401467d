"""Sources that are maintained between refreshes: written to, compacted, and their old versions cleaned away."""

from __future__ import annotations

from datetime import timedelta

import lance
import pytest

from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World


@pytest.mark.parametrize("written", [(), ("append",), ("append", "delete")])
def test_a_refresh_costs_what_was_written(views_system, quick_folder, written):
    """Each view is made, filled and refreshed twice, and the version that it is right for is gone each time. Views with
    an offset are rebuilt."""
    world = World(views_system, quick_folder / "db", [shape for shape in SHAPES if not shape.offset])
    world.refresh_and_check()
    for number in (1, 2):
        for operation in (*written, "compact"):
            world.change(operation, number)
        source = lance.dataset(world.source.uri)
        source.cleanup_old_versions(timedelta(0), retain_versions=1)
        assert [version["version"] for version in source.versions()] == [source.version]
        world.refresh_and_check()
