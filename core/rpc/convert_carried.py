"""Rows that a plan wants carried over, as protobuf."""

from __future__ import annotations

from core.domain.plan import CarriedRows
from core.rpc.convert import range_from_proto, range_to_proto
from leman.v1 import planner_pb2


def carried_to_proto(carried: CarriedRows) -> planner_pb2.CarriedRows:
    """For the planner's answer."""
    return planner_pb2.CarriedRows(
        fragment_id=carried.fragment_id,
        key=carried.key,
        covered=range_to_proto(carried.covered),
        source=carried.source,
        from_fragment=carried.from_fragment,
        from_rows=range_to_proto(carried.from_rows),
        at=carried.at,
        before_version=carried.before,
    )


def carried_from_proto(message: planner_pb2.CarriedRows) -> CarriedRows:
    """What the planner answered."""
    return CarriedRows(
        fragment_id=message.fragment_id,
        key=message.key,
        covered=range_from_proto(message.covered),
        source=message.source,
        from_fragment=message.from_fragment,
        from_rows=range_from_proto(message.from_rows),
        at=message.at,
        before=message.before_version,
    )
