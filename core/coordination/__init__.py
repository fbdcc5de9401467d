"""Live state that may be lost at any time: reservations and hints. The only room that imports redis."""

from core.coordination.events import EventReader, RedisEventSink, SilentSink
from core.coordination.leases import JobLeases
from core.coordination.reservations import GrantAll, InProcessReservations, RedisReservations

__all__ = [
    "EventReader",
    "GrantAll",
    "InProcessReservations",
    "JobLeases",
    "RedisEventSink",
    "RedisReservations",
    "SilentSink",
]
