"""Live state that may be lost at any time: reservations and leases. The only room that imports redis."""

from core.coordination.leases import JobLeases
from core.coordination.reservations import GrantAll, InProcessReservations, RedisReservations

__all__ = ["GrantAll", "InProcessReservations", "JobLeases", "RedisReservations"]
