"""Which process serves which service. A new service of `leman.v1` gets a line in `SERVED_BY`.

The proto of Arrow Flight is Apache's and has no options of ours, so the roles that its calls require stand here.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import ModuleType

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

import leman.v1
import leman_internal.v1
from leman_core.server.flight_protocol import Flight_pb2

FLIGHT: ServiceDescriptor = Flight_pb2.DESCRIPTOR.services_by_name["FlightService"]
#: Answered by every process itself, because all know the same tokens.
HANDSHAKE = f"/{FLIGHT.full_name}/Handshake"
#: The only call that changes something.
PUT = f"{FLIGHT.full_name}.DoPut"
#: Full name of a method → the lowest role that may call it.
ROLES = {method.full_name: "editor" if method.full_name == PUT else "reader" for method in FLIGHT.methods}


#: Served by every process, about itself.
EVERYWHERE = "leman.v1.InfoService"
#: Full name of a service → the process that serves it; its peers forward calls to it.
SERVED_BY = {
    "leman.v1.CatalogService": "planner",
    "leman.v1.CommitService": "commit_coordinator",
    "leman.v1.DatabaseService": "planner",
    "leman.v1.JobService": "executor",
    "leman.v1.PlannerService": "planner",
    "leman.v1.TableService": "commit_coordinator",
    FLIGHT.full_name: "commit_coordinator",
}


@functools.cache
def public_services() -> dict[str, ServiceDescriptor]:
    """Return the services of the public contract, by full name."""
    return _services(leman.v1)


@functools.cache
def callers_services() -> dict[str, ServiceDescriptor]:
    """Return the services of the public contract and Arrow Flight's, by full name."""
    return {**public_services(), FLIGHT.full_name: FLIGHT}


@functools.cache
def internal_services() -> dict[str, ServiceDescriptor]:
    """Return the services that only services call, by full name."""
    return _services(leman_internal.v1)


def _services(package: ModuleType) -> dict[str, ServiceDescriptor]:
    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"{package.__name__}.{module.name}").DESCRIPTOR
            found.update({service.full_name: service for service in file.services_by_name.values()})
    return found


def path_of(method: MethodDescriptor) -> str:
    """Return the path of a method's calls, such as `/leman.v1.JobService/GetJob`."""
    return f"/{method.containing_service.full_name}/{method.name}"
