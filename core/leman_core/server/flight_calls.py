"""The calls of Arrow Flight, and what each asks of its caller: its proto is Apache's, and has no options of ours."""

from __future__ import annotations

from google.protobuf.descriptor import ServiceDescriptor

from leman_core.server.flight_protocol import Flight_pb2

FLIGHT: ServiceDescriptor = Flight_pb2.DESCRIPTOR.services_by_name["FlightService"]
#: Answered by every process itself: it is about the caller's token, and all know the same.
HANDSHAKE = f"/{FLIGHT.full_name}/Handshake"
#: The one call that changes something.
PUT = f"{FLIGHT.full_name}.DoPut"
#: Full name of a method → the least role.
ROLES = {method.full_name: "editor" if method.full_name == PUT else "reader" for method in FLIGHT.methods}
