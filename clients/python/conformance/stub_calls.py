"""Raw calls, by the stubs that the client gives."""

from __future__ import annotations

import threading
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import leman
from leman.v1 import catalog_pb2, commit_pb2, databases_pb2, info_pb2, jobs_pb2, planner_pb2, tables_pb2

_MODULES = {
    "CatalogService": (catalog_pb2, "catalog"),
    "CommitService": (commit_pb2, "commits"),
    "DatabaseService": (databases_pb2, "databases"),
    "InfoService": (info_pb2, "info"),
    "JobService": (jobs_pb2, "jobs"),
    "PlannerService": (planner_pb2, "planner"),
    "TableService": (tables_pb2, "tables"),
}


def rpc(database: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    """Make one call and take its answers."""
    timeout = given["timeout"]
    service, _, name = given["method"].partition("/")
    module, stub = _MODULES[service]
    described: ServiceDescriptor = module.DESCRIPTOR.services_by_name[service]
    method: MethodDescriptor = described.methods_by_name[name]
    call = getattr(getattr(database.stubs, stub), name)
    if method.client_streaming:
        answers = [call([_read(method, text) for text in given["requests"]], timeout=timeout)]
    elif method.server_streaming:
        answers = _taken(call(_read(method, given["request"]), timeout=timeout), given)
    else:
        answers = [call(_read(method, given["request"]), timeout=timeout)]
    return {"responses": [json_format.MessageToDict(answer) for answer in answers]}


def _read(method: MethodDescriptor, text: dict[str, Any]) -> Message:
    return json_format.ParseDict(text, GetMessageClass(method.input_type)())


def _taken(stream: Any, given: dict[str, Any]) -> list[Message]:
    """The answers of a stream, as many as are wanted; it is ended where more would come, or after a while."""
    timer = threading.Timer(given["cancel_after"], stream.cancel) if "cancel_after" in given else None
    if timer is not None:
        timer.start()
    taken: list[Message] = []
    try:
        for answer in stream:
            taken.append(answer)
            if len(taken) == given.get("take"):
                break
    finally:
        if timer is not None:
            timer.cancel()
        stream.cancel()
    return taken
