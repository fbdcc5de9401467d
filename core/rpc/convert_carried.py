"""Rows that a plan wants migrated, as protobuf."""

from __future__ import annotations

from core.domain.plan import MigratedRows
from core.rpc.convert import range_from_proto, range_to_proto
from leman.v1 import planner_pb2


def migrated_to_proto(migrated: MigratedRows) -> planner_pb2.MigratedRows:
    """For the planner's answer."""
    return planner_pb2.MigratedRows(
        fragment_id=migrated.fragment_id,
        key=migrated.key,
        covered=range_to_proto(migrated.covered),
        source=migrated.source,
        from_fragment=migrated.from_fragment,
        from_rows=range_to_proto(migrated.from_rows),
        at=migrated.at,
        before_version=migrated.before,
    )


def migrated_from_proto(message: planner_pb2.MigratedRows) -> MigratedRows:
    """What the planner answered."""
    return MigratedRows(
        fragment_id=message.fragment_id,
        key=message.key,
        covered=range_from_proto(message.covered),
        source=message.source,
        from_fragment=message.from_fragment,
        from_rows=range_from_proto(message.from_rows),
        at=message.at,
        before=message.before_version,
    )
